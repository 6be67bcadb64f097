#!/usr/bin/env bash
# The library that moves a process' clock, for tests on a machine that has none: its own Debian release's package, unpacked into a
# cache folder. Needs no root. Prints the library's path.
set -euo pipefail

name=libfaketime package=libfaketime size='0.1 MB' file=libfaketimeMT.so.1
cache=${LIS_FAKETIME_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lis-faketime}

. "$(dirname "$0")/own-package.sh"
