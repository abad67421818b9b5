#!/usr/bin/env bash
# Sends requests made from the OpenAPI document, good and bad ones, and checks each answer against the document.
#
#   bash tests/schemathesis/run.sh                    a short run
#   EXAMPLES=200 bash tests/schemathesis/run.sh       a long one
#
# Needs python3 with venv. The tool is installed once, outside the clone.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

if [ -z "${URL:-}" ]; then
  exec bash "$here/../with-server.sh" bash "${BASH_SOURCE[0]}"
fi

version=4.32.5
tool="${XDG_CACHE_HOME:-$HOME/.cache}/tribunal/tools/schemathesis-$version"
if [ ! -x "$tool/bin/schemathesis" ]; then
  python3 -m venv "$tool" && "$tool/bin/pip" install --quiet --disable-pip-version-check "schemathesis==$version" ||
    { rm -rf "$tool"; exit 1; }
fi

# It keeps its findings where it runs: not in the clone.
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cp "$here/hooks.py" "$here/schemathesis.toml" "$work"
cd "$work"
# Not its walks over several operations: histories are the golden and model tests' affair.
SCHEMATHESIS_HOOKS=hooks "$tool/bin/schemathesis" --config-file schemathesis.toml run "$URL/openapi.json" \
  --phases examples,coverage,fuzzing --max-examples "${EXAMPLES:-15}" --no-color --output-truncate true
