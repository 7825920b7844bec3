{{/*
Refuses values that cannot work, all together, each with its remedy. The schema has already refused wrong types and
unknown keys.
*/}}
{{- define "wva.check" -}}
{{- $wva := .Values.wva }}
{{- $pods := include "wva.pods" . | fromJson }}
{{- $llmd := .Values.llmd }}
{{- $wrong := list }}
{{- if include "wva.controller" . }}
{{- $image := $pods.image.repository }}
{{- $whole := printf "%s/%s" (default "" $pods.image.registry) $image }}
{{- if regexMatch "(^|/)(llm-d-workload-variant-autoscaler|inferno-(autoscaler|controller)|llm-d(-incubation)?/workload-variant-autoscaler)$" $whole }}
{{- $wrong = append $wrong (printf "image.repository is %q, the image of llm-d WVA: that is another program. Remove wva.image and its tag from your values, or name your mirror of the wva image." $image) }}
{{- end }}
{{- if or (contains "@" $image) (regexMatch ":[^/]*$" $image) }}
{{- $wrong = append $wrong (printf "image.repository is %q, with a tag or a digest in it: set image.tag instead, e.g. v1 or sha256:..." $image) }}
{{- end }}
{{- /* An upgrade of llm-d WVA's release. The API server would refuse it halfway: a selector never changes. */}}
{{- $name := include "wva.managerName" . }}
{{- with lookup "apps/v1" "Deployment" (include "wva.namespace" .) $name }}
{{- $selector := include "wva.selectorLabels" $ | fromYaml }}
{{- if ne (toJson .spec.selector.matchLabels) (toJson $selector) }}
{{- $wrong = append $wrong (printf "Deployment %s/%s is not from this chart: it selects its pods by %s, this chart by %s, and a selector never changes. It may be the release of llm-d WVA. To keep the release with its VariantAutoscaling and HPA, run `kubectl delete deployment %s -n %s` and `kubectl apply --server-side --force-conflicts -f %s/crds`, then this command again. Or remove the release with `helm uninstall %s -n %s`, then install this chart. See docs/guides/migrate-from-llm-d.md." (include "wva.namespace" $) $name (toJson .spec.selector.matchLabels) (toJson $selector) $name (include "wva.namespace" $) (printf "charts/%s" $.Chart.Name) $.Release.Name $.Release.Namespace) }}
{{- end }}
{{- end }}
{{- if and $wva.namespaceScoped $wva.externalMetrics.enabled }}
{{- $wrong = append $wrong "wva.namespaceScoped and wva.externalMetrics.enabled cannot both be true: external.metrics.k8s.io is one for the whole cluster, but this controller would see one namespace. Set wva.externalMetrics.enabled=false and use prometheus-adapter or KEDA for the HPA." }}
{{- end }}
{{- if not $wva.prometheus.baseURL }}
{{- $wrong = append $wrong "wva.prometheus.baseURL is empty: set the URL of the Prometheus with vLLM's metrics, e.g. --set wva.prometheus.baseURL=http://prometheus-operated.monitoring.svc:9090, or choose a profile of this chart, e.g. values-kube-prometheus-stack.yaml. With values of llm-d WVA, pass -f values-llm-d-wva.yaml first: it has that chart's defaults." }}
{{- end }}
{{- if and (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) }}
{{- $wrong = append $wrong "serviceAccount.create is false, but serviceAccount.name names none: set the service account of the controller." }}
{{- end }}
{{- if and (eq $wva.webhook.certMode "existingSecret") (not $wva.webhook.existingSecret) }}
{{- $wrong = append $wrong "wva.webhook.certMode is existingSecret, but wva.webhook.existingSecret names none: set a Secret of the release's namespace with tls.crt, tls.key and ca.crt." }}
{{- end }}
{{- $used := dict }}
{{- range $pair := include "wva.ports" . | fromJsonArray }}
{{- $port := index $pair 1 | int | toString }}
{{- with get $used $port }}
{{- $wrong = append $wrong (printf "%s and %s are both %s, and each endpoint needs a port of its own: set one of them to another number." . (index $pair 0) $port) }}
{{- end }}
{{- $_ := set $used $port (index $pair 0) }}
{{- end }}
{{- if not $wva.clusterObjects }}
{{- $wrong = concat $wrong (include "wva.checkWithoutClusterObjects" . | fromJsonArray) }}
{{- end }}
{{- /* Flags and variables that the chart sets itself. Server-side apply refuses a duplicate variable. */}}
{{- $ours := list "CONFIG_FILE" "CONFIG_MAP_NAME" "CONTROLLER_INSTANCE" "DEPLOYMENT_NAME" "EPP_METRIC_READER_SERVICE_ACCOUNT" "EXTERNAL_METRICS_BIND_ADDRESS" "HEALTH_PROBE_BIND_ADDRESS" "LEADER_ELECT" "LEADER_ELECTION_ID" "METRICS_ADDR" "METRICS_BIND_ADDRESS" "METRICS_CERT_PATH" "METRICS_SECURE" "POD_NAME" "POD_NAMESPACE" "PROBE_ADDR" "SATURATION_CONFIG_MAP_NAME" "SERVICE_CLASS_CONFIG_MAP_NAME" "WATCH_NAMESPACE" "WEBHOOK_BIND_ADDRESS" "WEBHOOK_CERT_PATH" "WEBHOOK_CONFIGURATION" "WEBHOOK_SERVICE" "WVA_CERT_MODE" "WVA_DEBUG_BIND_ADDRESS" "WVA_INSTANCE_POLICY" "WVA_LIMITED_MODE" "WVA_WEBHOOK" "WVA_WEBHOOK_CLIENT_CA" }}
{{- $values := dict "EXTERNAL_METRICS_BIND_ADDRESS" "externalMetrics" "HEALTH_PROBE_BIND_ADDRESS" "health" "METRICS_BIND_ADDRESS" "metrics" "WEBHOOK_BIND_ADDRESS" "webhook" "WVA_DEBUG_BIND_ADDRESS" "debug" }}
{{- range $key := $ours }}
{{- if hasKey $wva.settings $key }}
{{- $wrong = append $wrong (printf "wva.settings.%s: the chart sets this itself, from other values and in step with its other objects. Remove it%s." $key (include "wva.setPort" (get $values $key))) }}
{{- end }}
{{- end }}
{{- if hasKey $wva.settings "EPP_METRIC_READER_BEARER_TOKEN" }}
{{- $wrong = append $wrong "wva.settings.EPP_METRIC_READER_BEARER_TOKEN: the chart sets this itself, and a token does not belong in a ConfigMap. Name a Secret in wva.endpointPickers.tokenSecret, or set the variable in extraEnv." }}
{{- end }}
{{- $seen := dict }}
{{- range $pods.extraEnv }}
{{- if has .name (concat $ours (list "MALLOC_ARENA_MAX" "MALLOC_MMAP_THRESHOLD_" "MALLOC_TRIM_THRESHOLD_")) }}
{{- $wrong = append $wrong (printf "extraEnv: the chart sets %s itself, from other values and in step with its other objects. Remove it%s." .name (include "wva.setPort" (get $values .name))) }}
{{- else if hasKey $seen .name }}
{{- $wrong = append $wrong (printf "extraEnv names %s twice: the API server accepts each variable once." .name) }}
{{- end }}
{{- $_ := set $seen .name true }}
{{- end }}
{{- range .Values.extraArgs }}
{{- $flag := regexFind "[^-=][^=]*" . }}
{{- $key := $flag | replace "-" "_" | upper }}
{{- if or (has $key $ours) (has (printf "WVA_%s" $key) $ours) (has $flag (list "enable-leader-election" "webhook-client-ca-path")) }}
{{- $wrong = append $wrong (printf "extraArgs: the chart sets --%s itself, from other values and in step with its other objects. Remove it%s." $flag (include "wva.setPort" (coalesce (get $values $key) (get $values (printf "WVA_%s" $key))))) }}
{{- end }}
{{- end }}
{{- if and $pods.networkPolicy.enabled $wva.metrics.enabled (not $wva.prometheus.monitoringNamespace) }}
{{- $wrong = append $wrong "networkPolicy.enabled is true, but wva.prometheus.monitoringNamespace names none: no Prometheus could scrape /metrics. Set the namespace of the Prometheus that scrapes the controller." }}
{{- end }}
{{- $monitor := $wva.metrics.serviceMonitor }}
{{- if and $monitor.scrapeTimeout (include "wva.isLonger" (list $monitor.scrapeTimeout $monitor.interval)) }}
{{- $wrong = append $wrong (printf "wva.metrics.serviceMonitor.scrapeTimeout is %s, longer than its interval %s, which Prometheus refuses: set a shorter one." $monitor.scrapeTimeout $monitor.interval) }}
{{- end }}
{{- if and $pods.image.registry (regexMatch "^(localhost|[^/]*[.:][^/]*)/" $image) }}
{{- $wrong = append $wrong (printf "image.registry is %q, and image.repository %q also begins with a registry: set image.repository without it, e.g. wva." $pods.image.registry $image) }}
{{- end }}
{{- $budget := $pods.podDisruptionBudget }}
{{- if and (include "wva.given" $budget.minAvailable) (include "wva.given" $budget.maxUnavailable) }}
{{- $wrong = append $wrong "podDisruptionBudget.minAvailable and podDisruptionBudget.maxUnavailable are both set, and a PodDisruptionBudget has one of them: remove one." }}
{{- end }}
{{- $keys := dict }}
{{- range $name, $entry := $wva.capacityScaling.overrides }}
{{- if eq $name "default" }}
{{- $wrong = append $wrong "wva.capacityScaling.overrides.default: the entry \"default\" is wva.capacityScaling.default. Give the override another name." }}
{{- else if not (or $entry.modelID $entry.model_id) }}
{{- $wrong = append $wrong (printf "wva.capacityScaling.overrides.%s has no modelID: set the model that it applies to, e.g. modelID: \"Qwen/Qwen3-0.6B\"." $name) }}
{{- end }}
{{- $key := include "wva.overrideKey" $name }}
{{- with get $keys $key }}
{{- $wrong = append $wrong (printf "wva.capacityScaling.overrides: %q and %q are both the key %q of the ConfigMap, where other characters than letters, digits, dots, dashes and underscores become dashes. Rename one of them; the name has no further meaning." . $name $key) }}
{{- end }}
{{- $_ := set $keys $key $name }}
{{- end }}
{{- end }}
{{- if and (not $wva.clusterObjects) .Values.crds.install }}
{{- $wrong = append $wrong "wva.clusterObjects is false, but crds.install renders the CRD. Set crds.install=false; an administrator of the cluster applies the CRD." }}
{{- end }}
{{- range $label, $_ := .Values.commonLabels }}
{{- if or (has $label (list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/managed-by" "app.kubernetes.io/version" "helm.sh/chart" "control-plane" "inference.optimization/acceleratorName" "llm-d.ai/model" "openshift.io/user-monitoring" "wva.llmd.ai/controller-instance")) (hasPrefix "rbac.authorization.k8s.io/aggregate-to-" $label) }}
{{- $wrong = append $wrong (printf "commonLabels: the chart sets the label %s itself. Remove it." $label) }}
{{- end }}
{{- end }}
{{- if or (include "wva.hasVariant" .) (include "wva.hasHpa" .) }}
{{- $missing := list }}
{{- if not $llmd.namespace }}
{{- $missing = append $missing "llmd.namespace (namespace of the model server)" }}
{{- end }}
{{- if and (include "wva.hasVariant" .) (not $llmd.modelID) }}
{{- $missing = append $missing "llmd.modelID (the model, as clients name it)" }}
{{- end }}
{{- if not (or $llmd.deploymentName $llmd.scaleTargetName $llmd.modelName) }}
{{- $missing = append $missing "llmd.deploymentName (the workload to scale)" }}
{{- end }}
{{- if $missing }}
{{- $wrong = append $wrong (printf "llmd names a model, but its VariantAutoscaling and HPA need more: set %s. With values of llm-d WVA, pass -f values-llm-d-wva.yaml first: it has that chart's defaults. A release without a model needs no llmd values." (join ", " $missing)) }}
{{- end }}
{{- else if and (include "wva.hasVllmService" .) (not $llmd.namespace) }}
{{- $wrong = append $wrong "llmd.modelName is set, but llmd.namespace names no namespace for the Service of the model server: set it, or vllmService.enabled=false." }}
{{- end }}
{{- if or (include "wva.controller" .) (include "wva.hasVllmService" .) }}
{{- /* Valid names of a Service; since Kubernetes 1.36 a name may start with a digit. */}}
{{- $fullname := include "wva.fullname" . }}
{{- $start := ternary "[a-z0-9]" "[a-z]" (semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version) }}
{{- if not (regexMatch (printf "^%s([-a-z0-9]*[a-z0-9])?$" $start) $fullname) }}
{{- $wrong = append $wrong (printf "%q, the start of all names, cannot start the name of a Service: use lower-case letters, digits and dashes, after a letter. Set fullnameOverride to such a name." $fullname) }}
{{- end }}
{{- end }}
{{- $vllm := .Values.vllmService }}
{{- if and (include "wva.hasVllmService" .) $vllm.serviceMonitor.scrapeTimeout (include "wva.isLonger" (list $vllm.serviceMonitor.scrapeTimeout $vllm.interval)) }}
{{- $wrong = append $wrong (printf "vllmService.serviceMonitor.scrapeTimeout is %s, longer than vllmService.interval %s, which Prometheus refuses: set a shorter one." $vllm.serviceMonitor.scrapeTimeout $vllm.interval) }}
{{- end }}
{{- if and .Values.hpa.enabled (gt (int .Values.hpa.minReplicas) (int .Values.hpa.maxReplicas)) }}
{{- $wrong = append $wrong (printf "hpa.minReplicas (%d) is greater than hpa.maxReplicas (%d)." (int .Values.hpa.minReplicas) (int .Values.hpa.maxReplicas)) }}
{{- end }}
{{- if $wrong }}
{{- fail (printf "\n\n- %s\n" (join "\n- " $wrong)) }}
{{- end }}
{{- end }}

{{/* The remedy for an address that the chart sets. Argument: the section of `wva` with the port, or "". */}}
{{- define "wva.setPort" -}}
{{- with . }}, and set wva.{{ . }}.port{{ end }}
{{- end }}

{{/* Why the values do not work without cluster-scoped objects, as a JSON list. */}}
{{- define "wva.checkWithoutClusterObjects" -}}
{{- $wva := .Values.wva }}
{{- $wrong := list }}
{{- if not $wva.namespaceScoped }}
{{- $wrong = append $wrong "wva.clusterObjects is false, but wva.namespaceScoped is false too: to manage other namespaces, the controller needs a ClusterRole. Set wva.namespaceScoped=true." }}
{{- end }}
{{- if $wva.externalMetrics.enabled }}
{{- $wrong = append $wrong "wva.clusterObjects is false, but wva.externalMetrics.enabled needs an APIService. Set wva.externalMetrics.enabled=false, and use KEDA or prometheus-adapter for the HPA." }}
{{- end }}
{{- /* With rbac.create=false an administrator may grant these rights. */}}
{{- if .Values.rbac.create }}
{{- if and $wva.metrics.enabled $wva.metrics.secure }}
{{- $wrong = append $wrong "wva.clusterObjects is false, but wva.metrics.secure needs a ClusterRole for TokenReviews: without it no caller could read /metrics. Set wva.metrics.secure=false (plain HTTP, which networkPolicy.enabled=true can restrict), or wva.metrics.enabled=false." }}
{{- end }}
{{- if $wva.limitedMode }}
{{- $wrong = append $wrong "wva.clusterObjects is false, but wva.limitedMode needs a ClusterRole to read nodes and the pods of all namespaces. Set wva.limitedMode=false. To stay within the ResourceQuotas of the namespace, set wva.capacityScaling.default.enableLimiter=true." }}
{{- end }}
{{- end }}
{{- $wrong | toJson }}
{{- end }}
