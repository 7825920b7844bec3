#!/usr/bin/env bash
# One end-to-end test binary: FOLDER for its log, NAME. Prints one line at its end, and the log where it failed.
# tests/run.sh runs several of these side by side.
set -uo pipefail
name=$2 began=$SECONDS result=ok
log=$1/$name.log
# More tests than cores: they mostly wait.
export RUST_TEST_THREADS=4
cargo test --quiet --workspace --test "$name" --no-fail-fast > "$log" 2>&1 || result=FAILED
printf '%5d s  %-6s %s: %s\n' $((SECONDS - began)) "$result" "$name" "$(tests/totals.sh "$log")"
[ "$result" = ok ] || sed 's/^/    /' "$log"
[ "$result" = ok ]
