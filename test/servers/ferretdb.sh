#!/usr/bin/env bash
# A server that speaks MongoDB's protocol, for the tests of the job store: FerretDB over SQLite, built by Go once and kept.
#
#   ferretdb.sh build           builds it into the cache folder unless it is there
#   ferretdb.sh start FOLDER    makes FOLDER, starts a server on it and prints its URL (on a free loopback port)
#   ferretdb.sh stop FOLDER     stops that server and removes FOLDER
#
# Run the job store's tests on it:
#   MONGODB_URL=$(test/servers/ferretdb.sh start /tmp/ferretdb) make test ARGS=test/daemon/job-store; test/servers/ferretdb.sh stop /tmp/ferretdb
set -euo pipefail

version=v1.24.2
cache=${LIS_FERRETDB_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lis-ferretdb}
binary=$cache/ferretdb-$version
log() { printf 'ferretdb: %s\n' "$*" >&2; }
fail() { log "$*"; exit 1; }

build() {
  [ ! -x "$binary" ] || return 0
  command -v go >/dev/null || fail 'Go is needed to build FerretDB'
  draft=$cache/draft.$$
  mkdir -p "$draft"
  trap 'chmod -R u+w "$draft" 2>/dev/null; rm -rf "$draft"' EXIT
  log "building FerretDB $version (about 75 s, kept for the next time) …"
  cd "$draft"
  printf 'module build\n\ngo 1.22\n' >go.mod
  local source
  source=$(go mod download -json "github.com/FerretDB/FerretDB@$version" 2>"$draft/log" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p') ||
    { tail -n 5 "$draft/log" >&2; fail 'its source can not be fetched'; }
  cp -r "$source" source
  chmod -R u+w source
  cd source
  mkdir -p build/version
  echo "$version" >build/version/version.txt
  go build -o "$draft/ferretdb" ./cmd/ferretdb >"$draft/log" 2>&1 || { tail -n 5 "$draft/log" >&2; fail 'it can not be built'; }
  # Renamed at last: what is there under its name is whole.
  mv "$draft/ferretdb" "$binary"
  cd /
}

free_port() {
  node -e 'const s = require("net").createServer().listen(0, "127.0.0.1", () => { console.log(s.address().port); s.close() })'
}

start() {
  local folder=$1 port
  [ ! -e "$folder/pid" ] || fail "$folder is in use: stop it first"
  (build)
  mkdir -p "$folder/data"
  folder=$(cd "$folder" && pwd)
  port=$(free_port)
  setsid "$binary" --handler=sqlite "--sqlite-url=file:$folder/data/" "--state-dir=$folder/data" \
    "--listen-addr=127.0.0.1:$port" --debug-addr=- --telemetry=disable --log-level=error >"$folder/log" 2>&1 </dev/null &
  local pid=$! tries=0
  echo "$pid" >"$folder/pid"
  until (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do
    kill -0 "$pid" 2>/dev/null && [ $((tries += 1)) -lt 200 ] || { tail -n 5 "$folder/log" >&2; fail 'the server does not start'; }
    sleep 0.1
  done
  echo "mongodb://127.0.0.1:$port/jobs"
}

stop() {
  local folder=$1 pid tries=0
  [ -e "$folder/pid" ] || return 0
  pid=$(cat "$folder/pid")
  # Only what this script started: a pid may belong to somebody else by now.
  if grep -qz ferretdb "/proc/$pid/cmdline" 2>/dev/null; then
    kill "$pid" 2>/dev/null || true
    while kill -0 "$pid" 2>/dev/null && [ $((tries += 1)) -lt 100 ]; do sleep 0.1; done
    kill -9 "$pid" 2>/dev/null || true
  fi
  rm -rf "$folder"
}

case ${1:-} in
  build) build ;;
  start) start "${2:?a folder}" ;;
  stop) stop "${2:?a folder}" ;;
  *) fail 'ferretdb.sh build | start FOLDER | stop FOLDER' ;;
esac
