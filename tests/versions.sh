#!/usr/bin/env bash
# Runs groups of the end-to-end tests on the oldest and on the newest Kubernetes of the testbed, and on both an upgrade and
# a rollback between wva of an earlier commit and this one:
#   tests/versions.sh [COMMIT]     COMMIT: by default the last tag, or else the last commit
# Prints a row for each group. ONLY selects groups by the start of the name. Logs stay in target/test-logs/versions.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
logs=${CARGO_TARGET_DIR:-target}/test-logs/versions
mkdir -p "$logs"
export RUST_BACKTRACE=0 RUST_TEST_THREADS=4

# Groups, and regular expressions that select their tests. Each group is a process with a control plane.
groups='
admission  ^admission::(?!policy::)
policy     ^admission::policy::
lifecycle  ^lifecycle::
hpa        ^(shared::scaling|signal|to_zero)::
install    ^install::
chart      ^chart::
versions   ^versions::
'

e2e=$(cargo test --locked --quiet --workspace --test e2e --no-run --message-format=json |
  sed -n 's/.*"executable":"\([^"]*\/deps\/e2e-[^"]*\)".*/\1/p' | tail -n 1)
[ -x "$e2e" ] || { echo "cargo names no binary e2e" >&2; exit 1; }

if [[ versions == "${ONLY:-}"* ]]; then
  commit=${1:-$(git describe --tags --abbrev=0 2> /dev/null || git rev-parse HEAD^)} || exit
  WVA_PREVIOUS=$(tests/previous.sh "$commit") || exit
  export WVA_PREVIOUS
  echo "two versions: $(git rev-parse --short "$commit") and this one"
fi

status=0
for WVA_TESTBED_KUBERNETES in oldest newest; do
  export WVA_TESTBED_KUBERNETES
  tests/testbed/tools/build.sh > /dev/null || exit
  program=$(tests/testbed/tools/build.sh kube-apiserver) || exit
  version=$("${program#*=}" --version)
  while read -r name pattern; do
    [[ -n $name && $name == "${ONLY:-}"* ]] || continue
    log=$logs/$WVA_TESTBED_KUBERNETES-$name.log began=$SECONDS result=ok extra=()
    if [ "$name" = versions ]; then extra=(--include-ignored --nocapture); fi
    mapfile -t tests < <("$e2e" --list | sed -n 's/: test$//p' | grep -P "$pattern")
    "$e2e" --quiet --exact "${extra[@]}" "${tests[@]}" < /dev/null > "$log" 2>&1 || result=FAILED status=1
    printf '%s  %-10s %5d s  %-6s %s\n' "$version" "$name" $((SECONDS - began)) "$result" "$(tests/totals.sh "$log")"
    [ "$result" = ok ] || tests/totals.sh --failures "$log" | sed 's/^/    /'
  done <<< "$groups"
done
exit $status
