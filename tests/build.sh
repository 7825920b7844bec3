#!/usr/bin/env bash
# Runs a cargo build: LOG, then the arguments. Its output goes to LOG. A terminal shows one line, which follows the time and
# the crates; elsewhere a line comes every two minutes. The end of LOG follows if the build fails.
set -uo pipefail
log=$1 began=$SECONDS
shift
mkdir -p "$(dirname "$log")"
echo "cargo $*" > "$log"
cargo "$@" >> "$log" 2>&1 &
pid=$!
all=
done_() { grep -c '^ *Compiling' "$log"; }
if [ -t 1 ]; then every=1 begin='\r\033[K' end=''; else every=120 begin='' end='\n'; fi
while ! timeout "$every" tail --pid="$pid" -f /dev/null; do
  # Count late, so that a build without work counts nothing.
  [ -n "$all" ] || [ $((SECONDS - began)) -lt 5 ] ||
    all=$(cargo tree --locked --workspace --edges normal,build,dev --prefix none 2>/dev/null | awk 'NF { print $1, $2 }' | sort -u | wc -l)
  printf '%b%5d s  %d of at most %s crates, now %s%b' "$begin" $((SECONDS - began)) "$(done_)" "${all:-?}" \
    "$(grep '^ *Compiling' "$log" | tail -n 1 | awk '{ print $2 }')" "$end"
done
printf '%b' "$begin"
if wait "$pid"; then
  printf '%5d s  built %d crates\n' $((SECONDS - began)) "$(done_)"
else
  tail -n 40 "$log"
  echo "the build failed; full log: $log"
  exit 1
fi
