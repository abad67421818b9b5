#!/usr/bin/env bash
# Runs a command against a server of its own: `tests/with-server.sh COMMAND...` finds the server's address in $URL.
#
# The server is `tribunal dev` on a free port of loopback, with a new folder. It is stopped by its process id and its
# folder removed, however the command ends. Fails as the command fails, or if the server stopped by itself.
#
# TRIBUNAL names the binary (built if unset). TRIBUNAL_SERVER_ARGS holds further arguments for it. With
# TRIBUNAL_SERVER_KEYED the server is `tribunal serve`, which asks for keys; an engine's is in $TRIBUNAL_API_KEY.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

if [ -z "${TRIBUNAL:-}" ]; then
  export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/tribunal/target}"
  (cd "$root" && cargo build --release --locked --bin tribunal >&2)
  export TRIBUNAL="$CARGO_TARGET_DIR/release/tribunal"
fi

folder="$(mktemp -d "${TMPDIR:-/tmp}/tribunal-server-XXXXXX")"
read -ra arguments <<<"${TRIBUNAL_SERVER_ARGS:-}"
command=(dev --listen 127.0.0.1:0 --data "$folder/data")
if [ -n "${TRIBUNAL_SERVER_KEYED:-}" ]; then
  printf 'listen = "127.0.0.1:0"\ndata = "%s"\n[auth]\nrequired = true\n' "$folder/data" >"$folder/tribunal.toml"
  command=(serve --config "$folder/tribunal.toml")
fi
unset TRIBUNAL_API_KEY
: >"$folder/stdout" # The server may start later than the loop that reads it.
"$TRIBUNAL" "${command[@]}" "${arguments[@]}" >"$folder/stdout" 2>"$folder/stderr" &
server=$!
stop() {
  kill "$server" 2>/dev/null || true
  wait "$server" 2>/dev/null || true
  rm -rf "$folder"
}
trap stop EXIT

# Tells whether the server is ready. One that asks for keys has no store yet: makes it, and a key for its user.
is_ready() {
  curl -fs "$URL/readyz" >/dev/null || return 1
  if [ -z "${TRIBUNAL_SERVER_KEYED:-}" ]; then
    curl -fs "$URL/v1/stores/kv" >/dev/null
    return
  fi
  local operator="$folder/data/operator.key"
  curl -fs -X PUT "$URL/v1/stores/kv" -d '{"adaptor": "kv"}' -H 'content-type: application/json' \
    -H "authorization: Bearer $(cat "$operator")" >/dev/null || return 1
  TRIBUNAL_API_KEY="$("$TRIBUNAL" key create --url "$URL" --api-key-file "$operator" --name user --role engine \
    2>>"$folder/stderr")" && export TRIBUNAL_API_KEY
}

URL=""
for _ in $(seq 600); do
  URL="$(sed -n 's/.*listens on \(http[^ ]*\).*/\1/p' "$folder/stdout")"
  [ -n "$URL" ] && is_ready && break
  kill -0 "$server" 2>/dev/null || { cat "$folder/stderr" >&2; echo "the server stopped before it was ready" >&2; exit 1; }
  sleep 0.1
done
export URL

status=0
"$@" || status=$?
kill -0 "$server" 2>/dev/null || { tail -n 40 "$folder/stderr" >&2; echo "the server stopped while it was in use" >&2; status=1; }
exit "$status"
