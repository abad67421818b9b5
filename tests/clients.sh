#!/usr/bin/env bash
# Tests a client of sdk/ against a live server: builds and lints it, starts a server of its own on a free port, runs the
# client's tests and the example of its README, and stops the server by its id.
#
#   tests/clients.sh LANGUAGE...    typescript, python, go, rust
#
# Needs a server binary: $TRIBUNAL_BIN, or the release build. Leaves nothing in the clone; tools are kept in
# $XDG_CACHE_HOME/tribunal/sdk.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. sdk/tools.sh

target="${CARGO_TARGET_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/tribunal/target}"
binary="${TRIBUNAL_BIN:-$target/release/tribunal}"
[ -x "$binary" ] || { echo "no server at $binary: cargo build --release --locked --bin tribunal" >&2; exit 1; }

work="$(mktemp -d)"
server=
stop_server() {
  [ -n "$server" ] || return 0
  kill "$server" 2>/dev/null || true
  wait "$server" 2>/dev/null || true
  server=
}
trap 'stop_server; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

# Starts a server with an empty store and sets TRIBUNAL_URL.
start_server() {
  : >"$work/server-$1.log"
  "$binary" dev --listen 127.0.0.1:0 --data "$work/data-$1" >"$work/server-$1.log" 2>&1 &
  server=$!
  local waited
  for ((waited = 0; waited < 600; waited++)); do
    TRIBUNAL_URL="$(sed -n 's/^tribunal listens on //p' "$work/server-$1.log")"
    export TRIBUNAL_URL
    [ -z "$TRIBUNAL_URL" ] || return 0
    kill -0 "$server" 2>/dev/null || break
    sleep 0.1
  done
  cat "$work/server-$1.log" >&2
  echo "the server did not start" >&2
  return 1
}

# Prints the first code block of a README with the given tag.
example() {
  awk -v open="\`\`\`$2" '$0 == open { on = 1; next } /^```/ && on { exit } on' "$1"
}

test_typescript() {
  local tools here="$work/typescript"
  tools="$(npm_folder)"
  cp -R sdk/typescript "$here"
  ln -s "$tools/node_modules" "$here/node_modules"
  # The example imports the package by its name, as users do.
  example "$here/README.md" ts >"$here/test/readme.ts"
  (
    cd "$here"
    node_modules/.bin/tsc
    node_modules/.bin/eslint src test
    node --test --test-reporter=spec dist/test/*.test.js
    node dist/test/readme.js >"$work/readme.log" || { cat "$work/readme.log"; exit 1; }
    grep -q '^moved in epoch' "$work/readme.log"
  )
}

test_python() {
  local tools here="$work/python"
  tools="$(python_folder develop)"
  cp -R sdk/python "$here"
  (
    cd "$here"
    export PYTHONPATH=src PYTHONDONTWRITEBYTECODE=1
    "$tools/bin/ruff" check --no-cache --quiet .
    "$tools/bin/ruff" format --no-cache --check --quiet .
    "$tools/bin/python" -m mypy --cache-dir "$work/mypy" src tests
    example README.md python >"$work/readme.py"
    "$tools/bin/python" -m mypy --cache-dir "$work/mypy" "$work/readme.py"
    "$tools/bin/python" -m pytest
    "$tools/bin/python" "$work/readme.py" >"$work/readme.log" || { cat "$work/readme.log"; exit 1; }
    grep -q '^moved in epoch' "$work/readme.log"
  )
}

test_go() {
  local here="$work/go"
  cp -R sdk/go "$here"
  mkdir "$here/readme"
  example "$here/README.md" go >"$here/readme/main.go"
  (
    cd "$here"
    export GOFLAGS=-mod=readonly
    unformatted="$(gofmt -l .)"
    [ -z "$unformatted" ] || { echo "gofmt: $unformatted"; exit 1; }
    go vet ./...
    # -race needs a C compiler, which the build of the server needs, too.
    CGO_ENABLED=1 go test -race -count=1 -timeout 300s ./...
    go run ./readme >"$work/readme.log" || { cat "$work/readme.log"; exit 1; }
    grep -q '^moved in epoch' "$work/readme.log"
  )
}

test_rust() {
  local binary_path
  binary_path="$(realpath "$binary")"
  TRIBUNAL_BIN="$binary_path" CARGO_TARGET_DIR="$target" cargo test --release --locked -p tribunal-client
}

[ "$#" -gt 0 ] || { echo "usage: tests/clients.sh LANGUAGE..." >&2; exit 2; }
for language in "$@"; do
  # The Rust tests start servers themselves, so that `cargo test` alone runs them.
  [ "$language" = rust ] || start_server "$language"
  "test_$language"
  stop_server
done
