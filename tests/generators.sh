#!/usr/bin/env bash
# Checks generators that the project does not use itself. progenitor generates a client; openapi-generator validates both
# documents and generates clients for Java (`native` and `okhttp-gson`) and Kotlin, which are compiled without a change and
# run tests/generators/Scenario.* against a live server.
#
# Needs cargo, a JDK 17 and Maven. Tools are cached in $XDG_CACHE_HOME/tribunal/tools; the first run compiles progenitor,
# which takes some minutes. TRIBUNAL names the server's binary (built if unset).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

progenitor_version=0.15.1
openapi_generator_version=7.17.0
tools="${XDG_CACHE_HOME:-$HOME/.cache}/tribunal/tools"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

for need in java javac mvn; do
  if ! command -v "$need" >/dev/null; then
    echo "SKIPPED: $need is missing (Debian: apt-get install default-jdk-headless maven)"
    [ "${CI:-}" != true ] || exit 1
    exit 0
  fi
done

# Runs a command and shows its output only if it fails.
quietly() {
  "$@" >"$work/output" 2>&1 || { cat "$work/output"; echo "failed: $*"; return 1; }
}

jar="$tools/openapi-generator-cli-$openapi_generator_version.jar"

# Prints the folder with the jars that tests/generators/$1.pom.xml lists, which are downloaded once.
libraries() {
  local pom="$PWD/tests/generators/$1.pom.xml" folder
  folder="$tools/generators-$1-$(sha256sum "$pom" | cut -c1-16)"
  if [ ! -e "$folder" ]; then
    quietly mvn --quiet --batch-mode --file "$pom" org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
      "-DoutputDirectory=$work/libraries-$1" >&2
    mv "$work/libraries-$1" "$folder"
  fi
  echo "$folder"
}

# usage: generated NAME GENERATOR [OPTION...]: generates a client into $work/NAME
generated() {
  local name="$1" generator="$2"
  shift 2
  quietly java -jar "$jar" generate --generator-name "$generator" "$@" --input-spec openapi/openapi-3.0.json \
    --output "$work/$name"
}

# usage: run_java LIBRARY METHOD: compiles a Java client and the scenario, and runs it; METHOD sets the server's address
run_java() {
  local here="$work/java-$1" jars
  jars="$(libraries java)"
  generated "java-$1" java --library "$1"
  sed "s/client\.CONNECT/client.$2/" tests/generators/Scenario.java >"$here/Scenario.java"
  find "$here/src/main/java" -name '*.java' >"$here/sources"
  quietly javac -nowarn -proc:none -cp "$jars/*" -d "$here/classes" "@$here/sources" "$here/Scenario.java"
  java -cp "$here/classes:$jars/*" Scenario "$URL" "generators/java-$1"
}

run_kotlin() {
  local here="$work/kotlin" jars
  jars="$(libraries kotlin)"
  generated kotlin kotlin
  quietly java -cp "$jars/*" org.jetbrains.kotlin.cli.jvm.K2JVMCompiler -nowarn -no-stdlib -no-reflect \
    -classpath "$(printf '%s:' "$jars"/*.jar)" -d "$here/classes" "$here/src/main/kotlin" tests/generators/Scenario.kt
  java -cp "$here/classes:$jars/*" ScenarioKt "$URL" generators/kotlin
}

# The second half, against a server that the first half has started.
if [ "${1:-}" = run ]; then
  run_java native updateBaseUri
  run_java okhttp-gson setBasePath
  run_kotlin
  exit
fi

progenitor="$tools/progenitor-$progenitor_version"
if [ ! -x "$progenitor/bin/cargo-progenitor" ]; then
  CARGO_TARGET_DIR="$work/build" cargo install --quiet --locked --root "$progenitor" \
    "cargo-progenitor@$progenitor_version"
fi
quietly "$progenitor/bin/cargo-progenitor" progenitor --input openapi/openapi-3.0.json --output "$work/progenitor" \
  --name tribunal-generated --version 0.1.0
grep -q 'pub async fn txn_commit' "$work/progenitor/src/lib.rs"
echo "progenitor $progenitor_version: $(grep -c 'pub async fn' "$work/progenitor/src/lib.rs") operations"

if [ ! -s "$jar" ]; then
  mkdir -p "$tools"
  quietly mvn --quiet --batch-mode org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy \
    "-Dartifact=org.openapitools:openapi-generator-cli:$openapi_generator_version" "-DoutputDirectory=$work/jar"
  mv "$work/jar/"*.jar "$jar"
fi
for document in openapi.json openapi-3.0.json; do
  quietly java -jar "$jar" validate --input-spec "openapi/$document"
done
exec bash tests/with-server.sh bash tests/generators.sh run
