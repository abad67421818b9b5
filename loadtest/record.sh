#!/usr/bin/env bash
# Measures everything that is measured, and writes table and charts into loadtest/RESULTS.md between its markers.
#
#   bash loadtest/record.sh --minutes 24       the whole set within so many minutes after the builds
#   bash loadtest/record.sh --only sweep-      only what has such a name; --list shows the names
#   bash loadtest/record.sh --benches          the core's own benchmark too, about three minutes more
#   bash loadtest/record.sh --report           only writes what has been measured so far
#
# Can be stopped and run again: what has been measured at this commit is not measured twice (--fresh does). Documents
# lie in $OUT, by default record/COMMIT in the target folder. What does not fit into the minutes is left for another
# run. Needs what loadtest/peers/install.sh installs. Nothing here fails for being slow; what could not be taken is
# named at the end, with the reason in NAME.log, and fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

minutes=24
only=""
report_only=0
list=0
fresh=0
benches=0
while [ $# -gt 0 ]; do
  case "$1" in
    --minutes) minutes="${2:?--minutes takes a number}"; shift ;;
    --only) only="${2:?--only takes the beginning of a name}"; shift ;;
    --report) report_only=1 ;;
    --benches) benches=1 ;;
    --list) list=1 ;;
    --fresh) fresh=1 ;;
    *) echo "unknown argument $1; the head of this file says what there is" >&2; exit 2 ;;
  esac
  shift
done

export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}"
commit="$(git rev-parse --short=10 HEAD)"
out="${OUT:-$CARGO_TARGET_DIR/record/$commit}"
tribunal="${TRIBUNAL:-$CARGO_TARGET_DIR/release/tribunal}"
bench="$CARGO_TARGET_DIR/release/tribunal-bench"
peers="$CARGO_TARGET_DIR/release/tribunal-peers"
[ "$fresh" -eq 0 ] || rm -rf "$out"
mkdir -p "$out"
failed=()
left=()
begun=$SECONDS

if [ "$list" -eq 0 ]; then
  binaries=(--bin tribunal-bench --bin tribunal-peers)
  [ -n "${TRIBUNAL:-}" ] || binaries+=(--bin tribunal)
  cargo build --release --locked "${binaries[@]}" >&2
  collector="$(bash tests/collector/build.sh)"
  [ "$benches" -eq 0 ] || cargo bench --locked --no-run -p tribunal-core -p tribunal-wasm --bench resolve >&2
fi
data="$(mktemp -d "${DATA_PARENT:-${TMPDIR:-/tmp}}/tribunal-record-XXXXXX")"
chmod 755 "$data" # PostgreSQL runs as a user of its own and has to get at its folder.
trap 'rm -rf "$data"' EXIT
etcd=""
omid=""
collector="${collector:-}"

# A turn's seconds, from the minutes: the whole set takes about 420 s for starting servers, writing rows and waiting between
# turns, and 350 times a turn. With --minutes 24 a turn takes 2.9 s. What does not fit, on a slower machine, is left for
# another run.
seconds="$(awk -v m="$minutes" 'BEGIN { s = (m * 60 - 420) / 350; printf "%.2f", (s < 0.3 ? 0.3 : s) }')"
warmup="$(awk -v s="$seconds" 'BEGIN { w = s / 5; printf "%.2f", (w > 1 ? 1 : w) }')"

# Runs one measurement, which prints JSON (or plain text, if its name begins so), unless its document is there.
measure() {
  local name="$1" kind=json
  shift
  case "$name" in text-*) kind=txt ;; esac
  case "$name" in "$only"*) ;; *) return 0 ;; esac
  if [ "$list" -eq 1 ]; then echo "$name"; return 0; fi
  [ ! -e "$out/$name.$kind" ] || return 0
  if [ $((SECONDS - begun)) -ge $((minutes * 60)) ]; then
    left+=("$name")
    return 0
  fi
  local start=$SECONDS
  if "$@" >"$out/$name.part" 2>"$out/$name.log"; then
    mv "$out/$name.part" "$out/$name.$kind"
    echo "$name: $((SECONDS - start)) s" >&2
  else
    failed+=("$name")
    echo "$name FAILED: $(tail -n 1 "$out/$name.log")" >&2
  fi
}

bench() { "$bench" "$@" --json --spawn "$tribunal" --data-dir "$data" --seconds "$seconds" --warmup "$warmup"; }
log_only=(--store log --declare)
batches=(--connections 8 --batch 200)

run_peers() {
  "$peers" run --tribunal "$tribunal" --etcd "$etcd" --omid "$omid" --data-dir "$data" --rounds 3 \
    --seconds "$seconds" --warmup "$warmup" --out "$out/peers.figures"
  cat "$out/peers.figures"
}

