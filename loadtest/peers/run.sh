#!/usr/bin/env bash
# Measures Tribunal against Redis, PostgreSQL, etcd and Omid, side by side in one run, and prints Markdown.
#
#   bash loadtest/peers/run.sh                                 about 25 minutes after the builds
#   bash loadtest/peers/run.sh --rounds 1 --seconds 1 --rows 10000 --loads zipf    a quick look
#
# Arguments are those of `tribunal-peers run`. OUT is the folder for peers.json and the charts; TRIBUNAL names the
# binary (built if unset). Everything that is started listens on loopback, in a folder that is removed at the end.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}"
out="${OUT:-$CARGO_TARGET_DIR/peers}"
binaries=(--bin tribunal-peers)
[ -n "${TRIBUNAL:-}" ] || binaries+=(--bin tribunal)
cargo build --release --locked "${binaries[@]}" >&2
peers="$CARGO_TARGET_DIR/release/tribunal-peers"
mapfile -t installed < <(bash loadtest/peers/install.sh)
[ "${#installed[@]}" -eq 2 ] || { echo "the peers could not be installed" >&2; exit 1; }

mkdir -p "$out"
folder="$(mktemp -d "${TMPDIR:-/tmp}/tribunal-peers-XXXXXX")"
# PostgreSQL runs as a user of its own and has to get at its folder.
chmod 755 "$folder"
trap 'rm -rf "$folder"' EXIT

"$peers" run --tribunal "${TRIBUNAL:-$CARGO_TARGET_DIR/release/tribunal}" --etcd "${installed[0]}" \
  --omid "${installed[1]}" --data-dir "$folder" --out "$out/peers.json" "$@"
"$peers" report --from "$out/peers.json" --charts "$out/charts"
