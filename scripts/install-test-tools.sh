#!/bin/sh
# Install what the tests need beside Python packages: a browser, a PostgreSQL server and a maker of certificates.
# Quick where they are present.
set -eu

missing=""
command -v chromium >/dev/null 2>&1 || missing="$missing chromium"
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing="$missing postgresql"
command -v openssl >/dev/null 2>&1 || missing="$missing openssl"
[ -z "$missing" ] && exit 0

export DEBIAN_FRONTEND=noninteractive
# A server that starts by itself is not wanted: the tests start their own.
mkdir -p /etc/postgresql-common
[ -e /etc/postgresql-common/createcluster.conf ] || echo "create_main_cluster = false" > /etc/postgresql-common/createcluster.conf
# shellcheck disable=SC2086
apt-get install -y -q --no-install-recommends $missing || {
    apt-get update -q
    apt-get install -y -q --no-install-recommends $missing
}
