#!/usr/bin/env bash
# Generates the wire layers of the clients (`wire/` in each) from openapi/openapi.json and openapi/openapi-3.0.json.
#
#   sdk/generate.sh           writes them; run it after every change of the API, and commit the result
#   sdk/generate.sh --check   changes nothing; fails, with the difference, if a wire layer is out of date
#
# Only what clients use is generated: operations with the tags below, and their schemas. The generators are pinned by
# lock files beside the clients and cached in $XDG_CACHE_HOME/tribunal/sdk. Needs node and npm, python3 with venv, and go.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
. ./tools.sh

tags=(transactions stores log)
fresh="$(mktemp -d)"
trap 'rm -rf "$fresh"' EXIT
specs="$fresh/specs"
mkdir "$specs"
for document in openapi.json openapi-3.0.json; do
  python3 prune.py "../openapi/$document" "${tags[@]}" >"$specs/$document"
done

# openapi-typescript
typescript() {
  local tools
  tools="$(npm_folder)"
  "$tools/node_modules/.bin/openapi-typescript" "$specs/openapi.json" --output "$1/schema.ts" >&2
}

# openapi-python-client. It omits what it cannot express (an NDJSON body), with a warning.
python() {
  local tools
  tools="$(python_folder generate)"
  PATH="$tools/bin:$PATH" "$tools/bin/python" -m openapi_python_client generate --path "$specs/openapi.json" --meta none \
    --config python/generator.yaml --output-path "$1" --overwrite >"$fresh/python.log" 2>&1 ||
    { cat "$fresh/python.log" >&2; return 1; }
}

# oapi-codegen. It reads 3.0 only.
golang() {
  local tools
  tools="$(go_folder)"
  (cd go && "$tools/bin/oapi-codegen" -config generator.yaml -o "$1/wire.gen.go" "$specs/openapi-3.0.json")
}

# usage: generated FUNCTION FOLDER: runs the function, and compares its output with the folder or puts it there
outdated=0
generated() {
  mkdir -p "$fresh/$1"
  "$1" "$fresh/$1"
  if [ "$check" = yes ]; then
    diff -ru "$2" "$fresh/$1" || { echo "sdk/$2 is out of date: run sdk/generate.sh and commit the result"; outdated=1; }
  else
    rm -rf "$2"
    mv "$fresh/$1" "$2"
  fi
}

case "${1:-}" in
  "") check=no ;;
  --check) check=yes ;;
  *) echo "usage: sdk/generate.sh [--check]" >&2; exit 2 ;;
esac
generated typescript typescript/src/wire
generated python python/src/tribunal_client/wire
generated golang go/wire
exit "$outdated"
