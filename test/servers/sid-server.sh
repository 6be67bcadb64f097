# Sourced by mysql9.sh and mariadb11.sh: a database server of Debian sid, without touching the system: its packages, unpacked into a
# cache folder and run with their own loader and libraries. For x86-64 and arm64 Linux with apt; needs no root. The caller has set
# `name` (of the script), `cache`, `packages`, `size` (what is fetched) and `program` (within the packages), and has the functions
#
#   own_options FOLDER   leaves in the array `options` what the server takes on every start, after its folders
#   make_data FOLDER     makes FOLDER/data, with "${command[@]}", which is the program with those options

root=$cache/root

. "$(dirname "$0")/debian-sid.sh"

free_port() {
  node -e 'const s = require("net").createServer().listen(0, "127.0.0.1", () => { console.log(s.address().port); s.close() })'
}

start() {
  local folder=$1 libraries loader
  [ ! -e "$folder/data" ] || fail "$folder is in use: stop it first"
  [ -x "$root/$program" ] ||
    sid_unpack "the server (some $size)" install --download-only --no-install-recommends "${packages[@]}"
  libraries=$(echo "$root"/usr/lib/*-linux-gnu)
  loader=$(find "$root/usr/lib" -maxdepth 2 -name 'ld-linux*.so.*' | head -n 1)
  mkdir -p "$folder"
  folder=$(cd "$folder" && pwd)
  local user=()
  [ "$(id -u)" != 0 ] || user=(--user=root)
  own_options "$folder"
  command=("$loader" --library-path "$libraries" "$root/$program" --no-defaults "${user[@]}" "--basedir=$root/usr"
    "--datadir=$folder/data" "${options[@]}")
  make_data "$folder" >"$folder/output" 2>&1 ||
    { tail -n 5 "$folder"/{log,output} >&2; fail 'the data folder can not be made'; }
  local port
  port=$(free_port)
  # Its machine is never switched off under it: it need not wait for the disk, half of what a new schema takes.
  # A session of its own: a Ctrl-C meant for the tests must not take the server away under them. Not one word to our
  # output, which the caller reads to its end.
  setsid "${command[@]}" "--socket=$folder/sock" "--pid-file=$folder/pid" --bind-address=127.0.0.1 "--port=$port" \
    --skip-log-bin --innodb-buffer-pool-size=256M --performance-schema=OFF --max-connections=500 \
    --innodb-flush-method=nosync >"$folder/output" 2>&1 </dev/null &
  local pid=$! tries=0
  echo "$pid" >"$folder/started"
  until (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do
    kill -0 "$pid" 2>/dev/null && [ $((tries += 1)) -lt 600 ] ||
      { tail -n 5 "$folder"/{log,output} >&2; fail 'the server does not start'; }
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
*) fail "usage: $name.sh start|stop FOLDER" ;;
esac
