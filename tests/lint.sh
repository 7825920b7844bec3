#!/usr/bin/env bash
# Checks formatting, clippy with warnings as errors, forbidden dependencies of the four pure crates, and that crates depend
# only on crates below them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

echo "== formatting"
cargo fmt --all --check
echo "== clippy"
cargo clippy --locked --workspace --all-targets --quiet -- -D warnings
echo "== files of at most 400 lines"
long=$(git ls-files '*.rs' | xargs wc -l | awk '$2 != "total" && $1 > 400')
[ -z "$long" ] || { echo "split these files:"; echo "$long"; exit 1; }
echo "== prose"
tests/prose.sh
echo "== purity"
for crate in wva-objects wva-scaling wva-rules wva-simulator; do
  tree=$(cargo tree --locked --package "$crate" --edges normal --prefix none)
  found=$(cut -d' ' -f1 <<<"$tree" | sort -u | grep -xE 'kube-client|kube-runtime|tokio|reqwest|hyper|axum|async-std|mio' || true)
  [ -z "$found" ] || { echo "$crate must stay pure, and depends on: $found"; exit 1; }
done
echo "== dependencies between crates"
allowed="wva:wva-certs wva:wva-cli wva:wva-controller wva:wva-crds wva:wva-objects wva:wva-rules wva:wva-runtime wva:wva-scaling wva:wva-webhook
wva-cli:wva-certs wva-cli:wva-crds wva-cli:wva-objects wva-cli:wva-rules wva-cli:wva-runtime wva-cli:wva-scaling
wva-cli:wva-simulator wva-cli:wva-webhook
wva-controller:wva-certs wva-controller:wva-crds wva-controller:wva-objects wva-controller:wva-rules wva-controller:wva-runtime wva-controller:wva-scaling
wva-webhook:wva-certs wva-webhook:wva-crds wva-webhook:wva-objects wva-webhook:wva-rules wva-webhook:wva-runtime wva-certs:wva-crds wva-certs:wva-runtime
wva-objects:wva-crds wva-rules:wva-crds wva-rules:wva-objects wva-scaling:wva-crds wva-scaling:wva-objects wva-simulator:wva-scaling wva-simulator:wva-crds wva-simulator:wva-objects wva-testbed:wva-crds
wva-experiments:wva-crds wva-experiments:wva-objects wva-experiments:wva-testbed wva-experiments:wva-cli wva-experiments:wva-scaling wva-experiments:wva-simulator
xtask:wva-cli xtask:wva-crds xtask:wva-objects xtask:wva-rules xtask:wva-scaling xtask:wva-webhook"
for crate in wva wva-cli wva-runtime wva-controller wva-webhook wva-certs wva-rules wva-scaling wva-simulator wva-testbed wva-experiments wva-objects wva-crds xtask; do
  tree=$(cargo tree --locked --package "$crate" --edges normal --depth 1 --prefix none)
  for below in $(tail -n +2 <<<"$tree" | cut -d' ' -f1 | grep -E '^wva-' | sort -u || true); do
    grep -qw -- "$crate:$below" <<<"$allowed" || { echo "$crate must not depend on $below (see "Find your way" in CONTRIBUTING.md)"; exit 1; }
  done
done
echo "== folders, import circles and parameters"
cargo test --locked --quiet --workspace --test program layout:: > /dev/null || { cargo test --locked --workspace --test program layout::; exit 1; }
echo "lint: no findings"
