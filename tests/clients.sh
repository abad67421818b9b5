#!/usr/bin/env bash
# Tests a client of sdk/ against a live server: builds and lints it, starts a server of its own on a free port, runs the
# client's tests and the example of its README, the latter on a server that asks for a key as well, and stops the servers
# by their ids.
#
#   tests/clients.sh LANGUAGE...    typescript, python, go, rust
#
# TRIBUNAL names the server's binary (built if unset). Leaves nothing in the clone; tools are kept in
# $XDG_CACHE_HOME/tribunal/sdk.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

[ "$#" -gt 0 ] || { echo "usage: tests/clients.sh LANGUAGE..." >&2; exit 2; }
if [ "$#" -gt 1 ]; then
  for language in "$@"; do
    bash tests/clients.sh "$language"
  done
  exit
fi
# The Rust tests start servers themselves, so that `cargo test` alone runs them.
if [ "$1" = rust ]; then
  export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/tribunal/target}"
  cargo build --release --locked --bin tribunal
  TRIBUNAL_BIN="$CARGO_TARGET_DIR/release/tribunal" exec cargo test --release --locked -p tribunal-client
fi
if [ -z "${URL:-}" ]; then
  exec bash tests/with-server.sh bash tests/clients.sh "$1"
fi
export TRIBUNAL_URL="$URL"

. sdk/tools.sh
root="$PWD"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

# Runs the example of a README, here and on a server that asks for the key in TRIBUNAL_API_KEY.
moves() {
  local keyed=(env TRIBUNAL_SERVER_KEYED=1 bash "$root/tests/with-server.sh" bash -c 'TRIBUNAL_URL="$URL" exec "$@"' _)
  "$@" >"$work/readme.log" || { cat "$work/readme.log"; exit 1; }
  "${keyed[@]}" "$@" >"$work/readme-keyed.log" || { cat "$work/readme-keyed.log"; exit 1; }
  grep -q '^moved in epoch' "$work/readme.log"
  grep -q '^moved in epoch' "$work/readme-keyed.log"
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
    moves node dist/test/readme.js
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
    moves "$tools/bin/python" "$work/readme.py"
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
    go build -o "$work/example" ./readme
    moves "$work/example"
  )
}

"test_$1"
