#!/usr/bin/env bash
# Builds the OpenTelemetry Collector that the telemetry test sends to, with the two components that it needs, from the Go
# module proxy into the folder of tools, unless it is there, and prints its path.
#
#   bash tests/collector/build.sh
#
# Needs Go 1.23, and about two minutes of CPU once. The folder is $XDG_CACHE_HOME/tribunal/tools (or ~/.cache/...).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

tools="${XDG_CACHE_HOME:-$HOME/.cache}/tribunal/tools"
wanted="$(cat main.go go.mod go.sum | cksum | cut -d' ' -f1)"
collector="$tools/bin/otel-collector-$wanted"
mkdir -p "$tools/bin"
# Two tests may want it at the same time.
exec 9>"$tools/otel-collector.lock"
flock 9
if [ ! -x "$collector" ]; then
  command -v go >/dev/null || { echo "the collector is built with Go, which is missing (Debian: apt-get install golang-go)" >&2; exit 1; }
  GOFLAGS=-mod=readonly go build -trimpath -ldflags "-s -w" -o "$collector.new" . >&2
  mv "$collector.new" "$collector"
fi
echo "$collector"
