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

export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}"
out="${OUT:-$CARGO_TARGET_DIR/k6}"
k6="$(bash loadtest/k6/build.sh)"
if [ -z "${TRIBUNAL:-}" ]; then
  cargo build --release --locked --bin tribunal >&2
  TRIBUNAL="$CARGO_TARGET_DIR/release/tribunal"
fi

mkdir -p "$out"
folder="$(mktemp -d "${TMPDIR:-/tmp}/tribunal-k6-XXXXXX")"
"$TRIBUNAL" dev --listen 127.0.0.1:0 --data "$folder/data" >"$folder/stdout" 2>"$folder/stderr" &
server=$!
stop() {
  kill "$server" 2>/dev/null || true
  wait "$server" 2>/dev/null || true
  rm -rf "$folder"
}
trap stop EXIT

url=""
for _ in $(seq 600); do
  url="$(sed -n 's/.*listens on \(http[^ ]*\).*/\1/p' "$folder/stdout")"
  [ -n "$url" ] && curl -fs "$url/readyz" >/dev/null && curl -fs "$url/v1/stores/kv" >/dev/null && break
  kill -0 "$server" 2>/dev/null || { cat "$folder/stderr" >&2; echo "the server stopped before it was ready" >&2; exit 1; }
  sleep 0.1
done

status=0
# k6 would otherwise report its use to its maker.
K6_NO_USAGE_REPORT=true "$k6" run --quiet --address "" \
  -e "URL=$url" -e "OUT=$out" -e "RATE=${RATE:-100}" -e "SECONDS=${SECONDS_EACH:-6}" loadtest/k6/suite.js || status=$?
kill -0 "$server" 2>/dev/null || { cat "$folder/stderr" >&2; echo "the server stopped under load" >&2; status=1; }
echo "report: $out/report.html"
exit "$status"
