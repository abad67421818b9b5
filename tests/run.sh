#!/usr/bin/env bash
# Runs every test of the project and ends with one line: `N passed, N failed, N skipped`.
#
# Exits with 0 only if nothing failed to build, nothing failed and, when CI=true, nothing was skipped. A test that
# cannot run here prints `SKIPPED: reason` and counts as skipped, not as passed. Tests marked #[ignore] are the long
# sizes that are run on demand; they are not part of this run and not counted.
#
# TRIBUNAL_TEST_TIMEOUT_S bounds each of the test commands, builds excluded (default 2700).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/tribunal/target}"
timeout_s="${TRIBUNAL_TEST_TIMEOUT_S:-2700}"
output="$(mktemp)"
trap 'rm -f "$output"' EXIT
broken=0

# The real Redis and PostgreSQL that tests talk to. The tests start them themselves, so no service is to be started.
install_storages() {
  local missing=()
  command -v redis-server >/dev/null || missing+=(redis-server)
  command -v postgres >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || missing+=(postgresql)
  [ "${#missing[@]}" -gt 0 ] || return 0
  if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "${missing[*]} missing: tests that need it are skipped (Debian: apt-get install ${missing[*]})"
    return
  fi
  echo "== installing ${missing[*]}"
  local policy=/usr/sbin/policy-rc.d
  local had_policy=1
  [ -e "$policy" ] || had_policy=0
  if [ "$had_policy" -eq 0 ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
  fi
  apt-get update -qq || true
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null >/dev/null ||
    echo "${missing[*]} could not be installed: tests that need it are skipped"
  [ "$had_policy" -eq 1 ] || rm -f "$policy"
}

# The C compiler for WebAssembly that builds plugins in C, from PyPI.
install_zig() {
  [ -z "${TRIBUNAL_CC:-}" ] && ! command -v zig >/dev/null || return 0
  local venv="${XDG_CACHE_HOME:-$HOME/.cache}/tribunal/zig" version=0.17.1
  if [ "$("$venv/bin/python" -m ziglang version 2>/dev/null)" != "$version" ]; then
    echo "== installing zig"
    { python3 -m venv "$venv" && "$venv/bin/pip" install --quiet --disable-pip-version-check "ziglang==$version"; } ||
      { echo "zig could not be installed: the test of plugins in C is skipped"; return 0; }
  fi
  export TRIBUNAL_CC="$venv/bin/python -m ziglang cc"
}

# The OpenTelemetry Collector that the telemetry test sends to. Built here, where no test's clock runs.
build_collector() {
  command -v go >/dev/null || return 0
  echo "== building the collector, unless it is there"
  bash tests/collector/build.sh || echo "the collector could not be built: tests that need it are skipped"
}

build() {
  local begun=$SECONDS
  echo "== building: $*"
  cargo "$@" || { broken=1; echo "FAILED: cargo $*" | tee -a "$output"; }
  echo "== built in $((SECONDS - begun)) s"
}

# Runs one test command. Output of passed tests is needed for `SKIPPED:` but only clutters the terminal.
run_tests() {
  echo "== testing: cargo $*"
  local status=0 TIMEFORMAT="== tested in %0R s, with %0U s of CPU in programs and %0S s in the kernel"
  time timeout --kill-after=30 "$timeout_s" cargo "$@" --no-fail-fast -- --show-output >"$output.part" 2>&1 || status=$?
  cat "$output.part" >>"$output"
  if [ "$status" -eq 0 ]; then
    grep -E '^(     Running|   Doc-tests|test result:|SKIPPED:)' "$output.part" || true
  else
    cat "$output.part"
    # Nothing failed by name, so it was the build, a crash or the time-out.
    if [ "$status" -ge 124 ] || ! grep -qE '^test result: FAILED' "$output.part"; then
      broken=1
      echo "FAILED: cargo $* (status $status)" | tee -a "$output"
    fi
  fi
  rm -f "$output.part"
}

install_storages
install_zig
build_collector
# Builds the server as well, which some tests start as a process: it has integration tests of its own.
# Optimised, like the server itself, so that the largest dependency is compiled once and not once a profile.
build test --release --workspace --locked --no-run
run_tests test --release --workspace --locked
# The pure crates again, with debug assertions and overflow checks.
run_tests test --locked -p tribunal-types -p tribunal-core -p tribunal-codec
# Each planted bug must be caught. A command of its own, because the bugs are compiled into the core; of the whole workspace, so
# that libraries are not compiled again with fewer features.
run_tests test --release --locked --workspace --features tribunal-tests/planted-bugs --test negative --test divergence

# Nodes of other releases, and with clocks that are wrong. A command of its own, because only its binary can be made such one.
run_tests test --release --locked --workspace --features tribunal/planted --test cluster_upgrade
# The binary that others start is the usual one again.
build test --release --workspace --locked --no-run

# What failed, and the first lines of why, once more at the end: the output in between is long.
report_failures() {
  awk '
    /^     Running |^   Doc-tests / { binary = $0; sub(/^ *(Running|Doc-tests) /, "", binary); sub(/ \(.*/, "", binary) }
    /^failures:$/ { failures = 1; lines = 0; next }
    /^successes:$|^test result:/ { failures = 0; lines = 0 }
    failures && /^---- .* stdout ----$/ { print "FAILED: " binary ": " $2; lines = 8; next }
    failures && lines > 0 && NF { print "    " substr($0, 1, 300); lines-- }
    /^(FAILED|SKIPPED): / { print }
  ' "$output"
}

count() { awk -v name="$1" '/^test result:/ { for (i = 2; i <= NF; i++) if ($i ~ "^" name) sum += $(i - 1) } END { print sum + 0 }' "$output"; }
skipped="$(grep -c '^SKIPPED:' "$output" || true)"
passed=$(($(count passed) - skipped))
failed=$(($(count failed) + broken))
[ "$passed" -gt 0 ] || { [ "$failed" -gt 0 ] || failed=1; }

echo "== failed or skipped"
report_failures
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] || exit 1
[ "${CI:-}" != true ] || [ "$skipped" -eq 0 ] || exit 1
