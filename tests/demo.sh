#!/usr/bin/env bash
# Builds what the demo needs, and runs it: the arguments are those of `wva-experiments demo`. The control plane is built from Go
# modules while cargo builds wva, since each has parts that leave a core idle. The first time it takes minutes; later seconds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=${CARGO_TARGET_DIR:-target}
began=$SECONDS
tests/testbed/tools/build.sh > /dev/null &
tools=$!
trap 'kill $tools 2> /dev/null || true' EXIT
[ -x "$target/quick/wva-experiments" ] || echo "The first time, this builds wva and its emulated servers, etcd, kube-apiserver, kube-controller-manager,
kube-scheduler, kubectl, kwok and Prometheus: some 8 minutes on two cores. The demo itself takes 3 minutes."
# Not optimized, and without the libraries of the tests.
tests/build.sh "$target/build.txt" build --locked --profile quick --package wva --package wva-experiments --bins
wait $tools
trap - EXIT
[ $((SECONDS - began)) -lt 10 ] || echo "Built in $((SECONDS - began)) s."
"$target/quick/wva-experiments" demo --programs "$target/quick" --folder "$target/demo" "$@"
