#!/usr/bin/env bash
# Checks renders of the Helm chart without a cluster: lint; two identical renders of every case of tests/chart/cases.sh; the
# names of all objects (tests/chart/objects.txt; `tests/chart.sh --write` writes it); permissions and webhook configurations
# against config/base; refusals; and an effect of every documented key. Builds Helm once from its pinned module. Keeps
# renders under target/chart.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
chart=charts/workload-variant-autoscaler
system=workload-variant-autoscaler-system
release=workload-variant-autoscaler
out=target/chart
mkdir -p $out
# Ignore the user's own Helm configuration.
export HELM_CONFIG_HOME=$PWD/$out/helm HELM_CACHE_HOME=$PWD/$out/helm HELM_DATA_HOME=$PWD/$out/helm
unset KUBECONFIG HELM_NAMESPACE
helm=$(tests/testbed/tools/build.sh helm)
helm=${helm#helm=}

# Collect all faults instead of stopping at the first.
faults=0
fault() { printf 'chart: %s\n' "$*" >&2; faults=$((faults + 1)); }
prometheus=tests/chart/prometheus.yaml
render() { "$helm" template $release $chart --namespace $system -f $prometheus "$@"; }
# One line of JSON for each object of a file; with a second argument one line for each permission.
json() { "$helm" template json tests/chart/json --set-file manifest="$1" ${2:+--set rules=true} | grep '^{'; }
# One line for each field of a file's objects: Kind/name.path = value.
fields() { "$helm" template json tests/chart/json --set-file manifest="$1" --set fields=true | sed -n 's/^  //p'; }
# One line for each object of a file of JSON lines: Kind namespace/name.
names() { sed -E 's/^\{("apiVersion":"[^"]*",)?.*"kind":"([A-Za-z]+)","metadata":\{(("annotations"|"labels"):\{[^}]*\},)*"name":"([^"]*)"(,"namespace":"([^"]*)")?.*/\2 \7\/\5/' "$1"; }
holds() { grep -qF -- "$2" <<<"$1" || fault "$3: not in the render: $2"; }
lacks() { ! grep -qF -- "$2" <<<"$1" || fault "$3: must not be in the render: $2"; }

echo "== copies and generated files"
version=$(sed -n 's/^appVersion: //p' $chart/Chart.yaml)
grep -qE "^ +image: [a-zA-Z./]+:$version$" $chart/Chart.yaml || fault "Chart.yaml: the image of artifacthub.io/images does not have the tag $version"
cmp crds/llmd.ai_variantautoscalings.yaml $chart/crds/llmd.ai_variantautoscalings.yaml || fault "the chart's CRD is not the repository's: make generate"
charts/readme.sh --check || fault "charts/readme.sh --check failed"

# Every field of an entry is a value with a visible default, except `optimizer`, which is accepted and ignored.
diff <(sed -n 's/^    "\([a-z][A-Za-z]*\)": {$/\1/p' crds/schemas/saturation-entry.schema.json | grep -vE '^(namespace|optimizer)$' | LC_ALL=C sort) \
  <(sed -n 's/^| wva\.capacityScaling\.default\.\([A-Za-z]*\) .*/\1/p' $chart/README.md | LC_ALL=C sort) || fault "wva.capacityScaling.default does not show every field of an entry (see above)"

echo "== every case: lint, two renders, names"
objects=$out/objects.txt
: > $objects
cases=0
case_() {
  local name=$1 file=$out/$1.yaml
  shift
  cases=$((cases + 1))
  if ! render "$@" > "$file" 2> "$file.err"; then fault "$name does not render: $(cat "$file.err")"; return; fi
  render "$@" | cmp - "$file" || fault "$name: two renders differ"
  local lint=() skip=0 arg
  for arg in "$@"; do # lint knows no --api-versions
    if [ "$arg" = --api-versions ]; then skip=1; elif [ $skip = 1 ]; then skip=0; else lint+=("$arg"); fi
  done
  "$helm" lint $chart --strict --quiet -f $prometheus "${lint[@]}" > "$file.lint" 2>&1 || fault "$name: helm lint: $(cat "$file.lint")"
  json "$file" > "$out/$name.json"
  { echo "$name"
    names "$out/$name.json" | sed 's|^|  |; s| /| |' | LC_ALL=C sort
  } >> $objects
  if grep -q '"caBundle"\|"rules":\[[^]]*"operations"' "$out/$name.json"; then fault "$name: a webhook with rules or caBundle: the program adds those"; fi
  if grep '"kind":"Secret"' "$out/$name.json" | grep -q '"data"\|"stringData"'; then fault "$name: a Secret with data"; fi
}
# shellcheck source=tests/chart/cases.sh
. tests/chart/cases.sh
while read -r word name arguments; do
  # shellcheck disable=SC2086,SC2154 # arguments are separate words; cases.sh sets compat
  if [ "$word" = case ]; then case_ "$name" $compat $arguments; fi
done < tests/chart/documents.txt

echo "== Helm 3: lint and render of every profile"
helm3=$(tests/testbed/tools/build.sh helm3)
for file in "$chart"/values*.yaml; do
  "${helm3#helm3=}" lint $chart --strict --quiet -f $prometheus -f "$file" > $out/helm3.lint 2>&1 || fault "Helm 3, $file: $(cat $out/helm3.lint)"
  "${helm3#helm3=}" template $release $chart --namespace $system -f "$file" -f $prometheus > $out/helm3.yaml 2> $out/helm3.err || fault "Helm 3, $file: $(cat $out/helm3.err)"
done
if [ "${1:-}" = --write ]; then cp $objects tests/chart/objects.txt; fi
diff -u tests/chart/objects.txt $objects || fault "objects or names have changed (see above): if that is meant, tests/chart.sh --write, and commit"

echo "== wva validate finds no violation, and no warning but of old names of objectives (WVA-CM-065), in any case"
wva=${CARGO_TARGET_DIR:-target}/debug/wva
[ -x "$wva" ] || { echo "chart: $wva does not exist: run make build" >&2; exit 1; }
for file in "$out"/*.json; do
  name=$(basename "$file" .json)
  # A render for an old cluster has no fields that it lacks.
  version=()
  case $name in kubernetes-*) version=(--kube-version "${name#kubernetes-}") ;; esac
  "$wva" validate "${version[@]}" "${file%.json}.yaml" > "${file%.json}.findings" 2>&1 ||
    fault "$file: $(cat "${file%.json}.findings")"
  ! grep -E 'WVA-[A-Z]+-[0-9]+' "${file%.json}.findings" | grep -qv WVA-CM-065 ||
    fault "$file: $(cat "${file%.json}.findings")"
done

echo "== promises of llm-d WVA's documents (tests/chart/documents.txt)"
promises=0
while IFS= read -r line; do
  case $line in
    "" | \#*) continue ;;
    case\ *) name=${line#case }; name=${name%% *}; fields "$out/$name.yaml" > "$out/$name.fields"; continue ;;
    *" = "*) grep -qxF -- "$line" "$out/$name.fields" || fault "$name: $line, and the render has: $(grep -F -- "${line%% = *} = " "$out/$name.fields")" ;;
    *) ! grep -qF -- "$line = " "$out/$name.fields" || fault "$name: must not be in the render: $(grep -F -- "$line = " "$out/$name.fields")" ;;
  esac
  promises=$((promises + 1))
done < tests/chart/documents.txt
[ $promises -gt 80 ] || fault "tests/chart/documents.txt has only $promises promises"

echo "== webhook configurations against config/base/webhook.yaml"
entries="'$release-wva-saturation-scaling-config', 'wva-saturation-scaling-config'"
sed -e "s/'wva-variantautoscaling-config'/'$release-variantautoscaling-config'/" -e "s/'wva-saturation-scaling-config'/$entries/" \
  -e "s/'serviceclass'/'serviceclass', '$release-service-classes-config'/" config/base/webhook.yaml > $out/base-webhook.yaml
# The base looks for a part of the name, for overlays with a prefix or suffix; a release knows its names.
exact="s/\"\[([^]]*)\]\.exists\(name, request\.name\.contains\(name\)\)\"/\"request.name in [\1]\"/; s/request\.name\.contains\(('[^']*')\)/request.name == \1/"
diff -u --label config/base --label chart <(json $out/base-webhook.yaml | sed -E "$exact") <(grep WebhookConfiguration $out/defaults.json | sed -E 's/"labels":\{[^}]*\},//') > $out/webhook.diff || fault "they differ: $(cat $out/webhook.diff)"

echo "== admission policies against config/base/admission-policy.yaml"
sed "s/wva-variantautoscaling-config/$release-variantautoscaling-config/" config/base/admission-policy.yaml > $out/base-policy.yaml
diff -u --label config/base --label chart <(json $out/base-policy.yaml) <(grep '"kind":"ValidatingAdmissionPolicy' $out/defaults.json | sed -E 's/"labels":\{"app[^}]*\},//') > $out/policy.diff || fault "they differ: $(cat $out/policy.diff)"
for file in "$out"/*.yaml; do
  ! grep -qF "\$(inst" "$file" || fault "$file: a placeholder of the admission policy is left"
done

echo "== settings and controller against config/base/configmaps.yaml and deployment.yaml"
# The same product: all but the connection to Prometheus, the labels and annotations of a release, and names.
cat config/base/configmaps.yaml <(echo ---) config/base/deployment.yaml > $out/base-product.yaml
product() {
  fields "$1" | sed -e "s/$release-variantautoscaling-config/wva-variantautoscaling-config/g" |
    grep -E '^(ConfigMap|Deployment)/' | grep -vE 'PROMETHEUS_(BASE_URL|CA_CERT_PATH|TOKEN_PATH)|\.(labels|annotations|matchLabels)\.|revisionHistoryLimit|imagePullPolicy|containers\.manager\.args\.|\.image = |SERVICE_CLASS_CONFIG_MAP_NAME' | LC_ALL=C sort
}
diff -u --label config/base --label chart <(product $out/base-product.yaml) <(product $out/defaults.yaml) > $out/product.diff || fault "they differ: $(head -c 2000 $out/product.diff)"

echo "== policy for pods against config/pod-deletion-cost/policy.yaml"
render --set wva.podDeletionCost=true --show-only templates/admission-policy.yaml > $out/pods.yaml || fault "wva.podDeletionCost=true does not render"
account=system:serviceaccount:workload-variant-autoscaler-system:workload-variant-autoscaler-controller-manager
sed -E "s/expression: \"request.userInfo.username.startsWith.*/expression: \"request.userInfo.username == '$account'\"/" config/pod-deletion-cost/policy.yaml > $out/base-pods.yaml
diff -u --label config/pod-deletion-cost --label chart <(json $out/base-pods.yaml) <(json $out/pods.yaml | grep 'pod-deletion-cost' | sed -E 's/"labels":\{"app[^}]*\},//') > $out/pods.diff || fault "they differ: $(cut -c1-400 $out/pods.diff)"
lacks "$(json $out/defaults.yaml)" 'pod-deletion-cost"' defaults

echo "== permissions against config/base/rbac.yaml"
sed "s/wva-variantautoscaling-config/$release-variantautoscaling-config/" config/base/rbac.yaml > $out/base-rbac.yaml
missing=$(LC_ALL=C comm -23 <(json $out/base-rbac.yaml rules | LC_ALL=C sort -u) <(json $out/external-metrics.yaml rules | LC_ALL=C sort -u))
[ -z "$missing" ] || fault "the chart grants less than config/base/rbac.yaml: $missing"
for name in namespaced namespaced-limited; do
  wide=$(grep '"kind":"ClusterRole"' $out/$name.json | grep -v 'variantautoscaling-\|metrics-reader' | grep -oE '"resources":\["[a-z]+' | sort -u | tr '\n' ' ')
  limited=; [ $name = namespaced ] || limited='"resources":["nodes "resources":["pods "resources":["resourceslices '
  [ "$wide" = '"resources":["mutatingwebhookconfigurations '"$limited"'"resources":["subjectaccessreviews "resources":["tokenreviews ' ] || fault "$name: a ClusterRole for $wide"
done
# Read whole: with pipefail, `grep -q` ends the render before its end.
for set in wva.podDeletionCost=true wva.settings.WVA_ACTUATION=scale wva.podDeletionCost=true,wva.namespaceScoped=true; do
  render --set $set > $out/costs.yaml || { fault "--set $set does not render"; continue; }
  holds "$(json $out/costs.yaml rules)" '"rule": "patch /pods ' "--set $set"
done
# The roles of users have these rights, too.
for set in wva.annotations=true wva.settings.WVA_ANNOTATIONS=true wva.annotations=true,wva.namespaceScoped=true; do
  render --set $set,rbac.variantRoles=false > $out/annotations.yaml || { fault "--set $set does not render"; continue; }
  for verb in create patch delete; do
    holds "$(json $out/annotations.yaml rules)" "\"rule\": \"$verb llmd.ai/variantautoscalings " "--set $set"
  done
  holds "$(json $out/annotations.yaml)" '"WVA_ANNOTATIONS":"true"' "--set $set"
done
lacks "$(json $out/defaults.yaml rules)" '"rule": "patch /pods ' defaults
render --set rbac.variantRoles=false > $out/annotations.yaml
for verb in create patch delete; do
  lacks "$(json $out/annotations.yaml rules)" "\"rule\": \"$verb llmd.ai/variantautoscalings " defaults
done
render --set wva.podDeletionCost=false,wva.settings.WVA_ACTUATION=scale > $out/costs.yaml || fault "wva.podDeletionCost=false does not render"
lacks "$(json $out/costs.yaml rules)" '"rule": "patch /pods ' "wva.podDeletionCost=false with WVA_ACTUATION=scale"
render --show-only templates/tests/doctor.yaml > $out/test.yaml
writes=$(json $out/test.yaml rules | grep -v '"rule": "\(get\|list\) ' || true)
[ -z "$writes" ] || fault "helm test may do more than read: $writes"
for file in "$out"/*.json; do
  lacks "$(json "${file%.json}.yaml" rules)" '*' "$file: permissions"
done

echo "== the administrator of one namespace: no cluster-scoped object, and none elsewhere"
# The release of that profile has objects of its namespace only, whatever else is set.
while read -r arguments; do
  # shellcheck disable=SC2086 # arguments are separate words
  render -f $chart/values-namespace.yaml $arguments > $out/own-namespace.yaml 2> $out/own-namespace.err || { fault "values-namespace.yaml $arguments does not render: $(cat $out/own-namespace.err)"; continue; }
  json $out/own-namespace.yaml > $out/own-namespace.json
  elsewhere=$(names $out/own-namespace.json | grep -v " $system/" || true)
  [ -z "$elsewhere" ] || fault "values-namespace.yaml $arguments: objects outside of the namespace: $elsewhere"
  lacks "$(cat $out/own-namespace.json)" '"kind":"ClusterRole' "values-namespace.yaml $arguments"
  lacks "$(cat $out/own-namespace.json)" 'kube-system' "values-namespace.yaml $arguments"
  holds "$(cat $out/own-namespace.json)" '"--webhook=false"' "values-namespace.yaml $arguments"
done <<ARGUMENTS

-f tests/chart/model.yaml --set llmd.namespace=$system,vllmService.serviceMonitor.enabled=true
--set wva.controllerInstance=a,wva.annotations=true,wva.podDeletionCost=true,wva.capacityScaling.default.enableLimiter=true,wva.prometheus.serviceAccountName=p,wva.prometheus.monitoringNamespace=m
--set wva.webhook.certMode=cert-manager,wva.metrics.serviceMonitor.enabled=true,wva.metrics.prometheusRule.enabled=true,wva.metrics.grafanaDashboard.enabled=true
--set wva.prometheus.baseURL=https://thanos-querier.openshift-monitoring.svc:9091,hostNetwork=true,wva.metrics.enabled=false
--set rbac.create=false,wva.metrics.secure=true,wva.limitedMode=true,serviceAccount.name=wva
--is-upgrade
ARGUMENTS
# What docs/getting-started/install.md lets the administrator of the cluster apply before.
render -f $chart/values-namespace.yaml --set serviceAccount.create=false,serviceAccount.name=wva --show-only templates/rbac-manager.yaml > $out/own-roles.yaml
[ "$(json $out/own-roles.yaml | grep -oE '"kind":"[A-Za-z]+","metadata"' | sort | uniq -c | tr -s ' \n' ' ')" = ' 2 "kind":"Role","metadata" 2 "kind":"RoleBinding","metadata" ' ] || fault "rbac-manager.yaml of values-namespace.yaml has not two Roles with their bindings"

echo "== AKS: every webhook has what the admissions enforcer adds, and policies do not"
aks='{"key":"control-plane","operator":"NotIn","values":["true"]},{"key":"kubernetes.azure.com/managedby","operator":"NotIn","values":["aks"]}]'
webhooks=$(grep WebhookConfiguration $out/aks.json | grep -o '"namespaceSelector"' | wc -l)
[ "$webhooks" = 7 ] && [ "$(grep WebhookConfiguration $out/aks.json | grep -oF "$aks" | wc -l)" = 7 ] || fault "aks: not all of $webhooks webhooks have the expressions"
lacks "$(grep -v WebhookConfiguration $out/aks.json)" azure aks
render --set-string 'wva.webhook.annotations.admissions\.enforcer/disabled=true' --show-only templates/webhooks.yaml > $out/enforcer.yaml
[ "$(grep -c 'admissions.enforcer/disabled: "true"' $out/enforcer.yaml)" = 2 ] || fault "wva.webhook.annotations: not on both webhook configurations"

echo "== hostNetwork: a rollout ends where a node has each port once, and every port is a value"
all=$(cat $out/host-network.json)
holds "$all" '"rollingUpdate":{"maxSurge":0,"maxUnavailable":1}' host-network
holds "$(cat $out/defaults.json)" '"rollingUpdate":{"maxSurge":1,"maxUnavailable":0}' defaults
holds "$all" '["--leader-elect=true","--health-probe-bind-address=:18081","--metrics-bind-address=:18443","--metrics-secure=true","--webhook=true","--webhook-bind-address=:19443","--instance-policy=inject","--cert-mode=self","--external-metrics-bind-address=:16443"]' host-network
holds "$all" '"ports":[{"containerPort":18081,"name":"health"},{"containerPort":18443,"name":"https"},{"containerPort":19443,"name":"webhook"},{"containerPort":16443,"name":"external-metric"},{"containerPort":18082,"hostIP":"127.0.0.1","name":"debug"}]' host-network
holds "$all" '{"name":"WVA_DEBUG_BIND_ADDRESS","value":"127.0.0.1:18082"}' host-network
holds "$all" '{"name":"webhook","port":443,"targetPort":19443},{"name":"external-metrics","port":6443,"targetPort":16443}' host-network
for port in 8081 8082 9443 6443 8443; do lacks "$(grep '"kind":"Deployment"' $out/host-network.json)" ":$port" host-network; done
lacks "$(grep '"kind":"Deployment"' $out/defaults.json)" WVA_DEBUG_BIND_ADDRESS defaults
render --set wva.debug.port=0,hostNetwork=true > $out/no-debug.yaml
holds "$(json $out/no-debug.yaml)" '{"name":"WVA_DEBUG_BIND_ADDRESS","value":"0"}' no-debug
lacks "$(cat $out/no-debug.yaml)" 'hostIP' no-debug

echo "== as a dependency: condition, alias and globals of a parent chart"
parent=$out/parent
rm -rf $parent
mkdir -p $parent/templates
printf '%s\n' 'apiVersion: v2' 'name: platform' 'version: 0.1.0' 'dependencies:' > $parent/Chart.yaml
for alias in '' wva; do
  printf '%s\n' "- name: $release" "  version: $(sed -n 's/^version: //p' $chart/Chart.yaml)" "  repository: file://$PWD/$chart" "  condition: ${alias:-$release}.enabled" ${alias:+"  alias: $alias"} >> $parent/Chart.yaml
done
cat > $parent/values.yaml <<VALUES
global: {imageRegistry: mirror.example, imagePullSecrets: [mirror], storageClass: fast, postgresql: {auth: {username: a}}}
$release: {enabled: true, wva: {prometheus: {baseURL: "http://p:9090"}}}
wva: {enabled: false, wva: {prometheus: {baseURL: "http://p:9090"}, namespaceScoped: true, controllerInstance: a}}
VALUES
"$helm" dependency build $parent > $out/parent.log 2>&1 || fault "helm dependency build: $(cat $out/parent.log)"
parents() { "$helm" template platform $parent --namespace $system "$@" > $out/parent.yaml 2> $out/parent.err || fault "the parent chart with '$*' does not render: $(cat $out/parent.err)"; }
deployments() { json $out/parent.yaml | { grep '"kind":"Deployment"' || true; } | names /dev/stdin | cut -d / -f 2 | LC_ALL=C sort | tr '\n' ' '; }
parents
[ "$(deployments)" = "platform-$release-controller-manager " ] || fault "condition true: $(deployments)"
holds "$(cat $out/parent.yaml)" 'image: "mirror.example/wva:' "a parent's registry"
holds "$(json $out/parent.yaml)" '"imagePullSecrets":[{"name":"mirror"}]' "a parent's secret"
"$helm" lint --strict --quiet $parent > $out/parent.lint 2>&1 || fault "the parent chart: helm lint: $(cat $out/parent.lint)"
parents --set $release.enabled=false
[ -z "$(deployments)" ] || fault "condition false: $(deployments)"
parents --set wva.enabled=true
[ "$(deployments)" = "platform-$release-controller-manager platform-wva-controller-manager " ] || fault "an alias: $(deployments)"
# The registry of the chart's own values has priority.
tag=$(sed -n 's/^appVersion: //p' $chart/Chart.yaml)
released=$(sed -n "s/^ *image: \(.*\):$tag$/\1/p" $chart/Chart.yaml | head -n 1)
while read -r wanted arguments; do
  # shellcheck disable=SC2086 # arguments are separate words
  render --set global.imageRegistry=mirror.example/hub/ $arguments > $out/registry.yaml
  holds "$(cat $out/registry.yaml)" "image: \"$wanted\"" "global.imageRegistry with '$arguments'"
done <<REGISTRIES
mirror.example/hub/wva:$tag
mirror.example/hub/team/wva:$tag --set image.repository=team/wva
mirror.example/hub/${released#*/}:$tag --set image.repository=$released
own.example/wva:$tag --set image.registry=own.example,image.repository=wva
own.example:5000/wva:$tag --set image.repository=own.example:5000/wva
REGISTRIES

