#!/usr/bin/env bash
# Runs every test in parts, prints how long each part took, and one line of totals at the end. A failing part does
# not hide the next; the exit status is that of the whole.
set -uo pipefail
# A backtrace of an assertion says nothing that its message does not.
export RUST_BACKTRACE=0
# Generated files are checked here, never written.
unset WVA_GENERATE
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
times=()

part() {
  local name=$1 began=$SECONDS
  shift
  printf '\n== %s: %s\n' "$name" "$*"
  "$@" 2>&1 | tee -a "$log" || status=1
  times+=("$(printf '%5d s  %s' $((SECONDS - began)) "$name")")
}

part "build"                                cargo test --locked --workspace --no-run
part "unit and property tests"              cargo test --workspace --lib --bins --no-fail-fast
part "crates on real sockets, the testbed"  cargo test --workspace --exclude wva --test '*' --no-fail-fast
part "end to end on a real control plane"   cargo test --package wva --test '*' --no-fail-fast

printf '\n'
printf '%s\n' "${times[@]}"
awk '/^test result:/ { passed += $4; failed += $6; skipped += $8 }
     END { printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped; exit passed == 0 || failed > 0 }' "$log" || status=1
exit $status
