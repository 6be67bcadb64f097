#!/usr/bin/env bash
# A real MySQL 9 for the tests.
#
#   mysql9.sh start FOLDER   makes FOLDER, starts a server on it and prints its URL (on a free loopback port)
#   mysql9.sh stop FOLDER    stops that server and removes FOLDER
#
# Run the suite on it:  MYSQL_URL=$(test/servers/mysql9.sh start /tmp/mysql9) make test; test/servers/mysql9.sh stop /tmp/mysql9
set -euo pipefail

name=mysql9 packages=(mysql-server-core) size='65 MB' program=usr/sbin/mysqld
cache=${LIS_MYSQL9_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lis-mysql9}

own_options() {
  options=("--lc-messages-dir=$root/usr/share/mysql" "--character-sets-dir=$root/usr/share/mysql/charsets"
    "--plugin-dir=$root/usr/lib/mysql/plugin" --secure-file-priv=NULL --mysqlx=OFF --innodb-redo-log-capacity=64M
    "--log-error=$1/log")
}

make_data() { "${command[@]}" --initialize-insecure; }

. "$(dirname "$0")/sid-server.sh"
