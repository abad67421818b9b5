#!/usr/bin/env bash
# Measures everything that is measured and prints Markdown, with the machine, its load and the commit.
#
#   bash loadtest/record.sh >measured.md
#
# Takes about 25 minutes on two quiet cores after the build. `SECONDS_EACH=3 bash loadtest/record.sh` is a quick look.
# Nothing here fails for being slow; a figure that could not be taken says why.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}"
seconds="${SECONDS_EACH:-10}"
rounds="${ROUNDS:-5}"
data="$(mktemp -d "${DATA_PARENT:-${TMPDIR:-/tmp}}/tribunal-record-XXXXXX")"
trap 'rm -rf "$data"' EXIT

cargo build --release --locked --bin tribunal --bin tribunal-bench >&2
tribunal="$CARGO_TARGET_DIR/release/tribunal"
bench=("$CARGO_TARGET_DIR/release/tribunal-bench")
spawn=(--spawn "$tribunal" --data-dir "$data" --seconds "$seconds")

# Prints a heading, the command as a reader would type it, and what it says.
measure() {
  local title="$1"
  shift
  echo
  echo "## $title"
  echo
  echo '```text'
  echo "\$ $(basename "$1") ${*:2}" | sed "s#$CARGO_TARGET_DIR/release/##g; s#$data#DIR#g"
  "$@" 2>&1 | sed "s#$data#DIR#g" || echo "(failed)"
  echo '```'
}

# Criterion's figures without its remarks on earlier runs.
criterion() {
  cargo bench --locked -p "$1" 2>/dev/null |
    grep -vE '^(Benchmarking|Found|running|test |test result|$)|^ +[0-9]+ \([0-9.]+%\) |change:|Performance has|No change|Change within|thresholds' ||
    echo "(no figures)"
}

echo "# Measured $(date -u '+%Y-%m-%d %H:%M') UTC"
echo
echo "Machine: $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores," \
  "$(($(sed -n 's/^MemTotal: *\([0-9]*\) kB/\1/p' /proc/meminfo) / 1024)) MiB, Linux $(uname -r)," \
  "load $(cut -d' ' -f1-3 /proc/loadavg) at the start."
echo "Commit: $(git rev-parse --short=10 HEAD)$(git diff --quiet HEAD -- || echo ' with local changes'). $(rustc --version)."

measure "Resolver" criterion tribunal-core
measure "Policies in Wasm" criterion tribunal-wasm
measure "Durable log" criterion tribunal-log
measure "Embedded store" criterion tribunal-push
measure "Single-request commit against the constant route, Zipf 0.9" \
  "${bench[@]}" compare "${spawn[@]}" --rounds "$rounds"
measure "Single-request commit against the constant route, uniform" \
  "${bench[@]}" compare "${spawn[@]}" --rounds "$rounds" --zipf 0
measure "Batch commit, Zipf 0.9" "${bench[@]}" batch "${spawn[@]}" --connections 8 --batch 200
measure "Batch commit, uniform" "${bench[@]}" batch "${spawn[@]}" --connections 8 --batch 200 --zipf 0
measure "Wasm policies against native ones, batches" \
  "${bench[@]}" policies "${spawn[@]}" --batched --connections 8 --batch 200 --rounds "$rounds"
measure "Wasm policies against native ones, single commits" "${bench[@]}" policies "${spawn[@]}" --rounds "$rounds"
measure "Idle commit against fdatasync" "${bench[@]}" idle "${spawn[@]}" --rows 10000
measure "Bytes and syncs, ten writes, single commits" \
  "${bench[@]}" space "${spawn[@]}" --reads 0 --writes 10 --zipf 0
measure "Bytes and syncs, ten writes, batches" \
  "${bench[@]}" space "${spawn[@]}" --batched --connections 8 --batch 200 --reads 0 --writes 10 --zipf 0
for isolation in read-committed repeatable-read snapshot; do
  measure "Batch commit at $isolation, Zipf 0.9" \
    "${bench[@]}" batch "${spawn[@]}" --connections 8 --batch 200 --isolation "$isolation"
done
for workload in ycsb-a ycsb-b bank hot; do
  measure "Single-request commit, $workload" "${bench[@]}" commit "${spawn[@]}" --workload "$workload"
done
measure "Open loop at half of what closed loop reached" \
  "${bench[@]}" commit "${spawn[@]}" --rate "${OPEN_RATE:-8000}"
measure "Cost over operations" "${bench[@]}" sweep "${spawn[@]}" --axis ops --values 1,2,5,10,20,50
measure "Cost over stored rows" "${bench[@]}" sweep "${spawn[@]}" --axis rows --values 10000,100000,1000000 --zipf 0
measure "Cost over connections" "${bench[@]}" sweep "${spawn[@]}" --axis connections --values 1,4,16,64,128,256
measure "Cost over batch size" \
  "${bench[@]}" sweep "${spawn[@]}" --axis batch --connections 8 --values 1,10,100,500
