#!/usr/bin/env bash
# Runs groups of the end-to-end tests on the oldest and on the newest Kubernetes of the testbed, and on both an upgrade and
# a rollback between wva of an earlier commit and this one:
#   tests/versions.sh [COMMIT]     COMMIT: by default the last tag, or else the last commit
# Prints a row for each group and a table at the end. ONLY runs one group, and logs stay in target/test-logs/versions.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
logs=${CARGO_TARGET_DIR:-target}/test-logs/versions
mkdir -p "$logs"
export RUST_BACKTRACE=0 RUST_TEST_THREADS=4
unset WVA_GENERATE

# Groups, and regular expressions that select their tests.
groups='
admission  ^admission::
policy     ^admission::policy::
lifecycle  ^lifecycle::
hpa        ^(shared::scaling|signal|to_zero)::
install    ^(install|chart)::
versions   ^versions::
'
# Tests that the oldest Kubernetes cannot run, each with the reason.
later='
'

e2e=$(cargo test --locked --quiet --workspace --test e2e --no-run --message-format=json |
  sed -n 's/.*"executable":"\([^"]*\/deps\/e2e-[^"]*\)".*/\1/p' | tail -n 1)
[ -x "$e2e" ] || { echo "cargo names no binary e2e" >&2; exit 1; }

# Names of the tests of a group on a Kubernetes: PATTERN, KUBERNETES. A test is in one group: policies have their own.
tests() {
  "$e2e" --list | sed -n 's/: test$//p' | grep -E "$1" |
    { if [ "$1" = '^admission::' ]; then grep -v '^admission::policy::'; else cat; fi; } |
    { if [ "$2" = oldest ]; then grep -vxF -f <(awk 'NF { print $1 }' <<< "$later"); else cat; fi; }
}

if [ -z "${ONLY:-}" ] || [[ versions == "$ONLY"* ]]; then
  commit=${1:-$(git describe --tags --abbrev=0 2> /dev/null || git rev-parse HEAD^)} || exit
  WVA_PREVIOUS=$(tests/previous.sh "$commit") || exit
  export WVA_PREVIOUS
fi

status=0 table=
for WVA_TESTBED_KUBERNETES in oldest newest; do
  export WVA_TESTBED_KUBERNETES
  program=$(tests/testbed/tools/build.sh kube-apiserver) || exit
  tests/testbed/tools/build.sh > /dev/null || exit
  version=$("${program#*=}" --version)
  while read -r name pattern; do
    [[ -n $name && $name == "${ONLY:-}"* ]] || continue
    log=$logs/$WVA_TESTBED_KUBERNETES-$name.log began=$SECONDS result=ok extra=()
    if [ "$name" = versions ]; then extra=(--include-ignored --nocapture); fi
    mapfile -t names < <(tests "$pattern" "$WVA_TESTBED_KUBERNETES")
    "$e2e" --quiet --exact "${extra[@]}" "${names[@]}" < /dev/null > "$log" 2>&1 || result=FAILED status=1
    row=$(printf '%-18s %-10s %5d s  %-6s %s' "$version" "$name" $((SECONDS - began)) "$result" "$(tests/totals.sh "$log")")
    echo "$row"
    [ "$result" = ok ] || tests/totals.sh --failures "$log" | sed 's/^/    /'
    table+=$row$'\n'
  done <<< "$groups"
done

printf '\n%s' "$table"
awk 'NF { test = $1; $1 = ""; print "not on the oldest: " test ":" $0 }' <<< "$later"
if [ -n "${WVA_PREVIOUS:-}" ]; then "$WVA_PREVIOUS" --version; fi
exit $status
