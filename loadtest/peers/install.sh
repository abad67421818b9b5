#!/usr/bin/env bash
# Installs the peers, each from its registry: redis-server and PostgreSQL 15 from Debian, etcd from the Go module
# proxy, Omid from Maven. What is not Debian's goes into a folder of tools outside the clone.
#
#   bash loadtest/peers/install.sh     prints two lines: etcd's binary, the folder of Omid's jars
#
# Needs Go, Java and Maven; and root, if a package of Debian is missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

omid_version=1.1.3
tools="${XDG_CACHE_HOME:-$HOME/.cache}/tribunal/tools"

missing=()
command -v redis-server >/dev/null || missing+=(redis-server)
[ -x /usr/lib/postgresql/15/bin/postgres ] || missing+=(postgresql-15)
command -v java >/dev/null || missing+=(default-jre-headless)
command -v mvn >/dev/null || missing+=(maven)
if [ "${#missing[@]}" -gt 0 ]; then
  if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "missing, and only root can install them: ${missing[*]}" >&2
    exit 1
  fi
  # The services are not to be started: the harness starts its own.
  policy=/usr/sbin/policy-rc.d
  had_policy=1
  [ -e "$policy" ] || had_policy=0
  if [ "$had_policy" -eq 0 ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
  fi
  apt-get update -qq >&2
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null >&2
  [ "$had_policy" -eq 1 ] || rm -f "$policy"
fi

# What etcd's module file says is what is built, so a change of it builds again.
stamp="$(cat etcd/go.mod etcd/go.sum etcd/main.go | cksum | tr ' ' -)"
etcd="$tools/etcd-$stamp/etcd"
if [ ! -x "$etcd" ]; then
  command -v go >/dev/null || { echo "etcd is built with Go, which is missing" >&2; exit 1; }
  (cd etcd && go build -o "$etcd" .) >&2
fi

omid="$tools/omid-$omid_version"
if [ ! -e "$omid/complete" ]; then
  mvn -q -B -f omid/pom.xml dependency:copy-dependencies "-Domid.version=$omid_version" \
    "-DoutputDirectory=$omid/lib" -DincludeScope=runtime </dev/null >&2
  touch "$omid/complete"
fi

echo "$etcd"
echo "$omid/lib"