echo "== overrides by the name of a model"
printf '%s\n' 'wva: {capacityScaling: {overrides: {"Qwen/Qwen3": {modelID: a}, "../x": {modelID: b}, "meta llama:8b@é": {modelID: c}, .hidden: {modelID: d}}}}' > $out/overrides.values.yaml
render -f $out/overrides.values.yaml > $out/overrides.yaml || fault "overrides by the name of a model do not render"
for key in Qwen-Qwen3 -.-x meta-llama-8b-- .hidden; do holds "$(json $out/overrides.yaml)" "\"$key\":\"model_id: " overrides; done

echo "== facts"
all=$(cat $out/model.json)
holds "$all" '{"name":"CONFIG_MAP_NAME","value":"workload-variant-autoscaler-variantautoscaling-config"}' defaults
holds "$all" '{"name":"SATURATION_CONFIG_MAP_NAME","value":"workload-variant-autoscaler-wva-saturation-scaling-config"}' defaults
holds "$all" '{"name":"WEBHOOK_SERVICE","value":"workload-variant-autoscaler-webhook-service"}' defaults
holds "$all" '{"name":"WEBHOOK_CONFIGURATION","value":"workload-variant-autoscaler-system-workload-variant-autoscaler-webhook"}' defaults
holds "$all" '{"name":"LEADER_ELECTION_ID","value":"72dd1cf1.llm-d.ai"}' defaults
holds "$all" '"--leader-elect=true"' defaults
for name in defaults long-name instance; do
  deployment=$(grep '"kind":"Deployment"' $out/$name.json | sed -E 's/.*"kind":"Deployment","metadata":\{"labels":\{[^}]*\},"name":"([^"]*)".*/\1/')
  holds "$(cat $out/$name.json)" "{\"name\":\"DEPLOYMENT_NAME\",\"value\":\"$deployment\"}" $name
