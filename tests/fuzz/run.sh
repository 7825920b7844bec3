#!/usr/bin/env bash
# Runs every fuzz target for SECONDS_EACH seconds (60), and prints executions and faults: panics, and inputs that take
# over a second or over 2 GiB. Without nightly Rust the same functions run under proptest, for longer than in
# `make test`. Failing inputs are in tests/fuzz/artifacts/<target>/.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit
seconds=${SECONDS_EACH:-60}
cargo=${CARGO:-cargo}

if ! $cargo +nightly --version > /dev/null 2>&1; then
  echo "nightly Rust is not here (\`rustup toolchain install nightly\`): the targets run under proptest on stable"
  PROPTEST_CASES=${PROPTEST_CASES:-20000} exec $cargo test --package wva --test program fuzz_targets::
fi
if ! $cargo fuzz --version > /dev/null 2>&1; then
  $cargo install --locked cargo-fuzz || exit 1
fi

cd tests/fuzz || exit
export CARGO_TARGET_DIR=$PWD/target
$cargo +nightly fuzz build --fuzz-dir . || exit 1
status=0
for seeds in seeds/*/; do
  target=$(basename "$seeds")
  mkdir -p "corpus/$target" "artifacts/$target"
  log=$(mktemp)
  # Inputs have at most a few kilobytes, so a second is far too long.
  $cargo +nightly fuzz run --fuzz-dir . "$target" "corpus/$target" "$seeds" -- -max_total_time="$seconds" \
    -rss_limit_mb=2048 -timeout=10 -report_slow_units=1 -max_len=8192 -print_final_stats=1 -verbosity=0 > "$log" 2>&1 || status=1
  runs=$(awk '/stat::number_of_executed_units/ { print $2 }' "$log")
  slow=$(awk '/stat::slowest_unit_time_sec/ { print $2 }' "$log")
  # On a busy machine an input may be slow once; if it is slow again, that is a fault.
  for unit in "artifacts/$target"/slow-unit-*; do
    [ -e "$unit" ] || continue
    took=$($cargo +nightly fuzz run --fuzz-dir . "$target" "$unit" 2>&1 | awk '/^Executed / { print $(NF - 1) }')
    [ "${took:-1000}" -ge 1000 ] || rm "$unit"
  done
  crashes=$(find "artifacts/$target" -type f | wc -l)
  printf '%-12s %10s executions in %s s, %s faults, slowest input %s s\n' "$target" "${runs:-0}" "$seconds" "$crashes" "${slow:-?}"
  [ "$crashes" -eq 0 ] || { status=1; tail -n 30 "$log"; }
  [ -n "$runs" ] || { status=1; tail -n 30 "$log"; }
  rm -f "$log"
done
exit $status
