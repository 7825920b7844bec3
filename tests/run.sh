#!/usr/bin/env bash
# Runs the tests in parts. Prints one line for each end-to-end group, the time of each part, and one line of totals. A
# failing part does not stop the next; the exit status covers all parts. Logs stay in target/test-logs.
#
#   tests/run.sh quick   formatting, clippy, units, tables, laws and sockets: neither Go nor a control plane
#   tests/run.sh all     the same tests, and all tests on real control planes; without formatting and clippy
#
# LANES          end-to-end groups in parallel; each has a control plane, and mostly waits (default 3)
# SEED           shuffles the end-to-end groups: their order must not matter. Inside a group tests start by name, because
#                stable libtest cannot shuffle
# PROPTEST_CASES cases of each property test (default in .cargo/config.toml)
set -uo pipefail
# A backtrace adds nothing to the message of an assertion.
export RUST_BACKTRACE=0
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
tier=${1:-all}
logs=${CARGO_TARGET_DIR:-target}/test-logs
rm -rf "$logs"
mkdir -p "$logs"
status=0
times=()

# part NAME COMMAND...: runs a part with its output on the terminal and in a log.
part() {
  local name=$1 began=$SECONDS
  shift
  printf '\n== %s\n' "$name"
  "$@" 2>&1 | tee "$logs/part-${#times[@]}.log" || status=1
  times+=("$(printf '%5d s  %s' $((SECONDS - began)) "$name")")
}

# Names of the test binaries without a control plane.
plain() {
  local file
  for file in tests/program/main.rs {certs,controller,crds,webhook,xtask}{,/*}/tests/{*.rs,*/main.rs}; do
    if [ -e "$file" ]; then basename "${file%/main.rs}" .rs; fi
  done
}

# The path of a test binary: NAME.
# shellcheck disable=SC2329 # groups() calls it
binary() {
  cargo test --locked --quiet --workspace --test "$1" --no-run --message-format=json |
    sed -n 's/.*"executable":"\([^"]*\/deps\/'"$1"'-[^"]*\)".*/\1/p' | tail -n 1
}

# Lines of BINARY GROUP, the longest first, so that none of them runs alone at the end.
# shellcheck disable=SC2329 # end_to_end() calls it
groups() {
  local longest=(signal operations chart front_door install shared admission from_zero scaling outage) e2e
  e2e=$(binary e2e)
  [ -x "$e2e" ] || { echo "cargo names no binary e2e" >&2; return 1; }
  {
    printf '%s\n' "${longest[@]}"
    "$e2e" --list | sed -n 's/^\([a-z_]*\)::.*: test$/\1/p' | sort -u | grep -vxF -f <(printf '%s\n' "${longest[@]}")
  } | sed "s|^|$e2e |"
}

# shellcheck disable=SC2329 # part() calls it
end_to_end() {
  local all
  all=$(groups) || return
  if [ -n "${SEED:-}" ]; then shuf --random-source=<(yes "$SEED") <<< "$all"; else cat <<< "$all"; fi |
    xargs -P "${LANES:-3}" -L 1 tests/lane.sh "$logs"
}

# Always the whole workspace with selected targets: selecting packages would recompile libraries with other features.
mapfile -t plain < <(plain | sed 's/^/--test=/')
if [ "$tier" = quick ]; then
  part "formatting, clippy, boundaries" tests/lint.sh
  part "build" tests/build.sh "$logs/build.txt" test --locked --workspace --no-run --lib --bins \
    --example policy_pages "${plain[@]}"
else
  part "build" tests/build.sh "$logs/build.txt" test --locked --workspace --no-run
fi
part "units, tables and laws" cargo test --quiet --workspace --lib --bins --example policy_pages --no-fail-fast
part "crates on real sockets, commands" cargo test --quiet --workspace "${plain[@]}" --no-fail-fast
[ "$tier" = quick ] || part "end to end on real control planes" end_to_end

printf '\n'
printf '%s\n' "${times[@]}"
tests/totals.sh --failures "$logs"/*.log || status=1
exit $status
