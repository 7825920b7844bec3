#!/usr/bin/env bash
# Runs a cargo build: LOG, then the arguments. Its output goes to LOG. The terminal gets a line every 15 s with the time, the
# finished crates and at most how many are left, and the end of LOG if the build fails.
set -uo pipefail
log=$1 began=$SECONDS
shift
mkdir -p "$(dirname "$log")"
echo "cargo $*" > "$log"
cargo "$@" >> "$log" 2>&1 &
pid=$!
all=
done_() { grep -c '^ *Compiling' "$log"; }
while ! timeout 15 tail --pid="$pid" -f /dev/null; do
  # Count late, so that a build without work counts nothing.
  [ -n "$all" ] || all=$(cargo tree --locked --workspace --edges normal,build,dev --prefix none 2>/dev/null | awk 'NF { print $1, $2 }' | sort -u | wc -l)
  printf '%5d s  %d of %d crates, now %s\n' $((SECONDS - began)) "$(done_)" "$all" \
    "$(grep '^ *Compiling' "$log" | tail -n 1 | awk '{ print $2 }')"
done
if wait "$pid"; then
  printf '%5d s  built %d crates\n' $((SECONDS - began)) "$(done_)"
else
  tail -n 40 "$log"
  echo "the build failed; full log: $log"
  exit 1
fi
