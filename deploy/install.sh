#!/usr/bin/env bash
# Installs or upgrades the controller and a variant of a model by the Helm chart of this checkout, with the defaults of llm-d
# WVA's script and chart: the namespace with its labels, the CRD (which Helm installs once and never upgrades), the release.
# Run again, it changes what has changed. Further arguments go to Helm: deploy/install.sh --set hpa.maxReplicas=20
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: [VARIABLE=VALUE ...] deploy/install.sh [HELM ARGUMENTS...]
       deploy/install.sh --uninstall [HELM ARGUMENTS...]

HPA_STABILIZATION_SECONDS  how long the HPA looks back before it scales, up and down (240)
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

Both act on the current context of KUBECONFIG, and on the namespaces above. Further defaults are those of
values-llm-d-wva.yaml in the chart.
TEXT
}

namespace=${WVA_NS:-workload-variant-autoscaler-system}
release=${WVA_RELEASE_NAME:-workload-variant-autoscaler}
models=${LLMD_NS:-llm-d-autoscaler}
helm=${HELM:-helm}
kubectl=${KUBECTL:-kubectl}
chart=$(cd "$(dirname "${BASH_SOURCE[0]}")/../charts/workload-variant-autoscaler" && pwd)

fail() { printf 'install.sh: %s\n' "$*" >&2; exit 1; }

# What Helm alone would be told, and kubectl not: it would go on with another cluster, another namespace, or for real.
arguments() {
  local argument
  for argument in "$@"; do
    case $argument in
      --kube-* | --kubeconfig*) fail "$argument is told to Helm alone, and kubectl acts on another cluster then: choose it by KUBECONFIG and kubectl config use-context" ;;
      -n* | --namespace*) fail "$argument: WVA_NS names the namespace" ;;
      --dry-run*) fail "$argument is told to Helm alone, and the namespace and the CRD are applied for real: see a render by helm template" ;;
    esac
  done
}

# A text as Helm's --set reads it back: a comma would end it, a brace begin a list.
# shellcheck disable=SC2001 # in a replacement of bash's own, & means one thing before 5.2 and another since
literal() { sed 's/[\\,{]/\\&/g' <<<"$1"; }

checks() {
  local program
  for program in "$helm" "$kubectl"; do
    command -v "$program" > /dev/null || fail "$program is not installed; HELM and KUBECTL name others"
  done
  [[ ${HPA_STABILIZATION_SECONDS:-240} =~ ^(0|[1-9][0-9]{0,2}|[12][0-9]{3}|3[0-5][0-9]{2}|3600)$ ]] || fail "HPA_STABILIZATION_SECONDS is '$HPA_STABILIZATION_SECONDS', not a number of seconds such as 240, at most 3600"
  [[ $namespace =~ ^[a-z0-9]([-a-z0-9]*[a-z0-9])?$ ]] || fail "WVA_NS is '$namespace', which no namespace is called: lower-case letters, digits and dashes"
  [ -z "${PROMETHEUS_CA_CERT:-}" ] || [ -r "$PROMETHEUS_CA_CERT" ] || fail "PROMETHEUS_CA_CERT: $PROMETHEUS_CA_CERT cannot be read"
  "$kubectl" get namespace "$models" > /dev/null || fail "namespace $models of the model server cannot be read: install the model server first, or name its namespace with LLMD_NS"
}

# The labels of the original's instructions: OpenShift's user monitoring looks for the last.
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

# Whoever applied the CRD before gives way: there is one, and this is the one the controller was built with.
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
  # The CRD is applied above, where an old one is upgraded too.
  "$helm" upgrade --install "$release" "$chart" --namespace "$namespace" --skip-crds "${args[@]}" "$@"
  # Not by Helm's --wait: that of Helm 4 waits for the VariantAutoscaling to have metrics as well.
  local selected=(deployment --namespace "$namespace" --selector "app.kubernetes.io/instance=$release")
  [ -z "$("$kubectl" get "${selected[@]}" --output name)" ] || "$kubectl" rollout status "${selected[@]}" --timeout 5m
}

case ${1:-} in
  -h | --help) usage ;;
  --uninstall)
    # The CRD stays, and with it the VariantAutoscalings of others.
    "$helm" uninstall "$release" --namespace "$namespace" --wait "${@:2}" ;;
  *)
    arguments "$@"
    checks
    namespace
    crd
    release "$@" ;;
esac
