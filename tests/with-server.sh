#!/usr/bin/env bash
# Runs a command against a server of its own: `tests/with-server.sh COMMAND...` finds the server's address in $URL.
#
# The server is `tribunal dev` on a free port of loopback, with a new folder. It is stopped by its process id and its
# folder removed, however the command ends. Fails as the command fails, or if the server stopped by itself.
#
# TRIBUNAL names the binary (built if unset). TRIBUNAL_SERVER_ARGS holds further arguments for it.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

if [ -z "${TRIBUNAL:-}" ]; then
  export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/tribunal/target}"
  (cd "$root" && cargo build --release --locked --bin tribunal >&2)
  export TRIBUNAL="$CARGO_TARGET_DIR/release/tribunal"
fi

folder="$(mktemp -d "${TMPDIR:-/tmp}/tribunal-server-XXXXXX")"
read -ra arguments <<<"${TRIBUNAL_SERVER_ARGS:-}"
"$TRIBUNAL" dev --listen 127.0.0.1:0 --data "$folder/data" "${arguments[@]}" >"$folder/stdout" 2>"$folder/stderr" &
server=$!
stop() {
  kill "$server" 2>/dev/null || true
  wait "$server" 2>/dev/null || true
  rm -rf "$folder"
}
trap stop EXIT

URL=""
for _ in $(seq 600); do
  URL="$(sed -n 's/.*listens on \(http[^ ]*\).*/\1/p' "$folder/stdout")"
  [ -n "$URL" ] && curl -fs "$URL/readyz" >/dev/null && curl -fs "$URL/v1/stores/kv" >/dev/null && break
  kill -0 "$server" 2>/dev/null || { cat "$folder/stderr" >&2; echo "the server stopped before it was ready" >&2; exit 1; }
  sleep 0.1
done
export URL

status=0
"$@" || status=$?
kill -0 "$server" 2>/dev/null || { tail -n 40 "$folder/stderr" >&2; echo "the server stopped while it was in use" >&2; status=1; }
exit "$status"
