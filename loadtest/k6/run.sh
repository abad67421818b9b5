#!/usr/bin/env bash
# Runs the k6 suite on a server of its own, which lives in a new folder on a free port and is stopped at the end.
#
#   bash loadtest/k6/run.sh                         about 75 seconds
#   RATE=300 SECONDS_EACH=30 bash loadtest/k6/run.sh
#
# Fails if a threshold is missed. TRIBUNAL names the binary (built if unset), OUT the folder for summary.json and
# report.html.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

k6="$(bash loadtest/k6/build.sh)"
if [ -z "${URL:-}" ]; then
  exec bash tests/with-server.sh bash loadtest/k6/run.sh
fi

out="${OUT:-${CARGO_TARGET_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/tribunal/target}/k6}"
mkdir -p "$out"
# k6 would otherwise report its use to its maker.
status=0
K6_NO_USAGE_REPORT=true "$k6" run --quiet --address "" \
  -e "URL=$URL" -e "OUT=$out" -e "RATE=${RATE:-100}" -e "SECONDS=${SECONDS_EACH:-6}" loadtest/k6/suite.js || status=$?
echo "report: $out/report.html"
exit "$status"
