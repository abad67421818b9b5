# The pinned tools of the clients, installed on demand into folders outside the clone; sourced, not run.
#
# Each function prints where its tool is. A folder is named after what pins its content, so that a change of a pin
# installs again, and different clones do not disturb each other.

sdk="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
sdk_cache="${XDG_CACHE_HOME:-$HOME/.cache}/tribunal/sdk"

# Installs into a fresh folder and moves it to its name at the end: a half-installed folder is never found.
# usage: installed NAME PIN-FILES... -- COMMAND (run in the fresh folder)
installed() {
  local name="$1" pins=() folder fresh
  shift
  while [ "$1" != -- ]; do pins+=("$1"); shift; done
  shift
  folder="$sdk_cache/$name-$(cat "${pins[@]}" | sha256sum | cut -c1-16)"
  if [ ! -e "$folder" ]; then
    mkdir -p "$sdk_cache"
    fresh="$(mktemp -d "$sdk_cache/$name-XXXXXX.part")"
    (cd "$fresh" && "$@") >&2 || { rm -rf "$fresh"; return 1; }
    mv -T "$fresh" "$folder" 2>/dev/null || { rm -rf "$fresh"; [ -e "$folder" ]; }
  fi
  echo "$folder"
}

# node_modules of the TypeScript client, with openapi-typescript, tsc and eslint.
npm_folder() {
  installed npm "$sdk/typescript/package.json" "$sdk/typescript/package-lock.json" -- \
    bash -c "cp '$sdk/typescript/package.json' '$sdk/typescript/package-lock.json' . && npm ci --no-audit --no-fund --loglevel=error"
}

# A virtual environment with what a requirements file of the Python client pins, by name of the file.
python_folder() {
  local requirements="$sdk/python/requirements/$1.txt"
  installed "python-$1" "$requirements" -- bash -c \
    "python3 -m venv --copies . && bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r '$requirements'"
}

# The folder that has bin/oapi-codegen.
go_folder() {
  installed go "$sdk/go/oapi-codegen.version" -- bash -c \
    "GOBIN=\"\$PWD/bin\" go install 'github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@$(cat "$sdk/go/oapi-codegen.version")'"
}
