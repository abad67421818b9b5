#!/usr/bin/env bash
# Tests a client of sdk/ against a live server: builds and lints it, runs its tests, then packs it as users get it,
# installs the package elsewhere and runs the example of its README there, also on a server that requires a key.
#
#   tests/clients.sh LANGUAGE...    typescript, python, go, rust
#
# TRIBUNAL names the server's binary (built if unset). The script leaves nothing in the clone; tools are cached in
# $XDG_CACHE_HOME/tribunal/sdk. Servers are started on free ports and stopped by their ids.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

[ "$#" -gt 0 ] || { echo "usage: tests/clients.sh LANGUAGE..." >&2; exit 2; }
if [ "$#" -gt 1 ]; then
  for language in "$@"; do
    bash tests/clients.sh "$language"
  done
  exit
fi
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/tribunal/target}"
# The Rust tests start servers themselves, so that `cargo test` alone runs them.
if [ "$1" = rust ] && [ -z "${URL:-}" ]; then
  if [ -z "${TRIBUNAL:-}" ]; then
    cargo build --release --locked --bin tribunal
    export TRIBUNAL="$CARGO_TARGET_DIR/release/tribunal"
    profile=(--release)
  fi
  TRIBUNAL_BIN="$TRIBUNAL" cargo test "${profile[@]}" --locked -p tribunal-client
fi
if [ -z "${URL:-}" ]; then
  exec bash tests/with-server.sh bash tests/clients.sh "$1"
fi
export TRIBUNAL_URL="$URL"

. sdk/tools.sh
root="$PWD"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

# Runs the example of a README, here and on a server that requires the key in TRIBUNAL_API_KEY.
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

# Fails if a package lacks a file. usage: contains LISTING FILE...
contains() {
  local listing="$1" file
  shift
  for file in "$@"; do
    grep -qE "(^|/)$file\$" "$listing" || { echo "the package lacks $file:"; cat "$listing"; exit 1; }
  done
}

