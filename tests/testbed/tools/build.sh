#!/usr/bin/env bash
# Builds the pinned Go programs of the test control plane, once, into a cache outside the checkout, and prints
# one `name=path` line for each on stdout; progress goes to stderr. A cached build costs milliseconds.
# With names (`build.sh helm kubectl`) it builds only those; some programs are built only on request.
# WVA_TESTBED_CACHE=DIR moves the cache; WVA_TESTBED_BIN=DIR uses ready binaries instead (nothing is built).
# WVA_TESTBED_KUBERNETES=oldest builds the oldest Kubernetes that wva supports, in place of the newest one.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${WVA_TESTBED_CACHE:-${HOME:?HOME is not set}/.cache/wva-testbed}

# On a terminal, in place of the progress of another build.
say() { if [ -t 2 ]; then printf '\r\033[K' >&2; fi; printf '%s\n' "$*" >&2; }

case ${WVA_TESTBED_KUBERNETES:-newest} in
  newest) kubernetes="kubernetes" ;;
  oldest) kubernetes="kubernetes-oldest" ;;
  *) say "WVA_TESTBED_KUBERNETES=$WVA_TESTBED_KUBERNETES is neither newest nor oldest"; exit 2 ;;
esac
k8s=$(awk '$1 == "require" && $2 == "k8s.io/kubernetes" { print $3 }' "$here/$kubernetes/go.mod")
minor=${k8s#v1.} minor=${minor%%.*}

# Build settings of every program; part of the cache key.
build=(go build -mod=readonly -buildvcs=false -trimpath)
link="-s -w"

# folder | package | extra go build flags | linker flags | binary
programs() {
  local v="-X k8s.io/component-base/version.gitVersion=$k8s -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=$minor"
  echo "etcd|go.etcd.io/etcd/server/v3|||etcd"
  echo "kwok|sigs.k8s.io/kwok/cmd/kwok|||kwok"
  # Without the service discoveries of every cloud the binary and its build are half the size; file discovery stays.
  echo "prometheus|github.com/prometheus/prometheus/cmd/prometheus|-tags=remove_all_sd||prometheus"
  for p in kube-apiserver kube-controller-manager kube-scheduler kubectl; do
    echo "$kubernetes|k8s.io/kubernetes/cmd/$p||$v|$p"
  done
}

# Programs that the control plane does not need: built only on request.
on_request() {
  # Helm's version is a variable; without it `helm version` prints v4.3.
  echo "helm|helm.sh/helm/v4/cmd/helm||-X helm.sh/helm/v4/internal/version.version=v4.3.1|helm"
  # The same holds for the Kubernetes version of renders without a cluster, as in releases of Helm 3.
  local k="-X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=37"
  echo "helm3|helm.sh/helm/v3/cmd/helm||-X helm.sh/helm/v3/internal/version.version=v3.22.0 $k|helm3"
  # Program of tests/alerts.sh.
  echo "prometheus|github.com/prometheus/prometheus/cmd/promtool|-tags=remove_all_sd||promtool"
  echo "actionlint|github.com/rhysd/actionlint/cmd/actionlint|||actionlint"
  echo "vegeta|github.com/tsenart/vegeta/v12|||vegeta"
  # Programs of `make test-consumers`.
  local keda=github.com/kedacore/keda/v2
  for p in operator adapter; do echo "keda|$keda/cmd/$p||-X $keda/version.Version=2.21.0|keda-$p"; done
  # The Prometheus operator's configuration finds targets through the API server.
  echo "prometheus|github.com/prometheus/prometheus/cmd/prometheus|-tags=remove_all_sd,enable_kubernetes_sd||prometheus-kubernetes"
  echo "prometheus-operator|github.com/prometheus-operator/prometheus-operator/cmd/operator|||prometheus-operator"
  echo "cert-manager|.|||cert-manager"
  # Forward proxy of tests/e2e/shared/proxy.rs.
  echo "proxy|.|||proxy"
  # Registry of tests/release.sh.
  echo "registry|github.com/google/go-containerregistry/cmd/registry|||registry"
  # Program of `make test-router`.
  echo "epp|sigs.k8s.io/gateway-api-inference-extension/cmd/epp|||epp"
}

# Selected rows.
wanted() {
  if [ $# -eq 0 ]; then programs; return; fi
  local all name row
  all=$(programs; on_request)
  for name in "$@"; do
    row=$(awk -F'|' -v name="$name" '$5 == name' <<<"$all")
    [ -n "$row" ] || { say "no program '$name' is pinned here; there are: $(cut -d'|' -f5 <<<"$all" | tr '\n' ' ')"; return 2; }
    printf '%s\n' "$row"
  done
}
rows=$(wanted "$@")

if [ -n "${WVA_TESTBED_BIN:-}" ]; then
  while IFS='|' read -r _ _ _ _ name; do
    [ -x "$WVA_TESTBED_BIN/$name" ] || { say "WVA_TESTBED_BIN=$WVA_TESTBED_BIN has no executable '$name': put it there, or unset WVA_TESTBED_BIN to have it built"; exit 1; }
    echo "$name=$WVA_TESTBED_BIN/$name"
  done <<<"$rows"
  exit 0
fi

command -v flock >/dev/null || { say "flock is not installed: it comes with util-linux"; exit 1; }
command -v go >/dev/null || { say "go is not installed: the test control plane is built from Go modules (Go 1.26 or later); or set WVA_TESTBED_BIN to a folder of ready binaries"; exit 1; }

number=0 total=$(wc -l <<<"$rows")
while IFS='|' read -r folder package flags ldflags name; do
  number=$((number + 1))
  # Rebuild a program only when its modules, its row, the common command or its source in this repository change.
  key=$({ cat "$here/$folder/go.mod" "$here/$folder/go.sum"; cat "$here/$folder/main.go" 2> /dev/null; echo "${build[*]}|$link|$folder|$package|$flags|$ldflags|$name"; } | sha256sum | cut -c1-16)
  out="$cache/$folder-$key/$name"
  if [ ! -x "$out" ]; then
    mkdir -p "$(dirname "$out")"
    # One builder at a time for each binary: two test runs that start cold must not build it twice.
    exec 9>"$out.lock"
    if ! flock -n 9; then say "testbed: waiting for another build of $name"; flock 9; fi
    if [ ! -x "$out" ]; then
      say "testbed: building $name, $number of $total (once; kubernetes takes minutes) ..."
      began=$SECONDS
      # The compiler makes no DWARF, which `-s -w` would drop: an eighth of its work.
      # shellcheck disable=SC2086 # flags are separate words
      (cd "$here/$folder" && GOFLAGS="${GOFLAGS:-} -gcflags=all=-dwarf=false" CGO_ENABLED=0 "${build[@]}" $flags -ldflags "$link $ldflags" -o "$out.tmp" "$package") </dev/null > "$out.log" 2>&1 ||
        { tail -n 40 "$out.log" >&2; say "testbed: $name was not built; all of its log: $out.log"; exit 1; }
      mv "$out.tmp" "$out"
      say "testbed: built $name in $((SECONDS - began)) s"
    fi
    exec 9>&-
  fi
  echo "$name=$out"
done <<<"$rows"
