#!/usr/bin/env bash
# Installs or upgrades the controller and a variant of a model with the Helm chart of this checkout and the defaults of llm-d
# WVA's script and chart: the namespace with its labels, the CRD (which Helm installs once and never upgrades), the release.
# Run it again to upgrade. Further arguments go to Helm: deploy/install.sh --set hpa.maxReplicas=20
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: [VARIABLE=VALUE ...] deploy/install.sh [HELM ARGUMENTS...]
       deploy/install.sh --uninstall [HELM ARGUMENTS...]

HPA_STABILIZATION_SECONDS  stabilization window of the HPA in seconds, up and down (240)
CONTROLLER_INSTANCE        name of this controller among several in one cluster (none)
WVA_NS                     namespace of the controller (workload-variant-autoscaler-system)
WVA_RELEASE_NAME           name of the Helm release (workload-variant-autoscaler)
WVA_IMAGE_REPO             repository of the image (the chart's)
WVA_IMAGE_TAG              tag of the image (the chart's)
LLMD_NS                    namespace of the model server, which must exist (llm-d-autoscaler)
MODEL_ID                   model, as clients name it in requests (unsloth/Meta-Llama-3.1-8B)
ACCELERATOR_TYPE           accelerator of the variant (H100)
PROMETHEUS_URL             URL of Prometheus (OpenShift's Thanos)
PROMETHEUS_CA_CERT         file with the CA of Prometheus (none)
HELM, KUBECTL              the programs (helm, kubectl)

Both use the current context of KUBECONFIG and the namespaces above. The other defaults are in values-llm-d-wva.yaml of
the chart.
TEXT
}

namespace=${WVA_NS:-workload-variant-autoscaler-system}
release=${WVA_RELEASE_NAME:-workload-variant-autoscaler}
models=${LLMD_NS:-llm-d-autoscaler}
helm=${HELM:-helm}
kubectl=${KUBECTL:-kubectl}
chart=$(cd "$(dirname "${BASH_SOURCE[0]}")/../charts/workload-variant-autoscaler" && pwd)

fail() { printf 'install.sh: %s\n' "$*" >&2; exit 1; }

# Refuses arguments that reach Helm but not kubectl, which would use another cluster or namespace, or change the cluster.
arguments() {
  local argument
  for argument in "$@"; do
    case $argument in
      --kube-* | --kubeconfig*) fail "$argument reaches only Helm, and kubectl would use another cluster: choose the cluster with KUBECONFIG and kubectl config use-context" ;;
      -n* | --namespace*) fail "$argument: set the namespace with WVA_NS" ;;
      --dry-run*) fail "$argument reaches only Helm, and kubectl would change the namespace and the CRD: use helm template to see a render" ;;
    esac
  done
}

# Escapes a text for Helm's --set, where a comma ends a value and a brace begins a list.
# shellcheck disable=SC2001 # & in a bash replacement has another meaning since 5.2
literal() { sed 's/[\\,{]/\\&/g' <<<"$1"; }

checks() {
  local program
  for program in "$helm" "$kubectl"; do
    command -v "$program" > /dev/null || fail "$program is not installed: install it, or set HELM or KUBECTL"
  done
  [[ ${HPA_STABILIZATION_SECONDS:-240} =~ ^(0|[1-9][0-9]{0,2}|[12][0-9]{3}|3[0-5][0-9]{2}|3600)$ ]] || fail "HPA_STABILIZATION_SECONDS is '$HPA_STABILIZATION_SECONDS', not a number of seconds such as 240, at most 3600"
  [[ $namespace =~ ^[a-z0-9]([-a-z0-9]*[a-z0-9])?$ ]] || fail "WVA_NS is '$namespace', not a valid namespace: use lower-case letters, digits and dashes"
  [ -z "${PROMETHEUS_CA_CERT:-}" ] || [ -r "$PROMETHEUS_CA_CERT" ] || fail "PROMETHEUS_CA_CERT: cannot read $PROMETHEUS_CA_CERT"
  "$kubectl" get namespace "$models" > /dev/null || fail "cannot read namespace $models of the model server: install the model server first, or set its namespace with LLMD_NS"
}

# Labels of llm-d WVA's instructions; OpenShift's user monitoring reads the last one.
namespace() {
  "$kubectl" apply --server-side -f - <<YAML
apiVersion: v1
kind: Namespace
metadata:
  name: "$namespace"
  labels:
    app.kubernetes.io/name: workload-variant-autoscaler
    control-plane: controller-manager
    openshift.io/user-monitoring: "true"
YAML
}

# Takes over the CRD from earlier appliers: the controller needs this version.
crd() {
  "$kubectl" apply --server-side --force-conflicts -f "$chart/crds"
}

release() {
  local seconds=${HPA_STABILIZATION_SECONDS:-240} args=()
  args+=(--values "$chart/values-llm-d-wva.yaml")
  args+=(--set "hpa.behavior.scaleUp.stabilizationWindowSeconds=$seconds")
  args+=(--set "hpa.behavior.scaleDown.stabilizationWindowSeconds=$seconds")
  args+=(--set-string "wva.controllerInstance=$(literal "${CONTROLLER_INSTANCE:-}")" --set-string "llmd.namespace=$(literal "$models")")
  [ -z "${WVA_IMAGE_REPO:-}" ] || args+=(--set-string "image.repository=$(literal "$WVA_IMAGE_REPO")")
  [ -z "${WVA_IMAGE_TAG:-}" ] || args+=(--set-string "image.tag=$(literal "$WVA_IMAGE_TAG")")
  [ -z "${MODEL_ID:-}" ] || args+=(--set-string "llmd.modelID=$(literal "$MODEL_ID")")
  [ -z "${ACCELERATOR_TYPE:-}" ] || args+=(--set-string "va.accelerator=$(literal "$ACCELERATOR_TYPE")")
  [ -z "${PROMETHEUS_URL:-}" ] || args+=(--set-string "wva.prometheus.baseURL=$(literal "$PROMETHEUS_URL")")
  [ -z "${PROMETHEUS_CA_CERT:-}" ] || args+=(--set-file "wva.prometheus.caCert=$(literal "$PROMETHEUS_CA_CERT")")
  # crd() has applied or upgraded the CRD.
  "$helm" upgrade --install "$release" "$chart" --namespace "$namespace" --skip-crds "${args[@]}" "$@"
  # Not Helm's --wait: that of Helm 4 also waits until the VariantAutoscaling has metrics.
  local selected=(deployment --namespace "$namespace" --selector "app.kubernetes.io/instance=$release")
  [ -z "$("$kubectl" get "${selected[@]}" --output name)" ] || "$kubectl" rollout status "${selected[@]}" --timeout 5m
}

case ${1:-} in
  -h | --help) usage ;;
  --uninstall)
    # Keep the CRD: deleting it would delete all VariantAutoscalings.
    "$helm" uninstall "$release" --namespace "$namespace" --wait "${@:2}" ;;
  *)
    arguments "$@"
    checks
    namespace
    crd
    release "$@" ;;
esac
