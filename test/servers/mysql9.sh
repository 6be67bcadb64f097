#!/usr/bin/env bash
# A real MySQL 9 for the tests, without touching the system: Debian sid's packages, unpacked into a cache folder and run
# with their own loader and libraries. For x86-64 and arm64 Linux with apt; needs no root.
#
#   mysql9.sh start FOLDER   makes FOLDER, starts a server on it and prints its URL (on a free loopback port)
#   mysql9.sh stop FOLDER    stops that server and removes FOLDER
#
# Run the suite on it:  MYSQL_URL=$(test/servers/mysql9.sh start /tmp/mysql9) make test; test/servers/mysql9.sh stop /tmp/mysql9
set -euo pipefail

cache=${LIS_MYSQL9_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lis-mysql9}
root=$cache/root
log() { printf 'mysql9: %s\n' "$*" >&2; }
fail() { log "$*"; exit 1; }

. "$(dirname "$0")/debian-sid.sh"

unpack() {
  local draft=$cache/draft.$$
  rm -rf "$cache"/draft.*
  sid_lists "$draft"
  log 'fetching MySQL (some 65 MB, kept for the next time) …'
  apt-get "${sid_options[@]}" install --download-only --no-install-recommends mysql-server-core >"$draft/log" 2>&1 ||
    { tail -n 5 "$draft/log" >&2; fail 'the packages can not be fetched'; }
  local package
  for package in "$draft"/archives/*.deb; do dpkg-deb -x "$package" "$draft/root"; done
  # Renamed at last: what is there under its name is whole.
  rm -rf "$root"
  mv "$draft/root" "$root"
  rm -rf "$draft"
}

free_port() {
  node -e 'const s = require("net").createServer().listen(0, "127.0.0.1", () => { console.log(s.address().port); s.close() })'
}

start() {
  local folder=$1 libraries loader
  [ ! -e "$folder/data" ] || fail "$folder is in use: stop it first"
  [ -x "$root/usr/sbin/mysqld" ] || unpack
  libraries=$(echo "$root"/usr/lib/*-linux-gnu)
  loader=$(find "$root/usr/lib" -maxdepth 2 -name 'ld-linux*.so.*' | head -n 1)
  mkdir -p "$folder"
  folder=$(cd "$folder" && pwd)
  local user=()
  [ "$(id -u)" != 0 ] || user=(--user=root)
  local command=("$loader" --library-path "$libraries" "$root/usr/sbin/mysqld" --no-defaults "${user[@]}"
    "--basedir=$root/usr" "--lc-messages-dir=$root/usr/share/mysql" "--character-sets-dir=$root/usr/share/mysql/charsets"
    "--plugin-dir=$root/usr/lib/mysql/plugin" --secure-file-priv=NULL --mysqlx=OFF "--datadir=$folder/data"
    "--log-error=$folder/log")
  "${command[@]}" --initialize-insecure >"$folder/output" 2>&1 ||
    { tail -n 5 "$folder/log" "$folder/output" >&2; fail 'the data folder can not be made'; }
  local port
  port=$(free_port)
  # Its machine is never switched off under it: it need not wait for the disk, half of what a new schema takes.
  # A session of its own: a Ctrl-C meant for the tests must not take the server away under them. Not one word to our
  # output, which the caller reads to its end.
  setsid "${command[@]}" "--socket=$folder/sock" "--pid-file=$folder/pid" --bind-address=127.0.0.1 "--port=$port" \
    --skip-log-bin --innodb-buffer-pool-size=256M --innodb-redo-log-capacity=64M --performance-schema=OFF \
    --max-connections=500 --innodb-flush-method=nosync >"$folder/output" 2>&1 </dev/null &
  local pid=$! tries=0
  echo "$pid" >"$folder/started"
  until (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do
    kill -0 "$pid" 2>/dev/null && [ $((tries += 1)) -lt 600 ] ||
      { tail -n 5 "$folder/log" >&2; fail 'the server does not start'; }
    sleep 0.1
  done
  echo "mysql://root@127.0.0.1:$port/test"
}

stop() {
  local folder=$1 pid tries=0
  pid=$(cat "$folder/started" 2>/dev/null || true)
  # Only what still is the server of this folder: the id may be another's by now.
  if [ -n "$pid" ] && tr '\0' '\n' <"/proc/$pid/cmdline" 2>/dev/null | grep -qx -- "--datadir=$(cd "$folder" && pwd)/data"; then
    kill "$pid" 2>/dev/null || true
    while kill -0 "$pid" 2>/dev/null; do
      [ $((tries += 1)) -lt 200 ] || { kill -9 "$pid" 2>/dev/null || true; }
      sleep 0.1
    done
  fi
  rm -rf "$folder"
}

case "${1-} ${2:+folder}" in
'start folder') start "$2" ;;
'stop folder') stop "$2" ;;
*) fail 'usage: mysql9.sh start|stop FOLDER' ;;
esac