all() {
  if [ "$benches" -eq 1 ]; then
    measure text-core cargo bench --locked -p tribunal-core --bench resolve -- --report
    measure text-core-wasm cargo bench --locked -p tribunal-wasm --bench resolve
  fi
  measure peers run_peers
  measure compare-commit-constant-zipf bench compare --rounds 5
  measure compare-wasm-native-batches bench policies --batched --rounds 3 "${batches[@]}" "${log_only[@]}"
  measure compare-wasm-native-single bench policies --rounds 3
  measure compare-telemetry-single bench telemetry --rounds 3 --collector "$collector"
  measure load-batch-uniform-log-only bench batch "${batches[@]}" "${log_only[@]}" --zipf 0
  measure load-batch-zipf-log-only bench batch "${batches[@]}" "${log_only[@]}"
  measure load-batch-uniform-pushed bench batch "${batches[@]}" --zipf 0
  measure load-ycsb-a bench commit --workload ycsb-a --rows 100000
  measure load-ycsb-b bench commit --workload ycsb-b --rows 100000
  measure load-bank bench commit --workload bank --rows 100000
  measure load-hot bench commit --workload hot
  measure load-open-8000 bench commit --rate 8000 --rows 100000
  measure idle bench idle --rows 10000 --samples 300
  measure space-single bench space --reads 0 --writes 10 --zipf 0 --rows 100000
  measure space-batches bench space --batched "${batches[@]}" --reads 0 --writes 10 --zipf 0 --rows 100000
  measure sweep-operations bench sweep --axis ops --values 1,2,5,10,20,50 --zipf 0
  measure sweep-rows bench sweep --axis rows --values 1000,10000,100000,1000000,10000000 --zipf 0 "${log_only[@]}"
  measure sweep-clients bench sweep --axis connections --values 1,4,16,64,256,1024,4096
  measure sweep-batch bench sweep --axis batch --connections 8 --values 1,10,100,1000 --zipf 0 "${log_only[@]}"
  measure sweep-epoch bench sweep --axis epoch --connections 512 --rows 100000 --values adaptive,1,2,5,10,20,50,100,200
  measure sweep-zipf bench sweep --axis zipf --values 0,0.5,0.7,0.8,0.9,0.99
  measure sweep-isolation bench sweep --axis isolation \
    --values read-committed,repeatable-read,snapshot,serializable
  measure sweep-rule bench sweep --axis rule --rows 100000 \
    --values first-writer-wins,shorter-txn-wins,fair-rotation,priority
  measure sweep-long bench sweep --axis long --values 0,20,100
}

# Prints what stands between the markers.
markdown() {
  echo "Measured $(date -u '+%Y-%m-%d %H:%M') UTC at commit $commit with \`bash loadtest/record.sh --minutes $minutes\`:" \
    "turns of $seconds s after $warmup s of warm-up. Server and client share the machine's cores."
  echo "$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores," \
    "$(($(sed -n 's/^MemTotal: *\([0-9]*\) kB/\1/p' /proc/meminfo) / 1024)) MiB, Linux $(uname -r), $(rustc --version)."
  echo
  if [ -e "$out/peers.json" ]; then
    echo "### Against its peers"
    echo
    "$peers" report --from "$out/peers.json" --charts loadtest/charts
    echo "![Goodput of Tribunal and its peers](charts/peers.svg)"
    echo
    echo "![Goodput of Tribunal and Omid](charts/peers-oracle.svg)"
    echo
  fi
  # The peers' document is another kind.
  mkdir -p "$out/others"
  rm -f "$out"/others/*.json
  find "$out" -maxdepth 1 -name '*.json' ! -name peers.json -exec ln -s -t "$out/others" {} +
  local text
  for text in "$out"/text-*.txt; do
    [ -e "$text" ] || continue
    printf '### %s\n\n```text\n' "$(basename "$text" .txt)"
    grep -vE '^(Benchmarking|Found|running|test |$)|^ +[0-9]+ \([0-9.]+%\) |change:|Performance has|No change|Change within|thresholds' "$text" || true
    printf '```\n\n'
  done
  "$bench" record --results "$out/others" --charts loadtest/charts --link charts
}

if [ "$list" -eq 1 ]; then all; exit 0; fi
if [ "$report_only" -eq 0 ]; then
  case peers in "$only"*)
    mapfile -t installed < <(bash loadtest/peers/install.sh)
    [ "${#installed[@]}" -eq 2 ] || { echo "the peers could not be installed" >&2; exit 1; }
    etcd="${installed[0]}"
    omid="${installed[1]}" ;;
  esac
  echo "load $(cut -d' ' -f1-3 /proc/loadavg); $seconds s a turn; documents in $out" >&2
  begun=$SECONDS
  all
  echo "all of it: $((SECONDS - begun)) s" >&2
fi

results=loadtest/RESULTS.md
markdown >"$data/measured.md"
awk -v from="$data/measured.md" '
  /^<!-- measured: begin/ { print; print ""; while ((getline line < from) > 0) print line; skip = 1 }
  /^<!-- measured: end/ { skip = 0 }
  !skip { print }
' "$results" >"$data/results.md"
cp "$data/results.md" "$results"
echo "written: $results, loadtest/charts" >&2
[ "${#left[@]}" -eq 0 ] || echo "left for another run, for lack of time: ${left[*]}" >&2
[ "${#failed[@]}" -eq 0 ] || { echo "could not be taken: ${failed[*]}" >&2; exit 1; }
