#!/usr/bin/env bash
# Builds the pinned Go programs of the test control plane, once, into a cache outside the checkout, and prints
# one `name=path` line for each on stdout; progress goes to stderr. A cached build costs milliseconds.
# WVA_TESTBED_CACHE=DIR moves the cache; WVA_TESTBED_BIN=DIR uses ready binaries instead (nothing is built).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${WVA_TESTBED_CACHE:-${HOME:?HOME is not set}/.cache/wva-testbed}
k8s=v1.36.3

say() { printf '%s\n' "$*" >&2; }

# folder | package | extra go build flags | binary
programs() {
  local v="-X k8s.io/component-base/version.gitVersion=$k8s -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36"
  echo "etcd|go.etcd.io/etcd/server/v3|||etcd"
  echo "kwok|sigs.k8s.io/kwok/cmd/kwok|||kwok"
  # Without the service discoveries of every cloud the binary and its build are half the size; file discovery stays.
  echo "prometheus|github.com/prometheus/prometheus/cmd/prometheus|-tags=remove_all_sd||prometheus"
  for p in kube-apiserver kube-controller-manager kube-scheduler kubectl; do
    echo "kubernetes|k8s.io/kubernetes/cmd/$p||$v|$p"
  done
}

if [ -n "${WVA_TESTBED_BIN:-}" ]; then
  while IFS='|' read -r _ _ _ _ name; do
    [ -x "$WVA_TESTBED_BIN/$name" ] || { say "WVA_TESTBED_BIN=$WVA_TESTBED_BIN has no executable '$name': put it there, or unset WVA_TESTBED_BIN to have it built"; exit 1; }
    echo "$name=$WVA_TESTBED_BIN/$name"
  done < <(programs)
  exit 0
fi

command -v flock >/dev/null || { say "flock is not installed: it comes with util-linux"; exit 1; }
command -v go >/dev/null || { say "go is not installed: the test control plane is built from Go modules (Go 1.26 or later); or set WVA_TESTBED_BIN to a folder of ready binaries"; exit 1; }

while IFS='|' read -r folder package flags ldflags name; do
  key=$(cat "$here/$folder/go.mod" "$here/$folder/go.sum" "$here/build.sh" | sha256sum | cut -c1-16)
  out="$cache/$folder-$key/$name"
  if [ ! -x "$out" ]; then
    mkdir -p "$(dirname "$out")"
    # One builder at a time for each binary: two test runs that start cold must not build it twice.
    exec 9>"$out.lock"
    if ! flock -n 9; then say "testbed: waiting for another build of $name"; flock 9; fi
    if [ ! -x "$out" ]; then
      say "testbed: building $name (once; kubernetes takes minutes) ..."
      began=$SECONDS
      # shellcheck disable=SC2086 # flags are separate words
      (cd "$here/$folder" && CGO_ENABLED=0 go build -mod=readonly -buildvcs=false -trimpath $flags -ldflags "-s -w $ldflags" -o "$out.tmp" "$package")
      mv "$out.tmp" "$out"
      say "testbed: built $name in $((SECONDS - began)) s"
    fi
    exec 9>&-
  fi
  echo "$name=$out"
done < <(programs)