test_typescript() {
  local tools here="$work/typescript" elsewhere="$work/elsewhere"
  tools="$(npm_folder)"
  cp -R sdk/typescript "$here"
  ln -s "$tools/node_modules" "$here/node_modules"
  (
    cd "$here"
    node_modules/.bin/tsc
    node_modules/.bin/eslint src test
    node --test --test-reporter=spec build/test/*.test.js
    rm -rf build dist
    npm pack --silent --pack-destination "$work" >/dev/null
  )
  tar -tzf "$work"/tribunal-client-*.tgz >"$work/listing"
  contains "$work/listing" dist/index.js dist/index.d.ts dist/wire/schema.d.ts README.md LICENSE
  mkdir "$elsewhere"
  (
    cd "$elsewhere"
    npm init --yes >/dev/null
    npm pkg set type=module >/dev/null
    npm install --no-audit --no-fund --loglevel=error "$work"/tribunal-client-*.tgz
    example "$root/sdk/typescript/README.md" ts >readme.ts
    mkdir node_modules/@types
    ln -s "$tools/node_modules/@types/node" node_modules/@types/node
    ln -s "$tools/node_modules/undici-types" node_modules/undici-types
    "$tools/node_modules/.bin/tsc" --strict --exactOptionalPropertyTypes --target ES2022 --module NodeNext --types node readme.ts
    moves node readme.js
  )
}

test_python() {
  local tools builder here="$work/python" package
  tools="$(python_folder develop)"
  builder="$(python_folder package)"
  cp -R sdk/python "$here"
  example "$here/README.md" python >"$work/readme.py"
  (
    cd "$here"
    export PYTHONPATH=src PYTHONDONTWRITEBYTECODE=1
    "$tools/bin/ruff" check --no-cache --quiet .
    "$tools/bin/ruff" format --no-cache --check --quiet .
    "$tools/bin/python" -m mypy --cache-dir "$work/mypy" src tests
    "$tools/bin/python" -m mypy --cache-dir "$work/mypy" "$work/readme.py"
    "$tools/bin/python" -m pytest
  )
  "$builder/bin/python" -m build --no-isolation --outdir "$work/dist" "$here" >"$work/build.log" 2>&1 ||
    { cat "$work/build.log"; exit 1; }
  python3 -m zipfile --list "$work"/dist/*.whl | awk '{ print $1 }' >"$work/listing"
  contains "$work/listing" tribunal_client/py.typed tribunal_client/aio.py tribunal_client/wire/models/problem.py \
    METADATA LICENSE
  for package in "$work"/dist/*.whl "$work"/dist/*.tar.gz; do
    rm -rf "$work/venv"
    python3 -m venv "$work/venv"
    "$work/venv/bin/pip" install --quiet --disable-pip-version-check "$package"
    (cd "$work" && moves venv/bin/python readme.py)
  done
}

test_go() {
  local here="$work/go" elsewhere="$work/elsewhere" module version=v0.1.0
  cp -R sdk/go "$here"
  (
    cd "$here"
    export GOFLAGS=-mod=readonly
    unformatted="$(gofmt -l .)"
    [ -z "$unformatted" ] || { echo "gofmt: $unformatted"; exit 1; }
    go vet ./...
    # -race needs a C compiler, which the build of the server needs, too.
    CGO_ENABLED=1 go test -race -count=1 -timeout 600s ./...
  )
  # A module proxy in a folder: the module as `go get` downloads it.
  module="$(cd "$here" && go list -m)"
  python3 - "$here" "$work/proxy" "$module" "$version" <<'PYTHON'
import json, pathlib, sys, zipfile
source, proxy, module, version = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3], sys.argv[4]
folder = proxy / module / "@v"
folder.mkdir(parents=True)
(folder / "list").write_text(version + "\n")
(folder / f"{version}.info").write_text(json.dumps({"Version": version}))
(folder / f"{version}.mod").write_text((source / "go.mod").read_text())
with zipfile.ZipFile(folder / f"{version}.zip", "w") as archive:
    for file in sorted(path for path in source.rglob("*") if path.is_file()):
        archive.write(file, f"{module}@{version}/{file.relative_to(source)}")
PYTHON
  mkdir "$elsewhere"
  example sdk/go/README.md go >"$elsewhere/main.go"
  (
    cd "$elsewhere"
    # In a module cache of its own, so that another state of the module under the same version is not taken.
    export GOFLAGS=-mod=mod GONOSUMDB="$module" GOMODCACHE="$work/modules"
    GOPROXY="file://$work/proxy,file://${HOME}/go/pkg/mod/cache/download,$(go env GOPROXY)"
    export GOPROXY
    go mod init example.com/elsewhere 2>/dev/null
    go get "$module@$version" 2>"$work/get.log" || { cat "$work/get.log"; exit 1; }
    go build -o "$work/example" .
    chmod -R u+w "$GOMODCACHE"
    moves "$work/example"
  )
}

test_rust() {
  local elsewhere="$work/elsewhere" crates=(tribunal-types tribunal-api tribunal-client) crate
  cargo package --quiet --locked --no-verify --allow-dirty --target-dir "$work/package" "${crates[@]/#/--package=}"
  for crate in "${crates[@]}"; do
    tar -xzf "$work/package/package/$crate-"*.crate -C "$work"
  done
  ls "$work"/tribunal-client-*/ >"$work/listing"
  contains "$work/listing" README.md LICENSE Cargo.toml
  mkdir -p "$elsewhere/src"
  cp Cargo.lock "$elsewhere"
  example sdk/rust/README.md rust >"$elsewhere/src/main.rs"
  {
    printf '[package]\nname = "elsewhere"\nversion = "0.1.0"\nedition = "2024"\n[dependencies]\n'
    printf 'tribunal-client = "0.1"\nserde_json = "1"\ntokio = { version = "1", features = ["macros", "rt"] }\n'
    # Stands for the registry, where these crates are not.
    printf '[patch.crates-io]\n'
    for crate in "${crates[@]}"; do
      printf '%s = { path = "%s" }\n' "$crate" "$(echo "$work/$crate-"*/)"
    done
  } >"$elsewhere/Cargo.toml"
  (cd "$elsewhere" && cargo build --quiet && moves "$CARGO_TARGET_DIR/debug/elsewhere")
}

"test_$1"
