#!/usr/bin/env bash
# The library that moves a process' clock, for tests on a machine that has none: its own Debian release's package, unpacked into a
# cache folder. Needs no root. Prints the library's path.
set -euo pipefail

cache=${LIS_FAKETIME_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lis-faketime}
log() { printf 'libfaketime: %s\n' "$*" >&2; }
fail() { log "$*"; exit 1; }

find_library() { find "$cache/root" -name libfaketimeMT.so.1 2>/dev/null | grep -m 1 .; }

# Of the machine's release: a newer one may need a newer C library than the programs that it is loaded into.
unpack() {
  local draft=$cache/draft.$$
  command -v apt-get >/dev/null || fail 'it is not installed, and there is no apt-get to fetch it with'
  rm -rf "$cache"/draft.*
  mkdir -p "$draft"/{lists/partial,archives/partial}
  # Lists of our own where the machine's are missing or old.
  local own=(-o "Dir::State::lists=$draft/lists" -o "Dir::Cache=$draft" -o Debug::NoLocking=1 -o APT::Sandbox::User=root)
  log 'fetching libfaketime (some 0.1 MB, kept for the next time) …'
  (cd "$draft/archives" && { apt-get -q download libfaketime ||
    { apt-get -q "${own[@]}" update; apt-get -q "${own[@]}" download libfaketime; }; }) >"$draft/log" 2>&1 ||
    { tail -n 5 "$draft/log" >&2; fail 'the package can not be fetched'; }
  dpkg-deb -x "$draft"/archives/libfaketime_*.deb "$draft/root"
  # Renamed at last: what is there under its name is whole.
  rm -rf "$cache/root"
  mv "$draft/root" "$cache/root"
  rm -rf "$draft"
}

find_library && exit
unpack
find_library || fail 'the package has no libfaketimeMT.so.1'
