#!/bin/sh
# Installs the Debian packages that the demo or the tests need and that are missing: `setup.sh demo`, `setup.sh test` or `setup.sh e2e`.
set -eu

want=""
need() { # need <package> <command that shows it is there>
    if ! eval "$2" >/dev/null 2>&1; then want="$want $1"; fi
}

need postgresql "command -v postgres || ls /usr/lib/postgresql/*/bin/postgres"
if [ "${1:-demo}" = test ]; then
    need pgbouncer "command -v pgbouncer || ls /usr/sbin/pgbouncer"
    need gcc "command -v gcc"
    need libc6-dev "ls /usr/include/stdio.h"
    need python3-psycopg "/usr/bin/python3 -c 'import psycopg'"
    need nodejs "command -v node"
    need npm "command -v npm"
fi
if [ "${1:-demo}" = e2e ]; then
    need containerd "command -v containerd && command -v ctr"
    need runc "command -v runc"
    need containernetworking-plugins "ls /usr/lib/cni/bridge"
    need iptables "command -v iptables"
    need conntrack "command -v conntrack"
    need iproute2 "command -v ip"
fi
[ -n "$want" ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
    echo "These Debian packages are missing, and only root can install them: sudo apt-get install$want" >&2
    exit 1
fi
echo "Installing$want"
export DEBIAN_FRONTEND=noninteractive
# The distribution's own server is not wanted: the demo and the tests start private ones.
mkdir -p /etc/postgresql-common
[ -e /etc/postgresql-common/createcluster.conf ] || echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf
apt-get update -qq
# shellcheck disable=SC2086
apt-get install -y -qq --no-install-recommends $want >/dev/null
