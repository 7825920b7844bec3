#!/usr/bin/env bash
# Installs or upgrades the controller and a variant of a model by the Helm chart of this checkout: the namespace with its
# labels, the CRD (which Helm installs once and never upgrades), the release. Run again, it changes what has changed.
# Further arguments go to Helm: deploy/install.sh --set hpa.maxReplicas=20
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: [VARIABLE=VALUE ...] deploy/install.sh [HELM ARGUMENTS...]
       deploy/install.sh --uninstall

HPA_STABILIZATION_SECONDS  how long the HPA looks back before it scales, up and down (240)
CONTROLLER_INSTANCE        name of this controller among several in one cluster (none)
WVA_NS                     namespace of the controller (workload-variant-autoscaler-system)
WVA_RELEASE_NAME           name of the Helm release (workload-variant-autoscaler)
WVA_IMAGE_REPO             repository of the image (the chart's)
WVA_IMAGE_TAG              tag of the image (the chart's)
LLMD_NS                    namespace of the model server, which must exist (llm-d-autoscaler)
MODEL_ID                   model, as clients name it in requests (the chart's)
ACCELERATOR_TYPE           accelerator of the variant (the chart's)
PROMETHEUS_URL             URL of Prometheus (the chart's: OpenShift's Thanos)
PROMETHEUS_CA_CERT         file with the CA of Prometheus (none)
HELM, KUBECTL              the programs (helm, kubectl)
TEXT
}

namespace=${WVA_NS:-workload-variant-autoscaler-system}
release=${WVA_RELEASE_NAME:-workload-variant-autoscaler}
models=${LLMD_NS:-llm-d-autoscaler}
helm=${HELM:-helm}
kubectl=${KUBECTL:-kubectl}
chart=$(cd "$(dirname "${BASH_SOURCE[0]}")/../charts/workload-variant-autoscaler" && pwd)

fail() { printf 'install.sh: %s\n' "$*" >&2; exit 1; }

checks() {
  local program
  for program in "$helm" "$kubectl"; do
    command -v "$program" > /dev/null || fail "$program is not installed; HELM and KUBECTL name others"
  done
  [[ ${HPA_STABILIZATION_SECONDS:-240} =~ ^[0-9]+$ ]] || fail "HPA_STABILIZATION_SECONDS is '$HPA_STABILIZATION_SECONDS', not a number of seconds such as 240"
  [ -z "${PROMETHEUS_CA_CERT:-}" ] || [ -r "$PROMETHEUS_CA_CERT" ] || fail "PROMETHEUS_CA_CERT: $PROMETHEUS_CA_CERT cannot be read"
  "$kubectl" get namespace "$models" > /dev/null || fail "namespace $models of the model server cannot be read: install the model server first, or name its namespace with LLMD_NS"
}

# The labels of the original's instructions: OpenShift's user monitoring looks for the last.
namespace() {
  "$kubectl" apply --server-side -f - <<YAML
apiVersion: v1
kind: Namespace
metadata:
  name: $namespace
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
  args+=(--set "hpa.behavior.scaleUp.stabilizationWindowSeconds=$seconds")
  args+=(--set "hpa.behavior.scaleDown.stabilizationWindowSeconds=$seconds")
  args+=(--set-string "wva.controllerInstance=${CONTROLLER_INSTANCE:-}" --set-string "llmd.namespace=$models")
  [ -z "${WVA_IMAGE_REPO:-}" ] || args+=(--set-string "wva.image.repository=$WVA_IMAGE_REPO")
  [ -z "${WVA_IMAGE_TAG:-}" ] || args+=(--set-string "wva.image.tag=$WVA_IMAGE_TAG")
  [ -z "${MODEL_ID:-}" ] || args+=(--set-string "llmd.modelID=$MODEL_ID")
  [ -z "${ACCELERATOR_TYPE:-}" ] || args+=(--set-string "va.accelerator=$ACCELERATOR_TYPE")
  [ -z "${PROMETHEUS_URL:-}" ] || args+=(--set-string "wva.prometheus.baseURL=$PROMETHEUS_URL")
  [ -z "${PROMETHEUS_CA_CERT:-}" ] || args+=(--set-file "wva.prometheus.caCert=$PROMETHEUS_CA_CERT")
  # The CRD is applied above, where an old one is upgraded too.
  "$helm" upgrade --install "$release" "$chart" --namespace "$namespace" --skip-crds "${args[@]}" "$@"
  # Not by Helm's --wait: that of Helm 4 waits for the VariantAutoscaling to have metrics as well.
  "$kubectl" --namespace "$namespace" rollout status deployment --selector "app.kubernetes.io/instance=$release" --timeout 5m
}

case ${1:-} in
  -h | --help) usage ;;
  --uninstall)
    # The CRD stays, and with it the VariantAutoscalings of others.
    "$helm" uninstall "$release" --namespace "$namespace" --wait ;;
  *)
    checks
    namespace
    crd
    release "$@" ;;
esac
