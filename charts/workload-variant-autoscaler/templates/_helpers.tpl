{{/*
Names and labels of the release. The full name starts every name; cluster-scoped names also start with the namespace,
so that two releases never collide.
*/}}
{{- define "wva.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* Namespace of the controller's objects. */}}
{{- define "wva.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride }}
{{- end }}

{{- define "wva.fullname" -}}
{{- $name := include "wva.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/*
<fullname>-<suffix>, for names of at most 63 characters: Services, label values, and the Deployment, which starts names
of pods. A longer full name is cut and gets a piece of its hash, so that two of them differ.
Arguments: root, suffix.
*/}}
{{- define "wva.short" -}}
{{- $root := index . 0 }}
{{- $suffix := index . 1 }}
{{- $fullname := include "wva.fullname" $root }}
{{- $room := sub 62 (len $suffix) | int }}
{{- if gt (len $fullname) $room }}
{{- printf "%s-%s-%s" ($fullname | trunc (sub $room 7 | int) | trimSuffix "-") (sha256sum $fullname | trunc 6) $suffix }}
{{- else }}
{{- printf "%s-%s" $fullname $suffix }}
{{- end }}
{{- end }}

{{/* <namespace>-<fullname>-<suffix>, for cluster-scoped objects. Arguments: root, suffix. */}}
{{- define "wva.clusterName" -}}
{{- $root := index . 0 }}
{{- printf "%s-%s-%s" (include "wva.namespace" $root) (include "wva.fullname" $root) (index . 1) }}
{{- end }}

{{- define "wva.managerName" -}}
{{ include "wva.short" (list . "controller-manager") }}
{{- end }}

{{- define "wva.metricsService" -}}
{{ include "wva.short" (list . "controller-manager-metrics-service") }}
{{- end }}

{{- define "wva.webhookService" -}}
{{ include "wva.short" (list . "webhook-service") }}
{{- end }}

{{/* Name of both webhook configurations. */}}
{{- define "wva.webhookConfiguration" -}}
{{ include "wva.clusterName" (list . "webhook") }}
{{- end }}

{{- define "wva.mainMap" -}}
{{ include "wva.fullname" . }}-variantautoscaling-config
{{- end }}

{{- define "wva.saturationMap" -}}
{{ include "wva.fullname" . }}-wva-saturation-scaling-config
{{- end }}

{{- define "wva.serviceClassMap" -}}
{{ include "wva.fullname" . }}-service-classes-config
{{- end }}

{{- define "wva.prometheusCaMap" -}}
{{ include "wva.fullname" . }}-prometheus-ca
{{- end }}

{{- define "wva.metricsMonitor" -}}
{{ include "wva.managerName" . }}-metrics-monitor
{{- end }}

{{- define "wva.metricsReader" -}}
{{ include "wva.fullname" . }}-metrics-reader
{{- end }}

{{- define "wva.pickerReader" -}}
{{ include "wva.fullname" . }}-picker-reader
{{- end }}

{{/* "true" if the release has a ServiceMonitor or PodMonitor of the controller's own metrics. */}}
{{- define "wva.monitorsItself" -}}
{{- $metrics := .Values.wva.metrics }}
{{- if and (include "wva.controller" .) $metrics.enabled (or (dig "podMonitor" "enabled" false $metrics) (include "wva.auto" (list . $metrics.serviceMonitor.enabled "monitoring.coreos.com/v1/ServiceMonitor"))) }}true{{ end }}
{{- end }}

{{/* Optional fields of a monitor's endpoint. Arguments: the values, relabelings of the chart. */}}
{{- define "wva.scrape" -}}
{{- $values := index . 0 }}
{{- $fields := dict }}
{{- with $values.scrapeTimeout }}
{{- $_ := set $fields "scrapeTimeout" . }}
{{- end }}
{{- with concat (index . 1) (default list $values.relabelings) }}
{{- $_ := set $fields "relabelings" . }}
{{- end }}
{{- with $values.metricRelabelings }}
{{- $_ := set $fields "metricRelabelings" . }}
{{- end }}
{{- with $fields }}{{ toYaml . }}{{ end }}
{{- end }}

{{/* "true" if the first duration is longer. Days and more are not compared. Arguments: two durations of Prometheus. */}}
{{- define "wva.isLonger" -}}
{{- $epoch := toDate "2006" "2000" }}
{{- if regexMatch "^[0-9hms]+ [0-9hms]+$" (join " " .) }}
{{- if (mustDateModify (index . 0) $epoch).After (mustDateModify (index . 1) $epoch) }}true{{ end }}
{{- end }}
{{- end }}

{{/*
Old names under `wva` of keys that are now at the top level, as a JSON list of pairs: the old name, the new one.
*/}}
{{- define "wva.renamed" -}}
{{- list (list "image" "image") (list "imagePullSecrets" "imagePullSecrets") (list "replicas" "replicaCount") (list "replicaCount" "replicaCount")
  (list "resources" "resources") (list "podNodeSelector" "nodeSelector") (list "tolerations" "tolerations") (list "affinity" "affinity")
  (list "topologySpreadConstraints" "topologySpreadConstraints") (list "priorityClassName" "priorityClassName") (list "podAnnotations" "podAnnotations")
  (list "podLabels" "podLabels") (list "extraEnv" "extraEnv") (list "extraVolumes" "extraVolumes") (list "extraVolumeMounts" "extraVolumeMounts")
  (list "podDisruptionBudget" "podDisruptionBudget") (list "networkPolicy" "networkPolicy") | toJson }}
{{- end }}

{{/* Values of the controller's pods under their new names, as a JSON object. A value under an old name wins. */}}
{{- define "wva.pods" -}}
{{- $pods := dict }}
{{- range $pair := include "wva.renamed" . | fromJsonArray }}
{{- $name := index $pair 1 }}
{{- if not (hasKey $pods $name) }}
{{- $_ := set $pods $name (get $.Values $name) }}
{{- end }}
{{- if hasKey $.Values.wva (index $pair 0) }}
{{- $old := get $.Values.wva (index $pair 0) }}
{{- if kindIs "map" $old }}
{{- $old = mergeOverwrite (dict) (default dict (get $pods $name)) $old }}
{{- end }}
{{- $_ := set $pods $name $old }}
{{- end }}
{{- end }}
{{- with .Values.wva.imagePullPolicy }}
{{- $_ := set $pods "image" (mergeOverwrite (dict) $pods.image (dict "pullPolicy" .)) }}
{{- end }}
{{- range (.Values.global).imagePullSecrets }}
{{- $secret := ternary (dict "name" .) . (kindIs "string" .) }}
{{- $_ := set $pods "imagePullSecrets" (append (default list $pods.imagePullSecrets) $secret | uniq) }}
{{- end }}
{{- $pods | toJson }}
{{- end }}

{{/* "true" if the values set the token for endpoint pickers. */}}
{{- define "wva.pickerTokenGiven" -}}
{{- range (include "wva.pods" . | fromJson).extraEnv }}{{ if eq .name "EPP_METRIC_READER_BEARER_TOKEN" }}true{{ end }}{{ end }}
{{- end }}

{{/* "true" if the controller requests short-lived tokens of the picker reader. */}}
{{- define "wva.requestsPickerToken" -}}
{{- if not (or (include "wva.pickerTokenGiven" .) .Values.wva.endpointPickers.tokenSecret) }}true{{ end }}
{{- end }}

{{/* Name of the Lease: llm-d WVA's, so that llm-d WVA and this controller never act at the same time; one for each instance. */}}
{{- define "wva.lease" -}}
72dd1cf1.llm-d.ai
{{- if .Values.wva.controllerInstance }}-{{ .Release.Name }}{{ end }}
{{- end }}

{{/* All ConfigMaps with entries that the controller reads in its namespace, as a JSON list. */}}
{{- define "wva.entryMaps" -}}
{{- list (include "wva.saturationMap" .) "wva-saturation-scaling-config" "saturation-scaling-config" "capacity-scaling-config" "wva-model-scale-to-zero-config" "model-scale-to-zero-config" "serviceclass" (include "wva.serviceClassMap" .) | uniq | toJson }}
{{- end }}

{{/* The Secret with the CA of the serving certificate in ca.crt. */}}
{{- define "wva.caSecret" -}}
{{- if eq .Values.wva.webhook.certMode "self" }}
{{- include "wva.webhookService" . }}-ca
{{- else }}
{{- include "wva.certSecret" . }}
{{- end }}
{{- end }}

{{/* The Secret with a serving certificate from another tool. */}}
{{- define "wva.certSecret" -}}
{{- if eq .Values.wva.webhook.certMode "existingSecret" }}
{{- .Values.wva.webhook.existingSecret }}
{{- else }}
{{- include "wva.fullname" . }}-webhook-cert
{{- end }}
{{- end }}

{{/* Labels that select the controller's pods; they never change within a release. */}}
{{- define "wva.selectorLabels" -}}
app.kubernetes.io/name: {{ include "wva.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
control-plane: controller-manager
{{- end }}

{{/* Labels of every object of the controller. */}}
{{- define "wva.labels" -}}
{{- include "wva.labelsOf" (list . "controller") }}
{{- end }}

{{/* Labels of every object. Arguments: root, component (`controller`, `model` or `test`). */}}
{{- define "wva.labelsOf" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "wva.name" $root | quote }}
app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "wva.moreLabels" . }}
{{- end }}

{{/*
Labels that select nothing: those of the values, and the component and the whole unless the values name others. The same
arguments.
*/}}
{{- define "wva.moreLabels" -}}
{{- $root := index . 0 }}
{{- toYaml (merge (dict) (default dict $root.Values.commonLabels) (dict "app.kubernetes.io/component" (index . 1) "app.kubernetes.io/part-of" (include "wva.name" $root))) }}
{{- end }}

{{/* Name of the controller's service account. */}}
{{- define "wva.serviceAccount" -}}
{{- default (include "wva.managerName" .) .Values.serviceAccount.name }}
{{- end }}

{{/* Image of the controller, quoted. */}}
{{- define "wva.image" -}}
{{- $image := (include "wva.pods" . | fromJson).image }}
{{- include "wva.imageOf" (list . $image.repository $image.tag) }}
{{- end }}

{{/*
Image of the commands, for `helm test`. A digest is that of the controller's image only.
*/}}
{{- define "wva.commandsImage" -}}
{{- $image := (include "wva.pods" . | fromJson).image }}
{{- $own := (.Values.test).image | default dict }}
{{- $tag := ternary "" $image.tag (hasPrefix "sha256:" (default "" $image.tag)) }}
{{- include "wva.imageOf" (list . ($own.repository | default (printf "%s-cli" $image.repository)) ($own.tag | default $tag)) }}
{{- end }}

{{/* The image, quoted, of (list . repository tag). The parent's registry replaces that of the chart's default image only. */}}
{{- define "wva.imageOf" -}}
{{- $root := index . 0 }}
{{- $repository := index . 1 }}
{{- $tag := index . 2 | default $root.Chart.AppVersion }}
{{- $registry := default "" (include "wva.pods" $root | fromJson).image.registry }}
{{- $named := regexFind "^(localhost|[^/]*[.:][^/]*)/" $repository }}
{{- $default := or (eq $named "localhost/") (contains (printf "image: %s:" $repository) (index $root.Chart.Annotations "artifacthub.io/images")) }}
{{- $global := default "" ($root.Values.global).imageRegistry }}
{{- if and (not $registry) $global (or $default (not $named)) }}
{{- $registry = $global | trimSuffix "/" }}
{{- $repository = trimPrefix $named $repository }}
{{- end }}
{{- $repository = printf "%s/%s" $registry $repository | trimPrefix "/" }}
{{- printf "%s%s%s" $repository (ternary "@" ":" (hasPrefix "sha256:" $tag)) $tag | quote }}
{{- end }}

{{/*
Key of an override in the ConfigMap. A key has letters, digits, dots, dashes and underscores only, so the slash of a model's
name becomes a dash. A key must not start with two dots.
*/}}
{{- define "wva.overrideKey" -}}
{{- $key := regexReplaceAll "[^-._a-zA-Z0-9]" . "-" }}
{{- if regexMatch "^[.]([.]|$)" $key }}
{{- $key = printf "-%s" (trimPrefix "." $key) }}
{{- end }}
{{- $key }}
{{- end }}

{{/* "true" if the value is there: 0 is, null and "" are not. */}}
{{- define "wva.given" -}}
{{- if not (or (kindIs "invalid" .) (eq (toString .) "")) }}true{{ end }}
{{- end }}

{{/* A value as text. A number of a values file keeps plain digits; Go would write 1e+06. */}}
{{- define "wva.text" -}}
{{- if kindIs "string" . }}{{ . }}{{ else }}{{ toJson . }}{{ end }}
{{- end }}

{{/*
Labels or annotations: the chart's own, and those of the values with other keys. Readers of the render handle duplicate
keys differently. Arguments: the chart's own as YAML, those of the values.
*/}}
{{- define "wva.together" -}}
{{- $own := index . 0 | fromYaml }}
{{- toYaml (merge $own (default dict (index . 1))) }}
{{- end }}

{{/* Annotations of objects that `helm test` creates before its pod and deletes after it. */}}
{{- define "wva.testRights" -}}
helm.sh/hook: test
helm.sh/hook-weight: "-1"
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{/* "true" if the release has a controller, else "". */}}
{{- define "wva.controller" -}}
{{- if and .Values.controller.enabled (dig "enabled" true .Values.wva) }}true{{ end }}
{{- end }}

{{/* "true" if the values name a model that this release scales. */}}
{{- define "wva.namesModel" -}}
{{- with .Values.llmd }}{{ if or .modelID .modelName .deploymentName .scaleTargetName }}true{{ end }}{{ end }}
{{- end }}

{{/* "true" if the release has a VariantAutoscaling. */}}
{{- define "wva.hasVariant" -}}
{{- if and .Values.va.enabled (include "wva.namesModel" .) }}true{{ end }}
{{- end }}

{{/* "true" if the release has an HPA. */}}
{{- define "wva.hasHpa" -}}
{{- if and .Values.hpa.enabled (include "wva.namesModel" .) }}true{{ end }}
{{- end }}

{{/* "true" if the release has a Service of a model server. */}}
{{- define "wva.hasVllmService" -}}
{{- if and .Values.vllmService.enabled .Values.llmd.modelName }}true{{ end }}
{{- end }}

{{/* "true" if the release has a map of service classes, with the objectives of its own variant. */}}
{{- define "wva.hasServiceClass" -}}
{{- if and (include "wva.hasVariant" .) (or .Values.va.itlSlo .Values.va.ttftSlo .Values.va.sloTpot .Values.va.sloTtft .Values.va.sloTarget) }}true{{ end }}
{{- end }}

{{/* "true" if the controller answers admission reviews. Without webhook configurations, none arrive. */}}
{{- define "wva.admission" -}}
{{- if and .Values.wva.webhook.enabled .Values.wva.clusterObjects }}true{{ end }}
{{- end }}

{{/* "true" if the release renders webhook configurations. */}}
{{- define "wva.registers" -}}
{{- if and (include "wva.controller" .) (include "wva.admission" .) .Values.wva.webhook.register }}true{{ end }}
{{- end }}

{{/* "true" if the release renders admission policies. */}}
{{- define "wva.hasPolicies" -}}
{{- /* With --reuse-values of an earlier release, the key of the policies is missing. */}}
{{- if and (include "wva.controller" .) (dig "admissionPolicy" "enabled" true .Values.wva) .Values.wva.clusterObjects }}true{{ end }}
{{- end }}

{{/* Address of the debug endpoint, if it is not the program's default 127.0.0.1:8082. */}}
{{- define "wva.debugAddress" -}}
{{- $port := int .Values.wva.debug.port }}
{{- if eq $port 0 }}0{{ else if ne $port 8082 }}127.0.0.1:{{ $port }}{{ end }}
{{- end }}

{{/* Ports in use by their keys, as a JSON list of pairs. */}}
{{- define "wva.ports" -}}
{{- $wva := .Values.wva }}
{{- $ports := list (list "wva.health.port" $wva.health.port) }}
{{- if $wva.metrics.enabled }}
{{- $ports = append $ports (list "wva.metrics.port" $wva.metrics.port) }}
{{- end }}
{{- if include "wva.admission" . }}
{{- $ports = append $ports (list "wva.webhook.port" $wva.webhook.port) }}
{{- end }}
{{- if $wva.externalMetrics.enabled }}
{{- $ports = append $ports (list "wva.externalMetrics.port" $wva.externalMetrics.port) }}
{{- end }}
{{- if $wva.debug.port }}
{{- $ports = append $ports (list "wva.debug.port" $wva.debug.port) }}
{{- end }}
{{- $ports | toJson }}
{{- end }}

{{/* "true" if the controller checks callers by TokenReview and SubjectAccessReview. */}}
{{- define "wva.reviewsTokens" -}}
{{- if or (and .Values.wva.metrics.enabled .Values.wva.metrics.secure) .Values.wva.externalMetrics.enabled }}true{{ end }}
{{- end }}

{{/* "true" or "": true, false, or auto: whether the cluster has that API. Arguments: root, value, API. */}}
{{- define "wva.auto" -}}
{{- $root := index . 0 }}
{{- $value := index . 1 | toString }}
{{- if or (eq $value "true") (and (eq $value "auto") ($root.Capabilities.APIVersions.Has (index . 2))) }}true{{ end }}
{{- end }}

{{/* The workload to scale: kind, apiVersion and name. */}}
{{- define "wva.target" -}}
{{- $kind := default "Deployment" .Values.llmd.scaleTargetKind -}}
apiVersion: {{ ternary "leaderworkerset.x-k8s.io/v1" "apps/v1" (eq $kind "LeaderWorkerSet") }}
kind: {{ $kind }}
name: {{ coalesce .Values.llmd.deploymentName .Values.llmd.scaleTargetName (printf "%s-decode" .Values.llmd.modelName) | quote }}
{{- end }}

{{/* Settings of the main ConfigMap that take effect at once, as in crds/src/settings/table.rs, as a JSON object. */}}
{{- define "wva.mutableSettings" -}}
{{- $wva := .Values.wva }}
{{- $cache := $wva.prometheus.metricsCache }}
{{- $settings := dict
  "GLOBAL_OPT_INTERVAL" $wva.reconcileInterval
  "LOG_LEVEL" $wva.logging.level
  "PROMETHEUS_METRICS_CACHE_TTL" $cache.ttl
  "PROMETHEUS_METRICS_CACHE_CLEANUP_INTERVAL" $cache.cleanupInterval
  "PROMETHEUS_METRICS_CACHE_FETCH_INTERVAL" $cache.fetchInterval
  "PROMETHEUS_METRICS_CACHE_FRESH_THRESHOLD" $cache.freshThreshold
  "PROMETHEUS_METRICS_CACHE_STALE_THRESHOLD" $cache.staleThreshold
  "PROMETHEUS_METRICS_CACHE_UNAVAILABLE_THRESHOLD" $cache.unavailableThreshold }}
{{- range $key, $value := $wva.settings }}
{{- if has $key (list "GLOBAL_OPT_INTERVAL" "V" "LOG_LEVEL" "WVA_DECISION_HOLD" "WVA_PENDING_GRACE" "WVA_EARLY_SCALE_UP") }}
{{- $_ := set $settings $key (include "wva.text" $value) }}
{{- else if hasPrefix "PROMETHEUS_METRICS_CACHE_" $key }}
{{- $_ := set $settings $key (include "wva.text" $value) }}
{{- end }}
{{- end }}
{{- /* LOG_LEVEL has priority over V, so a V in wva.settings needs LOG_LEVEL removed. */}}
{{- if and (hasKey $wva.settings "V") (not (hasKey $wva.settings "LOG_LEVEL")) }}
{{- $_ := unset $settings "LOG_LEVEL" }}
{{- end }}
{{- $settings | toJson }}
{{- end }}

{{/* Settings of the main ConfigMap that need a restart, as a JSON object. */}}
{{- define "wva.immutableSettings" -}}
{{- $wva := .Values.wva }}
{{- $proactive := default false $wva.experimentalProactiveModel }}
{{- $settings := dict
  "PROMETHEUS_BASE_URL" $wva.prometheus.baseURL
  "PROMETHEUS_TLS_INSECURE_SKIP_VERIFY" (toString $wva.prometheus.tls.insecureSkipVerify)
  "PROMETHEUS_CA_CERT_PATH" (ternary "/etc/wva/prometheus-ca/ca.crt" $wva.prometheus.tls.caCertPath (not (empty $wva.prometheus.caCert)))
  "WVA_SCALE_TO_ZERO" (toString $wva.scaleToZero)
  "WVA_LIMITED_MODE" (toString $wva.limitedMode)
  "WVA_NODE_SELECTOR" (default (default "" $wva.gpuNodeSelector) $wva.nodeSelector)
  "WVA_LEGACY_METRICS" (toString $wva.legacyMetrics)
  "WVA_WORKLOAD_METRICS" (toString $wva.workloadMetrics)
  "EXPERIMENTAL_PROACTIVE_MODEL" (toString $proactive) }}
{{- /* Never send the service account's token in plain text. */}}
{{- if hasPrefix "https://" $wva.prometheus.baseURL }}
{{- $_ := set $settings "PROMETHEUS_TOKEN_PATH" "/var/run/secrets/kubernetes.io/serviceaccount/token" }}
{{- end }}
{{- if $wva.annotations }}
{{- $_ := set $settings "WVA_ANNOTATIONS" "true" }}
{{- end }}
{{- if $wva.poolGroup }}
{{- $_ := set $settings "POOL_GROUP" $wva.poolGroup }}
{{- end }}
{{- $mutable := include "wva.mutableSettings" . | fromJson }}
{{- range $key, $value := $wva.settings }}
{{- if not (hasKey $mutable $key) }}
{{- $_ := set $settings $key (include "wva.text" $value) }}
{{- end }}
{{- end }}
{{- $settings | toJson }}
{{- end }}

{{/* Changes only with a setting that needs a restart. */}}
{{- define "wva.restartRevision" -}}
{{- include "wva.immutableSettings" . | sha256sum }}
{{- end }}

{{/*
One entry of the saturation map. A fraction from --set is a string, and becomes a number; `on` and `off` of a values file
are booleans, and become words. Analyzers get the names that every release reads. An empty field is inherited, except the
analyzer's name.
*/}}
{{- define "wva.entry" -}}
{{- $analyzers := dict "percentage" "" "token" "saturation" }}
{{- $entry := dict }}
{{- range $key, $value := . }}
{{- if has $key (list "analyzerName" "shadowAnalyzer") }}
{{- if ne $value "none" }}
{{- $_ := set $entry $key (dig $value $value $analyzers) }}
{{- end }}
{{- else if and (kindIs "string" $value) (not $value) }}
{{- else if kindIs "bool" $value | and (eq $key "warmSpare") }}
{{- $_ := set $entry $key (ternary "on" "off" $value) }}
{{- else if and (kindIs "string" $value) (regexMatch "^[0-9]+([.][0-9]+)?$" $value) (not (has $key (list "model_id" "namespace"))) }}
{{- $_ := set $entry $key (float64 $value) }}
{{- else }}
{{- $_ := set $entry $key $value }}
{{- end }}
{{- end }}
{{- toYaml $entry }}
{{- end }}

{{- /* Whether wva sets deletion costs of pods: as the value says, else if it scales workloads itself. */}}
{{- define "wva.podDeletionCost" -}}
{{- $scales := eq (toString (get .Values.wva.settings "WVA_ACTUATION")) "scale" }}
{{- if ternary $scales .Values.wva.podDeletionCost (kindIs "invalid" .Values.wva.podDeletionCost) }}true{{ end }}
{{- end }}