done
# The testbed runs the program with the same (tests/testbed/src/install/program.rs).
holds "$all" '{"name":"MALLOC_ARENA_MAX","value":"1"},{"name":"MALLOC_MMAP_THRESHOLD_","value":"131072"},{"name":"MALLOC_TRIM_THRESHOLD_","value":"131072"}' defaults
holds "$all" '"PROMETHEUS_TLS_INSECURE_SKIP_VERIFY":"false"' defaults
holds "$all" '"default":"analyzerName: throughput\ndrain: 2m\nenableLimiter: false\nkvCacheThreshold: 0.8\nkvSpareTrigger: 0.1\nqueueLengthThreshold: 5\nqueueSpareTrigger: 3\nscaleDownBoundary: 0.7\nscaleUpThreshold: 0.85\nwarmSpare: auto\n"' defaults
holds "$all" '"scaleUp":{"policies":[{"periodSeconds":150,"type":"Pods","value":10}],"selectPolicy":"Max","stabilizationWindowSeconds":0,' defaults
holds "$all" '"type":"ClusterIP"' defaults
for kind in VariantAutoscaling HorizontalPodAutoscaler; do lacks "$(cat $out/defaults.json)" "\"kind\":\"$kind\"" "the operator alone"; done
lacks "$(cat $out/defaults.json)" 'llm-d.ai/model' "the operator alone"
# A spread without labelSelector counts the pods of this release.
holds "$(cat $out/ha.json)" '{"labelSelector":{"matchLabels":{"app.kubernetes.io/instance":"workload-variant-autoscaler","app.kubernetes.io/name":"workload-variant-autoscaler","control-plane":"controller-manager"}},"matchLabelKeys":["pod-template-hash"],"maxSkew":1,"topologyKey":"kubernetes.io/hostname","whenUnsatisfiable":"DoNotSchedule"}' ha
# The CRD of crds/ with labels and the policy, and nothing else changed.
diff <(json $chart/crds/llmd.ai_variantautoscalings.yaml) <(grep CustomResourceDefinition $out/crd.json | sed -E 's/"annotations":\{"helm.sh\/resource-policy":"keep"\},"labels":\{[^}]*\},//') > $out/crd.diff || fault "the rendered CRD is another: $(head -c 1000 $out/crd.diff)"
render --set crds.install=true,crds.keep=false > $out/crd-goes.yaml
lacks "$(cat $out/crd-goes.yaml)" 'helm.sh/resource-policy' crd-goes
! grep -E '^kind: (Cluster)?Role' $out/no-rbac.yaml || fault "no-rbac: a role or a binding"
holds "$(cat $out/no-rbac.yaml)" 'serviceAccountName: "mine"' no-rbac
render -f $chart/values-kube-prometheus-stack.yaml -f tests/chart/model.yaml --set wva.metrics.serviceMonitor.enabled=true,wva.metrics.prometheusRule.enabled=true,vllmService.serviceMonitor.enabled=true > $out/stack.yaml
[ "$(grep -c '^    release: kube-prometheus-stack$' $out/stack.yaml)" = 3 ] || fault "kube-prometheus-stack: not all of monitors and rules have the label of its release"
holds "$all" '"matchLabels":{"exported_namespace":"llm-d-autoscaler","variant_name":"workload-variant-autoscaler-va"}' defaults
holds "$all" '"name":"ms-inference-scheduling-llm-d-modelservice-decode"' defaults
holds "$all" '"tolerance":"0"' defaults
lacks "$(cat $out/kubernetes-1.30.json)" '"tolerance"' kubernetes-1.30
lacks "$all" 'CONTROLLER_INSTANCE' defaults
# A release of a model has only objects of its namespace.
lacks "$(grep -v '"namespace":"llm-d-autoscaler"' $out/tenant.json)" '"kind"' tenant
# Liveness and readiness have different paths: a replica that is not ready must not be restarted.
holds "$all" '"path":"/healthz","port":"health"' defaults
holds "$all" '"path":"/readyz","port":"health"' defaults
# The network policy opens exactly the ports in use.
opens() {
  local wanted=$1 got
  shift
  render --set networkPolicy.enabled=true,wva.prometheus.monitoringNamespace=monitoring "$@" > $out/policy.yaml
  got=$(json $out/policy.yaml | grep '"kind":"NetworkPolicy"' | grep -oE '"port":[0-9]+' | cut -d : -f 2 | tr '\n' ' ')
  [ "$got" = "$wanted " ] || fault "the network policy with '$*' opens $got, not $wanted"
}
opens "8081 9443 8443"
opens "8081 8443" --set wva.webhook.enabled=false
opens "8081 6443 8443" --set wva.webhook.enabled=false,wva.externalMetrics.enabled=true
opens "8081 9444 8443" --set wva.webhook.port=9444
opens "8081 9443 6443" --set wva.externalMetrics.enabled=true,wva.metrics.enabled=false
# Endpoint pickers get short-lived tokens of the picker reader, or the token of the values.
reader="{\"name\":\"EPP_METRIC_READER_SERVICE_ACCOUNT\",\"value\":\"$release-picker-reader\"}"
requests="{\"apiGroups\":[\"\"],\"resourceNames\":[\"$release-picker-reader\"],\"resources\":[\"serviceaccounts/token\"],\"verbs\":[\"create\"]}"
picker='"name":"EPP_METRIC_READER_BEARER_TOKEN"'
holds "$all" "$reader" defaults
holds "$all" "$requests" defaults
lacks "$all" "$picker" defaults
lacks "$all" 'service-account-token' defaults
render --set 'extraEnv[0].name=EPP_METRIC_READER_BEARER_TOKEN,extraEnv[0].value=own' > $out/own-token.yaml
render --set wva.endpointPickers.tokenSecret=mine > $out/token-secret.yaml
for name in own-token token-secret; do
  given=$(json $out/$name.yaml)
  [ "$(grep -o "$picker" <<< "$given" | wc -l)" = 1 ] || fault "$name: the token for endpoint pickers is not set once"
  lacks "$given" '"name":"EPP_METRIC_READER_SERVICE_ACCOUNT"' $name
  lacks "$given" 'serviceaccounts/token' $name
