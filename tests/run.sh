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
export logs
status=0
times=()

# The sum of all results in logs: "12 passed, 0 failed, 1 skipped". Fails where a test failed or none ran.
totals() {
  cat "$@" | awk '/^test result:/ { passed += $4; failed += $6; skipped += $8 }
    END { printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped; exit passed == 0 || failed > 0 }'
}

# part NAME COMMAND...: runs a part with its output on the terminal and in a log.
part() {
  local name=$1 began=$SECONDS
  shift
  printf '\n== %s\n' "$name"
  "$@" 2>&1 | tee "$logs/part-${#times[@]}.log" || status=1
  times+=("$(printf '%5d s  %s' $((SECONDS - began)) "$name")")
}

# build ARGS...: compiles tests; one line every 30 s in place of one for each crate.
build() {
  local log=$logs/build.txt began=$SECONDS pid
  echo "cargo test --no-run $*" >> "$log"
  cargo test --locked --no-run "$@" >> "$log" 2>&1 &
  pid=$!
  while ! timeout 30 tail --pid="$pid" -f /dev/null; do
    printf '%5d s  %d crates compiled, now %s\n' $((SECONDS - began)) \
      "$(grep -c '^ *Compiling' "$log")" "$(grep '^ *Compiling' "$log" | tail -n 1 | awk '{ print $2 }')"
  done
  wait "$pid" || { tail -n 40 "$log"; echo "the build failed; all of its log: $log"; return 1; }
}

# Test binaries of the program, by name: those that use the testbed need a control plane, the others do not.
of_program() {
  local wanted=$1 file uses
  for file in tests/*.rs tests/*/main.rs; do
    uses=plain
    grep -rqs 'wva_testbed' "$file" "${file%main.rs}" && uses=plane
    [ "$uses" = "$wanted" ] && basename "${file%/main.rs}" .rs
  done
}

# lane PACKAGE TEST: one end-to-end binary, its log in a file, one line at its end.
lane() {
  local name=$2 began=$SECONDS result=ok
  RUST_TEST_THREADS=4 cargo test --quiet --package "$1" --test "$2" --no-fail-fast > "$logs/$name.log" 2>&1 || result=FAILED
  printf '%5d s  %-6s %s: %s\n' $((SECONDS - began)) "$result" "$name" "$(totals "$logs/$name.log")"
  [ "$result" = ok ] || sed 's/^/    /' "$logs/$name.log"
  [ "$result" = ok ]
}
export -f lane totals

# The longest first, so that none of them runs alone at the end.
end_to_end() {
  local longest='operations shared install outage' order=cat
  [ -z "${SEED:-}" ] || order="shuf --random-source=<(yes $SEED)"
  {
    printf 'wva %s\n' $longest
    printf 'wva-testbed %s\n' control_plane restart processes
    of_program plane | grep -vxE "${longest// /|}" | sed 's/^/wva /'
  } | eval "$order" | xargs -P "${LANES:-3}" -L 1 bash -c 'lane "$0" "$1"'
}

mapfile -t plain < <(of_program plain | sed 's/^/--test=/')
if [ "$tier" = quick ]; then
  part "formatting, clippy, boundaries" tests/lint.sh
  part "build" build --package wva --bins "${plain[@]}"
  part "build of the other crates" build --workspace --exclude wva --exclude wva-testbed --lib --bins --tests
else
  part "build" build --workspace
fi
part "units, tables and laws of the crates, their sockets" \
  cargo test --quiet --workspace --exclude wva --exclude wva-testbed --lib --bins --tests --no-fail-fast
part "units and commands of the program" cargo test --quiet --package wva --bins "${plain[@]}" --no-fail-fast
if [ "$tier" = all ]; then
  part "units of the testbed" cargo test --quiet --package wva-testbed --lib --bins --no-fail-fast
  part "end to end on real control planes" end_to_end
fi

printf '\n'
printf '%s\n' "${times[@]}"
totals "$logs"/*.log || status=1
exit $status
