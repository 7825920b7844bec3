#!/usr/bin/env bash
# Runs one group of the end-to-end tests: FOLDER for its log, BINARY, NAME. Prints one line at its end, and the log if it
# failed. tests/run.sh runs several groups in parallel.
set -uo pipefail
name=$3 began=$SECONDS result=ok
log=$1/$name.log
# More tests than cores, because they mostly wait.
export RUST_TEST_THREADS=4
# A libtest filter matches anywhere in a name, so list the names of the group exactly.
mapfile -t tests < <("$2" --list | sed -n "s/^\($name::.*\): test$/\1/p")
"$2" --quiet --exact "${tests[@]}" > "$log" 2>&1 || result=FAILED
printf '%5d s  %-6s %s: %s\n' $((SECONDS - began)) "$result" "$name" "$(tests/totals.sh "$log")"
[ "$result" = ok ] || sed 's/^/    /' "$log"
[ "$result" = ok ]
