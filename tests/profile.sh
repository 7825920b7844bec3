#!/usr/bin/env bash
# Profiles the manager of `make bench-cycle` during cycles over 2,000 variants, and prints which parts take its processor
# time. A debug build, because a release has no symbols. Needs perf (Debian's package linux-perf), and the right to use it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
command -v perf > /dev/null || { echo "perf is missing: install Debian's package linux-perf" >&2; exit 2; }
programs=${CARGO_TARGET_DIR:-target}/debug
folder=${CARGO_TARGET_DIR:-target}/profile
rm -rf "$folder" && mkdir -p "$folder"

"$programs/wva-experiments" bench-cycle --programs "$programs" --folder "$folder" --models 2000 --replicas 2 > "$folder/bench.log" 2>&1 &
bench=$!
trap 'kill "$bench" 2> /dev/null || true' EXIT
echo "starting a control plane, 4,000 pods and 15 cycles; some five minutes"
until grep -q "^measuring 12 rounds" "$folder/bench.log"; do
  kill -0 "$bench" 2> /dev/null || { cat "$folder/bench.log" >&2; exit 1; }
  sleep 1
done
manager=$(pgrep --parent "$bench" --full "$programs/manager" | head -n 1)
# The clock works on virtual machines too. Deep stacks: futures and iterators have many frames.
perf record --quiet --event cpu-clock --freq 499 --call-graph dwarf,16384 --pid "$manager" --output "$folder/perf.data" -- sleep 100
perf script --input "$folder/perf.data" > "$folder/stacks.txt" 2> /dev/null

# title | functions. A stack counts once for each title that names one of its functions.
parts='answers of Prometheus, read|prometheus::answer::read
  fields of JSON|Deserialize<.*>::deserialize|from_trait
  names of pods and models looked up|collect::filter::
samples added to those before|Samples::add_round
filter of the next round|sampler::start_round|Sampler::full_round
snapshot assembled|assemble::assemble
decisions|pipeline::decide
variants and conditions|Decider>::update_variants
statuses compared and written|StatusWriter
memory taken and given back|malloc|_int_free|cfree|realloc|unlink_chunk
comparison of names|memcmp'
awk -v parts="$parts" '
  BEGIN { n = split(parts, all, "\n"); for (i = 1; i <= n; i++) { at = index(all[i], "|"); title[i] = substr(all[i], 1, at - 1); names[i] = substr(all[i], at + 1) } }
  /^$/ { if (stack != "") { stacks++; for (i = 1; i <= n; i++) if (stack ~ names[i]) seen[i]++ } stack = ""; next }
  { stack = stack "\n" $0 }
  END {
    if (stacks == 0) { print "no sample was taken" > "/dev/stderr"; exit 1 }
    printf "%d samples\n\n| part | share of the processor time |\n|---|---:|\n", stacks
    for (i = 1; i <= n; i++) printf "| %s | %.0f %% |\n", title[i], 100 * seen[i] / stacks
  }' "$folder/stacks.txt"
wait "$bench"
grep "processor time of wva" "$folder/bench.log"
