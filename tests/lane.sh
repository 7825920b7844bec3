#!/usr/bin/env bash
# One group of the end-to-end tests: FOLDER for its log, BINARY, NAME. Prints one line at its end, and the log where it
# failed. tests/run.sh runs several of these side by side.
set -uo pipefail
name=$3 began=$SECONDS result=ok
log=$1/$name.log
# More tests than cores: they mostly wait.
export RUST_TEST_THREADS=4
# A filter of libtest matches anywhere in a name: the names that begin with the group, each exactly.
mapfile -t tests < <("$2" --list | sed -n "s/^\($name::.*\): test$/\1/p")
"$2" --quiet --exact "${tests[@]}" > "$log" 2>&1 || result=FAILED
printf '%5d s  %-6s %s: %s\n' $((SECONDS - began)) "$result" "$name" "$(tests/totals.sh "$log")"
[ "$result" = ok ] || sed 's/^/    /' "$log"
[ "$result" = ok ]
