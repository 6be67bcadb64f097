#!/usr/bin/env bash
# Prometheus' own checker of rules for the tests: the machine's, or Debian sid's package, unpacked into a cache folder. Needs
# no root. Prints the program's path.
set -euo pipefail

cache=${LIS_PROMTOOL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lis-promtool}
program=$cache/root/usr/bin/promtool
log() { printf 'promtool: %s\n' "$*" >&2; }
fail() { log "$*"; exit 1; }
. "$(dirname "$0")/debian-sid.sh"

unpack() {
  local draft=$cache/draft.$$
  rm -rf "$cache"/draft.*
  sid_lists "$draft"
  log 'fetching promtool (some 18 MB, kept for the next time) …'
  # The program alone: it needs nothing but the C library.
  (cd "$draft/archives" && apt-get "${sid_options[@]}" download promtool) >"$draft/log" 2>&1 ||
    { tail -n 5 "$draft/log" >&2; fail 'the package can not be fetched'; }
  dpkg-deb -x "$draft"/archives/promtool_*.deb "$draft/root"
  # Renamed at last: what is there under its name is whole.
  rm -rf "$cache/root"
  mv "$draft/root" "$cache/root"
  rm -rf "$draft"
}

if own=$(command -v promtool); then
  echo "$own"
  exit
fi
[ -x "$program" ] || unpack
"$program" --version >/dev/null 2>&1 || fail "$program does not run on this machine"
echo "$program"