done
all=$(cat $out/instance.json)
holds "$all" '{"name":"LEADER_ELECTION_ID","value":"72dd1cf1.llm-d.ai-workload-variant-autoscaler"}' instance
holds "$all" '"matchLabels":{"controller_instance":"team-a","exported_namespace":"llm-d-autoscaler","variant_name":"workload-variant-autoscaler-va"}' instance
holds "$all" '"name":"mutate-unlabelled.va.llmd.ai","namespaceSelector":{"matchExpressions":[{"key":"kubernetes.io/metadata.name","operator":"NotIn","values":["kube-system"]}],"matchLabels":{"wva.llmd.ai/controller-instance":"team-a"}},"objectSelector":{"matchExpressions":[{"key":"wva.llmd.ai/controller-instance","operator":"DoesNotExist"}]}' instance
holds "$all" '"name":"validate.va.llmd.ai","namespaceSelector":{"matchExpressions":[{"key":"kubernetes.io/metadata.name","operator":"NotIn","values":["kube-system"]}]},"objectSelector":{"matchLabels":{"wva.llmd.ai/controller-instance":"team-a"}}' instance
lacks "$(cat $out/instance-ignore.json)" 'unlabelled' instance-ignore
holds "$(cat $out/instance-require.json)" "'team-a' == '' || 'require' != 'require'" instance-require
holds "$(cat $out/namespaced.json)" "'one' == 'one'" namespaced
lacks "$(cat $out/no-admission-policy.json)" 'ValidatingAdmissionPolicy' no-admission-policy
holds "$(cat $out/namespaced.json)" "\"namespaceSelector\":{\"matchExpressions\":[{\"key\":\"kubernetes.io/metadata.name\",\"operator\":\"In\",\"values\":[\"$system\"]},{\"key\":\"kubernetes.io/metadata.name\",\"operator\":\"NotIn\",\"values\":[\"kube-system\"]}]}" namespaced
holds "$(cat $out/namespaced.json)" '{"name":"WATCH_NAMESPACE","valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"metadata.namespace"}}}' namespaced
holds "$(cat $out/everything.json)" '"qwen":"analyzerName: saturation\nmodel_id: Qwen/Qwen3-0.6B\nscaleDownBoundary: 0.6\nscaleUpThreshold: 0.9\nwarmSpare: \"off\"\n"' everything
holds "$(cat $out/everything.json)" '{"name":"WVA_WEBHOOK_CLIENT_CA","value":"/etc/wva/webhook-client-ca/ca.crt"}' everything
holds "$(cat $out/everything.json)" '{"configMap":{"name":"webhook-client-ca"},"name":"webhook-client-ca"}' everything
lacks "$(cat $out/defaults.json)" '"name":"WVA_WEBHOOK_CLIENT_CA"' defaults
holds "$(cat $out/with-operator.json)" '"honorLabels":false' with-operator
# Alerts and dashboards know the release by the label `job`.
holds "$(cat $out/pod-monitor.json)" '"relabelings":[{"action":"replace","replacement":"workload-variant-autoscaler-controller-manager-metrics-service","targetLabel":"job"}]' pod-monitor
lacks "$(cat $out/pod-monitor.json)" '"kind":"ServiceMonitor"' pod-monitor
holds "$(cat $out/everything.json)" '"metricRelabelings":[{"action":"drop","regex":"inferno_.*","sourceLabels":["__name__"]}]' everything
holds "$(cat $out/everything.json)" '"relabelings":[{"replacement":"a","targetLabel":"cluster"}]' everything
holds "$(cat $out/budget.json)" '"minAvailable":"50%"' budget
holds "$(cat $out/defaults.json)" '"maxUnavailable":1,' defaults
holds "$(cat $out/parent-chart-secret.json)" '"imagePullSecrets":[{"name":"registry"},{"name":"mirror"}]' parent-chart-secret
! grep -F "$system" $out/other-namespace.yaml || fault "other-namespace: the namespace of the release"
# Every object has the recommended labels, and no selector has them.
for name in defaults model everything; do
  whole=$(grep -c '^ *app.kubernetes.io/part-of: ' $out/$name.yaml)
  [ "$whole" = "$(grep -c '^  *app.kubernetes.io/component: ' $out/$name.yaml)" ] || fault "$name: not as many labels component as part-of"
  lacks "$(fields $out/$name.yaml | grep -iE '(selector|matchLabels)\.')" 'app.kubernetes.io/part-of' $name
