#!/usr/bin/env bash
# Checks that generators which the project does not use itself accept the API's description: openapi-generator (both
# documents, and a whole client from one) and progenitor (3.0, the only one that it reads).
#
# Needs cargo, java and Maven. Tools are kept outside the clone, in $XDG_CACHE_HOME/tribunal/tools; the first run
# compiles progenitor, which takes some minutes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

progenitor_version=0.15.1
openapi_generator_version=7.17.0
tools="${XDG_CACHE_HOME:-$HOME/.cache}/tribunal/tools"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

for need in java mvn; do
  if ! command -v "$need" >/dev/null; then
    echo "SKIPPED: $need is missing (Debian: apt-get install default-jre-headless maven)"
    [ "${CI:-}" != true ] || exit 1
    exit 0
  fi
done

# Runs a command and shows what it said only if it failed.
quietly() {
  "$@" >"$work/said" 2>&1 || { cat "$work/said"; echo "failed: $*"; return 1; }
}

progenitor="$tools/progenitor-$progenitor_version"
if [ ! -x "$progenitor/bin/cargo-progenitor" ]; then
  CARGO_TARGET_DIR="$work/build" cargo install --quiet --locked --root "$progenitor" \
    "cargo-progenitor@$progenitor_version"
fi
quietly "$progenitor/bin/cargo-progenitor" progenitor --input openapi/openapi-3.0.json --output "$work/progenitor" \
  --name tribunal-generated --version 0.1.0
grep -q 'pub async fn txn_commit' "$work/progenitor/src/lib.rs"
echo "progenitor $progenitor_version: $(grep -c 'pub async fn' "$work/progenitor/src/lib.rs") operations"

jar="$tools/openapi-generator-cli-$openapi_generator_version.jar"
if [ ! -s "$jar" ]; then
  mkdir -p "$tools"
  quietly mvn --quiet --batch-mode org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy \
    "-Dartifact=org.openapitools:openapi-generator-cli:$openapi_generator_version" "-DoutputDirectory=$work/jar"
  mv "$work/jar/"*.jar "$jar"
fi
for document in openapi.json openapi-3.0.json; do
  quietly java -jar "$jar" validate --input-spec "openapi/$document"
done
quietly java -jar "$jar" generate --generator-name java --library native --input-spec openapi/openapi-3.0.json \
  --output "$work/java"
grep -rq 'TxnOutcome txnCommit(' "$work/java/src/main/java"
echo "openapi-generator $openapi_generator_version: $(find "$work/java/src/main/java" -name '*.java' | wc -l) classes"
