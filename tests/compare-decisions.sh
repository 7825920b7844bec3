#!/usr/bin/env bash
# Compares the output of `wva decide` of this commit and of an earlier one for 1,000 generated snapshots, byte by byte:
#   tests/compare-decisions.sh COMMIT
# Builds COMMIT once, in target/previous. Fails if an answer differs, and keeps both in target/decisions.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
commit=$(git rev-parse --verify "${1:?name the commit to compare with}^{commit}")
target=${CARGO_TARGET_DIR:-target}
previous=$target/previous answers=$target/decisions
rm -rf "$previous/source" "$answers"
mkdir -p "$previous/source" "$answers"
git archive "$commit" | tar -x -C "$previous/source"
previous=$(cd "$previous" && pwd)
(cd "$previous/source" && CARGO_TARGET_DIR=$previous/target cargo build --quiet --locked --bin wva)
cargo build --quiet --locked --bin wva
cargo test --quiet --locked --workspace --lib tests::generated::print_snapshots -- --ignored --nocapture |
  grep '^{' | split --lines=1 --numeric-suffixes --suffix-length=4 - "$answers/snapshot-"
different=0 decisions=0
for snapshot in "$answers"/snapshot-*; do
  name=${snapshot##*-}
  "$previous/target/debug/wva" decide -f "$snapshot" --format json > "$answers/before-$name" 2>&1 || true
  "$target/debug/wva" decide -f "$snapshot" --format json > "$answers/after-$name" 2>&1 || true
  if cmp -s "$answers/before-$name" "$answers/after-$name"; then
    decisions=$((decisions + $(grep -o '"steps":' "$answers/after-$name" | wc -l)))
  else
    different=$((different + 1))
    echo "differs: $answers/before-$name $answers/after-$name"
  fi
done
count=$(find "$answers" -name 'snapshot-*' | wc -l)
echo "$count snapshots: $((count - different)) answers are the same bytes, with $decisions decisions; $different differ"
[ "$count" -gt 0 ] && [ "$different" -eq 0 ]
