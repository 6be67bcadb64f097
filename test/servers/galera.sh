#!/usr/bin/env bash
# The library that makes a MariaDB server a node of a cluster, for a test on the machine's own server: its Debian release's package,
# unpacked into a cache folder. Needs no root. Prints the library's path.
set -euo pipefail

name=galera package=galera-4 size='3 MB' file=libgalera_smm.so
cache=${LIS_GALERA_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lis-galera}

. "$(dirname "$0")/own-package.sh"