done
lacks "$(fields $out/model.yaml | grep -vE '^[^ ]+\.metadata\.labels\.')" 'app.kubernetes.io/part-of' model
holds "$(fields $out/model.yaml)" 'VariantAutoscaling/workload-variant-autoscaler-va.metadata.labels.app.kubernetes.io/component = model' model
render --set-string 'commonLabels.app\.kubernetes\.io/part-of=platform' > $out/part-of.yaml
lacks "$(cat $out/part-of.yaml)" 'part-of: workload-variant-autoscaler' commonLabels
lacks "$(cat $out/defaults.json)" 'ServiceMonitor"' defaults
holds "$(cat $out/defaults.json)" '"PROMETHEUS_TOKEN_PATH":' defaults
lacks "$(cat $out/http-prometheus.json)" '"PROMETHEUS_TOKEN_PATH":' http-prometheus
for name in openshift documents-defaults; do holds "$(cat $out/$name.json)" 'cluster-monitoring-view' $name; done
lacks "$(cat $out/http-prometheus.json)" 'cluster-monitoring-view' http-prometheus
while read -r kind name; do
  [ ${#name} -le 63 ] || fault "long-name: $kind $name has ${#name} characters, which is over 63"
done < <(grep -oE '"kind":"Service","metadata":\{"labels":\{[^}]*\},"name":"[^"]*"' $out/long-name.json | sed -E 's/.*"kind":"([A-Za-z]+)".*"name":"([^"]*)"/\1 \2/')


echo "== odd values"
render --set 'fullnameOverride=1st,wva.prometheus.monitoringNamespace=null,va.accelerator=null,resources.limits=null,podLabels=null,commonLabels=null,podSecurityContext=null' > /dev/null || fault "null for an optional value is refused"
# Large numbers of a values file, as Go would write them.
printf '%s\n' 'va: {variantCost: 1000000}' 'hpa: {targetAverageValue: 2500000}' 'wva: {settings: {SCALE_FROM_ZERO_ENGINE_MAX_CONCURRENCY: 1000000}}' > $out/large.values.yaml
render -f tests/chart/model.yaml -f $out/large.values.yaml > $out/large.yaml
all=$(json $out/large.yaml)
holds "$all" '"variantCost":"1000000"' large
holds "$all" '"averageValue":"2500000"' large
holds "$all" '"SCALE_FROM_ZERO_ENGINE_MAX_CONCURRENCY":"1000000"' large
# Names that YAML reads as numbers or booleans.
"$helm" template 123 $chart --namespace 456 -f $prometheus -f tests/chart/model.yaml --set fullnameOverride=n,wva.namespaceScoped=true,wva.controllerInstance=a,networkPolicy.enabled=true,wva.webhook.certMode=existingSecret \
  --set wva.metrics.serviceMonitor.enabled=true,vllmService.serviceMonitor.enabled=true \
  --set-string llmd.namespace=789,llmd.deploymentName=789,nameOverride=789,wva.prometheus.monitoringNamespace=789,wva.prometheus.serviceAccountName=789,priorityClassName=789,serviceAccount.name=789,wva.webhook.existingSecret=789,wva.endpointPickers.tokenSecret=789,wva.capacityScaling.overrides.on.modelID=m > $out/numbers.yaml
numbers=$(json $out/numbers.yaml | grep -oE '"[^"]*":\[?(123|456|789)[],}]' | sort -u || true)
[ -z "$numbers" ] || fault "names have become numbers: $numbers"
holds "$(json $out/numbers.yaml)" '"on":"model_id: m\n"' numbers
[ "$("$helm" template 123 $chart --namespace 456 -f $prometheus -f tests/chart/model.yaml --set wva.externalMetrics.enabled=true --set-string llmd.namespace=789 | grep -cE ': (123|456|789)$|\[(123|456|789)\]')" = 0 ] || fault "names have become numbers, with external metrics"
# A label twice, the chart's own and one of the values.
render --set wva.metrics.serviceMonitor.enabled=true,wva.metrics.prometheusRule.enabled=true,wva.metrics.grafanaDashboard.enabled=true \
  --set-string 'podLabels.control-plane=x,podAnnotations.kubectl\.kubernetes\.io/default-container=x,wva.metrics.serviceMonitor.labels.control-plane=x,wva.metrics.prometheusRule.labels.app\.kubernetes\.io/name=x,wva.metrics.grafanaDashboard.labels.app\.kubernetes\.io/name=x' > $out/twice.yaml
! grep -E '^ *(control-plane|kubectl.kubernetes.io/default-container|app.kubernetes.io/name): "?x"?$' $out/twice.yaml > /dev/null || fault "a label of the values is there next to the chart's own"
holds "$(cat $out/everything.yaml)" 'team: ml' everything
holds "$(cat $out/everything.yaml)" 'release: prometheus' everything
# Old names, each against its new name.
while read -r old new value; do
  render --set "wva.$old=$value" > $out/old.yaml 2> $out/old.err || { fault "wva.$old: $(cat $out/old.err)"; continue; }
  render --set "$new=$value" | cmp - $out/old.yaml || fault "wva.$old is not the same as $new"
  ! cmp -s $out/old.yaml $out/defaults.yaml || fault "wva.$old has no effect"
done <<'NAMES'
image.repository image.repository registry.example/wva
image.tag image.tag v9
image.pullPolicy image.pullPolicy Never
imagePullPolicy image.pullPolicy Always
imagePullSecrets[0].name imagePullSecrets[0].name registry
replicas replicaCount 5
replicaCount replicaCount 5
resources.limits.memory resources.limits.memory 1Gi
podNodeSelector.pool nodeSelector.pool infra
tolerations[0].key tolerations[0].key infra
affinity.podAntiAffinity.none affinity.podAntiAffinity.none true
topologySpreadConstraints[0].maxSkew topologySpreadConstraints[0].maxSkew 2
priorityClassName priorityClassName high
podAnnotations.note podAnnotations.note here
podLabels.team podLabels.team ml
extraEnv[0].name extraEnv[0].name X
extraVolumes[0].name extraVolumes[0].name x
extraVolumeMounts[0].name=x,wva.extraVolumeMounts[0].mountPath extraVolumeMounts[0].name=x,extraVolumeMounts[0].mountPath /x
podDisruptionBudget.enabled podDisruptionBudget.enabled false
nodeSelector wva.gpuNodeSelector gpu
NAMES
render --set image.tag=sha256:0123 > $out/digest.yaml
holds "$(cat $out/digest.yaml)" 'image: "localhost/wva@sha256:0123"' digest
# Two releases of one name in two namespaces have alerts of their own.
rules=$(grep -cE '^ *expr: ' $out/with-operator.yaml)
[ "$(grep -cE "^ *expr: .*\{namespace=\"$system\",job=" $out/with-operator.yaml)" = "$rules" ] && [ "$rules" -gt 0 ] || fault "an alert asks for the series of other namespaces too"

echo "== docs/guides/migrate-from-llm-d.md: next to llm-d WVA nothing of this release is in the namespaces of models"
flags=$(sed -n '/helm install wva/,/```/p' docs/guides/migrate-from-llm-d.md | grep -oE -- '--set [^ ]+')
# shellcheck disable=SC2086 # flags are separate words
render -f $chart/values-llm-d-wva.yaml $flags > $out/aside.yaml || fault "the command of docs/guides/migrate-from-llm-d.md does not render"
lacks "$(json $out/aside.yaml)" '"namespace":"llm-d-autoscaler"' aside
lacks "$(json $out/aside.yaml)" '"nodePort"' aside

echo "== the Helm commands of the documents render"
commands=0
while IFS= read -r command; do
  commands=$((commands + 1))
  given=()
  case $command in *reuse-values* | *your-values.yaml*) given=(-f "$prometheus") ;; esac
  read -ra chosen <<< "$(grep -oE -- '(--set|--set-string|--set-file|-f) [^ ]+' <<< "$command" | grep -vE "your-values|migrated-values" | sed 's/prometheus-ca.crt/tests\/chart\/ca.crt/' | tr '\n' ' ')"
  "$helm" template $release $chart --namespace $system "${given[@]}" "${chosen[@]}" > $out/command.yaml 2> $out/command.err || fault "does not render: $command: $(cat $out/command.err)"
done < <(cat README.md docs/*/*.md $chart/README.md | sed -e ':a' -e '/\\$/N; s/\\\n *//; ta' | grep -E '^ *helm (upgrade|install) .*charts/workload-variant-autoscaler')
[ $commands -gt 5 ] || fault "the documents have only $commands Helm commands"

echo "== notes after an install"
notes() { "$helm" install $release $chart --namespace $system -f $prometheus -f tests/chart/model.yaml --dry-run=client "$@" 2> /dev/null | sed -n '/^NOTES:/,$p'; }
numbered() {
  local wanted=$1 got
  shift
  got=$(notes "$@" | { grep -oE '^[0-9]+\.' || true; } | tr -d '\n')
  [ "$got" = "$wanted" ] || fault "notes of $*: steps $got, not $wanted"
}
numbered 1.2.3.4.
numbered 1.2.3.  --set wva.webhook.register=false
numbered 1.2.    --set llmd.modelID=,llmd.modelName=
numbered 1.2.3.  --set va.enabled=false
numbered 1.2.    --set controller.enabled=false
numbered 1.      --set controller.enabled=false,va.enabled=false
numbered ""      --set controller.enabled=false,va.enabled=false,hpa.enabled=false
holds "$(notes --set va.enabled=false)" 'the HPA follows the variant workload-variant-autoscaler-va, which is not in this release' notes
holds "$(notes --set wva.webhook.register=false)" 'do not get the controller' notes
lacks "$(notes --set wva.webhook.register=false,wva.webhook.certMode=cert-manager)" 'do not get the controller' notes
holds "$(notes --set wva.metrics.enabled=false)" 'no HPA can read a target' notes
lacks "$(notes --set wva.metrics.enabled=false,wva.externalMetrics.enabled=true)" 'no HPA can read a target' notes
holds "$(notes --set wva.nodeSelector=gpu)" 'wva.gpuNodeSelector is "gpu": only GPUs of these nodes count' notes
holds "$(notes --set wva.nodeSelector=gpu)" 'wva.nodeSelector is an old name' notes
holds "$(notes --set wva.replicas=3)" 'wva.replicas is an old name and wins: write replicaCount' notes
lacks "$(notes)" 'is an old name' notes
holds "$(notes --set enabled=false)" 'in the Chart.yaml of a parent chart reads' notes
holds "$(notes -f $chart/values-namespace.yaml)" 'does not ask the controller' notes
holds "$(notes -f $chart/values-namespace.yaml --set wva.prometheus.baseURL=https://thanos-querier.openshift-monitoring.svc:9091)" 'cluster-monitoring-view -z' notes
holds "$(notes)" 'itlSlo is empty' notes
lacks "$(notes --set wva.capacityScaling.default.itlSlo=50)" 'itlSlo is empty' notes
lacks "$(notes)" 'values-llm-d-wva.yaml' notes
holds "$(notes --set wva.capacityScaling.default.kvSpareTrigger=0.2)" 'pass -f values-llm-d-wva.yaml first' notes
lacks "$(notes -f $chart/values-llm-d-wva.yaml --set wva.capacityScaling.default.kvSpareTrigger=0.2)" 'pass -f values-llm-d-wva.yaml first' notes
holds "$(notes --set llmd.modelID=,llmd.modelName=)" 'This release names no model' notes

echo "== the restart revision: on map and pods, changed only by settings that need a restart"
revision() { grep -oE '"wva.llmd.ai/restart-revision":"[0-9a-f]{64}"' | sort -u; }
was=$(revision < $out/defaults.json)
[ "$(grep -oE '"wva.llmd.ai/restart-revision"' $out/defaults.json | wc -l)" = 2 ] || fault "the restart revision is not on exactly two objects"
[ "$(wc -l <<<"$was")" = 1 ] || fault "map and pods have different restart revisions"
for same in wva.reconcileInterval=30s wva.logging.level=debug wva.prometheus.metricsCache.ttl=5s wva.settings.WVA_DECISION_HOLD=1m wva.capacityScaling.default.kvSpareTrigger=0.2 replicaCount=3; do
  render --set $same > $out/revision.yaml || { fault "--set $same does not render"; continue; }
  [ "$(json $out/revision.yaml | revision)" = "$was" ] || fault "$same changes the restart revision, and needs no restart"
done
for other in wva.prometheus.baseURL=http://p:9090 wva.scaleToZero=true wva.limitedMode=true wva.legacyMetrics=true wva.annotations=true wva.settings.WVA_ACTUATION=scale; do
  render --set $other > $out/revision.yaml || { fault "--set $other does not render"; continue; }
  [ "$(json $out/revision.yaml | revision)" != "$was" ] || fault "$other needs a restart, and does not change the restart revision"
done
# The page of settings, which is generated from their table, has when each takes effect; try each in wva.settings.
# shellcheck disable=SC2016 # backticks of Markdown
effects=$(sed -nE 's/^\| `([A-Z0-9_]+)` \|.*\| (at once|at a restart) \|.*/\1 \2/p' docs/reference/configuration.md)
[ "$(grep -c 'at once$' <<<"$effects")" -gt 5 ] && [ "$(grep -c 'restart$' <<<"$effects")" -gt 40 ] || fault "docs/reference/configuration.md names too few settings: $effects"
while read -r key effect; do
  render --set-string "wva.settings.$key=x" > $out/revision.yaml 2> $out/revision.err || { grep -q 'the chart sets this itself' $out/revision.err || fault "wva.settings.$key: $(cat $out/revision.err)"; continue; }
  now=$(json $out/revision.yaml | revision)
  if [ "$effect" = "at once" ]; then [ "$now" = "$was" ] || fault "wva.settings.$key changes the restart revision, although it takes effect at once; add it to wva.mutableSettings in templates/_helpers.tpl"
  else [ "$now" != "$was" ] || fault "wva.settings.$key does not change the restart revision, although it needs a restart"; fi
done <<<"$effects"

echo "== refusals and their texts"
refused() {
  local words=$1
  shift
  if render "$@" > $out/refused 2>&1; then fault "is not refused: $*"; else
    grep -qF -- "$words" $out/refused || fault "$*: refused without the words \"$words\": $(cat $out/refused)"
  fi
}
refused "the image of llm-d WVA"                          -f tests/fixtures/original/chart-values-defaults.yaml
refused "the image of llm-d WVA"                          --set image.repository=mirror.example/llm-d/workload-variant-autoscaler
refused "one for the whole cluster"                        --set wva.namespaceScoped=true,wva.externalMetrics.enabled=true
refused "wva.prometheus.baseURL is empty"                  --set wva.prometheus.baseURL=
refused "With values of llm-d WVA, pass -f values-llm-d-wva.yaml first" --set wva.prometheus.baseURL=
refused "names none"                                       --set wva.webhook.certMode=existingSecret
refused "serviceAccount.name names none"                   --set serviceAccount.create=false
refused "need more: set llmd.namespace (namespace of the model server), llmd.modelID (the model, as clients name it)." --set llmd.deploymentName=llama
refused "need more: set llmd.deploymentName"               --set llmd.modelID=m,llmd.namespace=prod
refused "pass -f values-llm-d-wva.yaml first"              --set llmd.modelID=m
refused "need more: set llmd.namespace"                    --set va.enabled=false,llmd.deploymentName=llama
refused "names no namespace for the Service"               --set va.enabled=false,hpa.enabled=false,llmd.modelName=llama
refused "the chart sets --metrics-bind-address itself"     --set 'extraArgs[0]=--metrics-bind-address=:1'
refused "the chart sets --cert-mode itself"                --set 'extraArgs[0]=-cert-mode'
refused "the chart sets the label control-plane itself"    --set commonLabels.control-plane=x
refused "wva.metrics.port and wva.webhook.port are both 9443" --set wva.metrics.port=9443
refused "wva.health.port and wva.debug.port are both 8081" --set wva.debug.port=8081
refused "wva.metrics.port and wva.externalMetrics.port are both 8443" --set wva.externalMetrics.port=8443,wva.externalMetrics.enabled=true
refused "Remove it, and set wva.debug.port"                --set-string wva.settings.WVA_DEBUG_BIND_ADDRESS=0
refused "Remove it, and set wva.debug.port"                --set 'extraArgs[0]=--debug-bind-address=0'
refused "Remove it, and set wva.webhook.port"              --set 'extraArgs[0]=--webhook-bind-address=:1'
refused "at '/wva/webhook/port'"                           --set wva.webhook.port=0
refused "at '/wva/webhook/annotations/a': got boolean"     --set wva.webhook.annotations.a=true
refused "Set wva.namespaceScoped=true"                     --set wva.clusterObjects=false
refused "needs an APIService"                              -f $chart/values-namespace.yaml --set wva.externalMetrics.enabled=true
refused "Set wva.metrics.secure=false"                     -f $chart/values-namespace.yaml --set wva.metrics.secure=true
refused "Set wva.limitedMode=false"                        -f $chart/values-namespace.yaml --set wva.limitedMode=true
refused "Set crds.install=false"                           -f $chart/values-namespace.yaml --set crds.install=true
refused "Set crds.install=false"                           --set controller.enabled=false,wva.clusterObjects=false,crds.install=true
refused "the chart sets this itself"                  --set wva.settings.POD_NAME=x
refused "wva.endpointPickers.tokenSecret"                  --set wva.settings.EPP_METRIC_READER_BEARER_TOKEN=x
refused "has no modelID"                                   --set wva.capacityScaling.overrides.x.kvSpareTrigger=0.2
refused "Give the override another name"                   --set wva.capacityScaling.overrides.default.modelID=m
refused "hpa.minReplicas (3) is greater"                   --set hpa.minReplicas=3,hpa.maxReplicas=2
refused "at '/wva/prometheus': additional properties 'baseUrl' not allowed"  --set wva.prometheus.baseUrl=x
refused "at '/hpa/behavior/scaleUp': additional properties"                  --set hpa.behavior.scaleUp.window=1
refused "at '/wva/capacityScaling/overrides/x': additional properties"       --set wva.capacityScaling.overrides.x.kvThreshold=1
refused "at '/va/variantCost'"                             --set va.variantCost=ten
refused "at '/wva/controllerInstance'"                     --set wva.controllerInstance=-x-
refused "at '/wva/settings': additional properties"                          --set wva.settings.decisionHold=1m
refused '"a-b" and "a/b" are both the key "a-b"'           --set wva.capacityScaling.overrides.a/b.modelID=m,wva.capacityScaling.overrides.a-b.modelID=n
refused "alerts/WVAVariantStuck/keepFiringFor': 'soon' does not match"       --set wva.metrics.prometheusRule.alerts.WVAVariantStuck.keepFiringFor=soon
refused "scrapeTimeout is 1m, longer than its interval 10s"  --set wva.metrics.serviceMonitor.scrapeTimeout=1m
refused "scrapeTimeout is 15001ms, longer than vllmService.interval 15s" -f tests/chart/model.yaml --set vllmService.serviceMonitor.scrapeTimeout=15001ms
refused "at '/wva/metrics/serviceMonitor/relabelings/0': got string"     --set 'wva.metrics.serviceMonitor.relabelings[0]=drop'
refused "also begins with a registry"                      --set image.registry=registry.example
refused "are both set"                                     --set podDisruptionBudget.minAvailable=0,podDisruptionBudget.maxUnavailable=0
refused "at '/podDisruptionBudget/minAvailable'"           --set podDisruptionBudget.minAvailable=half
refused "at '/namespaceOverride'"                          --set namespaceOverride=a_b
refused "at '/wva/reconcileInterval'"                      --set wva.reconcileInterval=0s
refused "at '/extraEnv/0/value': got number"               --set 'extraEnv[0].name=X,extraEnv[0].value=1'
refused "at '/extraVolumeMounts/0': missing property"      --set 'extraVolumeMounts[0].name=x'
refused "at '/wva/webhook/certManager/issuerRef'"          --set wva.webhook.certMode=cert-manager,wva.webhook.certManager.issuerRef.kind=ClusterIssuer
refused "at '/wva/prometheus/monitoringNamespace'"         --set wva.prometheus.monitoringNamespace=my_monitoring
refused "at '/llmd/namespace'"                             --set llmd.namespace=my_models
refused "at '/llmd/modelName'"                             --set llmd.modelName=meta/llama
refused "at '/llmd/deploymentName'"                        --set llmd.deploymentName=Llama
refused "at '/va/accelerator'"                             --set 'va.accelerator=NVIDIA A100'
refused "at '/hpa/targetAverageValue'"                     --set hpa.targetAverageValue=0
refused "at '/hpa/targetAverageValue'"                     --set-string hpa.targetAverageValue=0
# A blank key in a values file is null, which removes its default: no replicas, or a minimum of 0.
refused "missing property 'replicaCount'"                  --set replicaCount=null
refused "at '/hpa': missing property 'minReplicas'"        --set hpa.minReplicas=null
refused "at '/wva/webhook': missing property 'enabled'"    --set wva.webhook.enabled=null
refused "at '': missing property 'vllmService'"            --set vllmService=null
refused "with a tag or a digest in it"                     --set image.repository=registry.example:5000/wva:v1
refused "the chart sets EPP_METRIC_READER_SERVICE_ACCOUNT itself" --set 'extraEnv[0].name=EPP_METRIC_READER_SERVICE_ACCOUNT,extraEnv[0].value=x'
refused "the chart sets POD_NAME itself"                   --set 'extraEnv[0].name=POD_NAME,extraEnv[0].value=x'
refused "the chart sets MALLOC_ARENA_MAX itself"           --set 'extraEnv[0].name=MALLOC_ARENA_MAX,extraEnv[0].value=x'
refused "extraEnv names X twice"                           --set 'extraEnv[0].name=X,extraEnv[0].value=a,extraEnv[1].name=X,extraEnv[1].value=b'
refused "no Prometheus could scrape /metrics"              --set networkPolicy.enabled=true
refused "cannot start the name of a Service"               --set fullnameOverride=release.v1
refused "cannot start the name of a Service"               --set fullnameOverride=1st --kube-version 1.35.0
refused "chart requires kubeVersion"                       --kube-version 1.29.0

echo "== install.sh: odd values arrive unchanged, and no argument reaches only Helm"
stubs=$out/stubs
mkdir -p "$stubs/a, {folder}"
cp tests/chart/ca.crt "$stubs/a, {folder}/ca.crt"
# An empty cluster, and a Helm that renders instead of installing.
# shellcheck disable=SC2016 # that is for the stubs
printf '#!/usr/bin/env bash\necho "$*" >> %q/kubectl\n' "$stubs" > $stubs/kubectl.sh
# shellcheck disable=SC2016 # that is for the stubs
printf '#!/usr/bin/env bash\necho "$*" >> %q/helm\n[ "$1" = upgrade ] || exit 0\nshift 2\nexec %q template "$@"\n' "$stubs" "$helm" > $stubs/helm.sh
chmod +x $stubs/*.sh
script() { rm -f $stubs/kubectl $stubs/helm; HELM=$stubs/helm.sh KUBECTL=$stubs/kubectl.sh deploy/install.sh "$@" > $out/script 2>&1; }
MODEL_ID='{a},b\c d' PROMETHEUS_URL='http://p:9090/?a={1},2' PROMETHEUS_CA_CERT="$stubs/a, {folder}/ca.crt" WVA_NS=456 LLMD_NS=789 \
  script --set hpa.maxReplicas=20 || fault "install.sh fails on odd values: $(cat $out/script)"
holds "$(cat $out/script)" 'modelID: "{a},b\\c d"' install.sh
holds "$(cat $out/script)" 'PROMETHEUS_BASE_URL: "http://p:9090/?a={1},2"' install.sh
holds "$(cat $out/script)" 'BEGIN CERTIFICATE' install.sh
holds "$(cat $out/script)" 'maxReplicas: 20' install.sh
stops() {
  local words=$1
  shift
  if script "$@"; then fault "install.sh $* is not refused"; fi
  grep -qF -- "$words" $out/script || fault "install.sh $*: stopped without the words \"$words\": $(cat $out/script)"
  [ ! -e $stubs/kubectl ] && [ ! -e $stubs/helm ] || fault "install.sh $*: stopped after it had begun"
}
stops "reaches only Helm"              --kube-context other
stops "reaches only Helm"              --kubeconfig=other
stops "kubectl would change"           --dry-run=server
stops "set the namespace with WVA_NS"  -n other
HPA_STABILIZATION_SECONDS=0240 stops "HPA_STABILIZATION_SECONDS is '0240'"
HPA_STABILIZATION_SECONDS=3601 stops "at most 3600"
WVA_NS='a b' stops "WVA_NS is 'a b'"
script --uninstall --dry-run
grep -qF -- 'uninstall workload-variant-autoscaler --namespace workload-variant-autoscaler-system --wait --dry-run' $stubs/helm || fault "install.sh --uninstall leaves out further arguments"

echo "== every documented key has an effect"
# key=value other than the default; the last column has further arguments that the key needs for an effect.
while read -r set with; do
  [ -n "$set" ] || continue
  # shellcheck disable=SC2086 # arguments are separate words
  render -f tests/chart/model.yaml $with > $out/without.yaml
  # shellcheck disable=SC2086
  if ! render -f tests/chart/model.yaml $with --set "$set" > $out/with.yaml 2> $out/with.err; then fault "--set $set does not render: $(cat $out/with.err)"; continue; fi
  ! cmp -s $out/without.yaml $out/with.yaml || fault "--set $set has no effect"
done < tests/chart/keys.txt
# Every key of values.yaml is in that list.
while read -r key; do
  grep -qE "^${key//./\\.}(=|\\.|\\[)" tests/chart/keys.txt || fault "tests/chart/keys.txt has no line for $key"
done < <(sed -n '/<!-- values: begin/,/<!-- values: end/ s/^| \([a-z][A-Za-z.]*\) | .*/\1/p' $chart/README.md)

[ $faults = 0 ] || { echo "chart: $faults faults"; exit 1; }
echo "chart: $cases cases, all fine"
