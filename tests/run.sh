#!/usr/bin/env bash
# Runs the tests in parts. Prints one line for each end-to-end binary, the time of each part, and one line of totals. A
# failing part does not hide the next; the exit status is that of the whole. Logs stay in target/test-logs.
#
#   tests/run.sh quick   formatting, clippy, units, tables, laws and sockets: neither Go nor a control plane
#   tests/run.sh all     the same tests, and all tests on real control planes; without formatting and clippy
#
# LANES          end-to-end binaries that run side by side; each has a control plane, and mostly waits (default 3)
# SEED           shuffles the end-to-end binaries: their order must not matter
# PROPTEST_CASES cases of each law (default 1,000)
set -uo pipefail
# A backtrace of an assertion says nothing that its message does not.
export RUST_BACKTRACE=0
# Generated files are checked here, never written.
unset WVA_GENERATE
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

# build TARGETS...: compiles tests; one line every 30 s in place of one for each crate.
# shellcheck disable=SC2329 # part() calls it
build() {
  local log=$logs/build.txt began=$SECONDS pid
  echo "cargo test --workspace --no-run $*" >> "$log"
  cargo test --locked --workspace --no-run "$@" >> "$log" 2>&1 &
  pid=$!
  while ! timeout 30 tail --pid="$pid" -f /dev/null; do
    printf '%5d s  %d crates compiled, now %s\n' $((SECONDS - began)) \
      "$(grep -c '^ *Compiling' "$log")" "$(grep '^ *Compiling' "$log" | tail -n 1 | awk '{ print $2 }')"
  done
  wait "$pid" || { tail -n 40 "$log"; echo "the build failed; all of its log: $log"; return 1; }
}

# Names of the test binaries: `plane` for those that start a control plane, `plain` for the others.
binaries() {
  local file uses
  for file in tests/*.rs tests/*/main.rs tests/testbed/tests/*.rs {certs,controller,crds,webhook}{,/*}/tests/{*.rs,*/main.rs}; do
    [ -e "$file" ] || continue
    uses=plain
    grep -rqs 'wva_testbed' "$file" "${file%main.rs}" && uses=plane
    if [ "$uses" = "$1" ]; then basename "${file%/main.rs}" .rs; fi
  done
}

# The longest first, so that none of them runs alone at the end.
# shellcheck disable=SC2329 # part() calls it
end_to_end() {
  local longest=(operations shared install outage)
  {
    printf '%s\n' "${longest[@]}"
    binaries plane | grep -vxF -f <(printf '%s\n' "${longest[@]}")
  } | if [ -n "${SEED:-}" ]; then shuf --random-source=<(yes "$SEED"); else cat; fi |
    xargs -P "${LANES:-3}" -L 1 tests/lane.sh "$logs"
}

# Always the whole workspace, with targets chosen: a choice of packages would compile libraries again, with other features.
mapfile -t plain < <(binaries plain | sed 's/^/--test=/')
if [ "$tier" = quick ]; then
  part "formatting, clippy, boundaries" tests/lint.sh
  part "build" build --lib --bins "${plain[@]}"
else
  part "build" build
fi
part "units, tables and laws" cargo test --quiet --workspace --lib --bins --no-fail-fast
part "crates on real sockets, commands" cargo test --quiet --workspace "${plain[@]}" --no-fail-fast
[ "$tier" = quick ] || part "end to end on real control planes" end_to_end

printf '\n'
printf '%s\n' "${times[@]}"
tests/totals.sh "$logs"/*.log || status=1
exit $status
