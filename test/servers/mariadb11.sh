#!/usr/bin/env bash
# MariaDB as Debian 13 and later have it (11.8 and up), for the tests on an older release.
#
#   mariadb11.sh start FOLDER   makes FOLDER, starts a server on it and prints its URL (on a free loopback port)
#   mariadb11.sh stop FOLDER    stops that server and removes FOLDER
#
# Run the suite on it:  MYSQL_URL=$(test/servers/mariadb11.sh start /tmp/mdb) make test; test/servers/mariadb11.sh stop /tmp/mdb
set -euo pipefail

name=mariadb11 packages=(mariadb-server-core) size='30 MB' program=usr/sbin/mariadbd
cache=${LIS_MARIADB11_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lis-mariadb11}

own_options() {
  options=("--lc-messages-dir=$root/usr/share/mariadb" "--character-sets-dir=$root/usr/share/mariadb/charsets"
    "--plugin-dir=$root/usr/lib/mysql/plugin" --innodb-log-file-size=64M "--log-error=$1/log")
}

# As its own script for that does, which can not be told of a loader.
make_data() {
  local scripts=$root/usr/share/mariadb
  mkdir "$1/data"
  { printf 'CREATE DATABASE mysql;\nUSE mysql;\n'
    cat "$scripts"/mariadb_{system_tables,performance_tables,system_tables_data}.sql "$scripts"/fill_help_tables.sql
  } | "${command[@]}" --bootstrap
}

. "$(dirname "$0")/sid-server.sh"
