#!/usr/bin/env bash
# Builds the pinned k6 from the Go module proxy into the folder of tools, unless it is there, and prints its path.
#
#   bash loadtest/k6/build.sh
#
# Needs Go. The folder is $XDG_CACHE_HOME/tribunal/tools (or ~/.cache/...), outside the clone.
set -euo pipefail

version=v1.8.1
tools="${XDG_CACHE_HOME:-$HOME/.cache}/tribunal/tools"
k6="$tools/bin/k6"
if [ "$("$k6" version 2>/dev/null | cut -d' ' -f2)" != "$version" ]; then
  command -v go >/dev/null || { echo "k6 is built with Go, which is missing (Debian: apt-get install golang-go)" >&2; exit 1; }
  GOBIN="$tools/bin" GOFLAGS=-mod=mod go install "go.k6.io/k6@$version" >&2
fi
echo "$k6"
