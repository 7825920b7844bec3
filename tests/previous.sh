#!/usr/bin/env bash
# Builds wva of an earlier commit in target/previous, and prints the path of the program:
#   tests/previous.sh COMMIT
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
commit=$(git rev-parse --verify "${1:?name a commit}^{commit}")
previous=${CARGO_TARGET_DIR:-target}/previous
rm -rf "$previous/source"
mkdir -p "$previous/source"
git archive "$commit" | tar -x -C "$previous/source"
cd "$previous"
(cd source && CARGO_TARGET_DIR=$PWD/../target cargo build --quiet --locked --bin wva) >&2
echo "$PWD/target/debug/wva"
