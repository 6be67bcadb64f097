#!/usr/bin/env bash
# Prometheus' own checker of rules for the tests: the machine's, or Debian sid's package, unpacked into a cache folder. Needs
# no root. Prints the program's path.
set -euo pipefail

name=promtool
cache=${LIS_PROMTOOL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lis-promtool}
program=$cache/root/usr/bin/promtool
. "$(dirname "$0")/debian-sid.sh"

if own=$(command -v promtool); then
  echo "$own"
  exit
fi
# The program alone: it needs nothing but the C library.
[ -x "$program" ] || sid_unpack 'promtool (some 18 MB)' download promtool
"$program" --version >/dev/null 2>&1 || fail "$program does not run on this machine"
echo "$program"
