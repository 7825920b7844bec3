#!/usr/bin/env bash
# Builds wva of an earlier commit in target/previous, and prints the path of the program:
#   tests/previous.sh COMMIT
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
commit=$(git rev-parse --verify "${1:?name a commit}^{commit}")
previous=${CARGO_TARGET_DIR:-target}/previous
mkdir -p "$previous"
if [ "$(cat "$previous/commit" 2> /dev/null)" != "$commit" ]; then
  rm -rf "$previous/source" "$previous/commit"
  mkdir "$previous/source"
  # New times: cargo takes sources for unchanged whose times are before its last build.
  git archive "$commit" | tar -x -m -C "$previous/source"
  echo "$commit" > "$previous/commit"
fi
cd "$previous"
(cd source && CARGO_TARGET_DIR=$PWD/../target cargo build --quiet --locked --package wva --bins) >&2
# One program was both before: under this name it runs webhook and controller.
[ -e source/src/bin/manager.rs ] || ln -sf wva target/debug/manager
echo "$PWD/target/debug/wva"
