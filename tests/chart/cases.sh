# shellcheck shell=bash disable=SC2154,SC2086 # names of tests/chart.sh, and arguments that are separate words
# The ways to install the chart that tests/chart.sh renders: `case_ NAME ARGUMENTS...`, arguments of `helm template`. Release and
# namespace are those of the documentation unless a case says otherwise.
values=tests/fixtures/original
ours="--set wva.image.repository=registry.example/wva"

case_ defaults
case_ dev                 -f "$chart/values-dev.yaml"
case_ namespaced          --set wva.namespaceScoped=true,llmd.namespace=$system
case_ namespaced-limited  --set wva.namespaceScoped=true,wva.limitedMode=true,wva.controllerInstance=team-a
case_ instance            --set wva.controllerInstance=team-a
case_ instance-ignore     --set wva.controllerInstance=team-a,wva.webhook.instancePolicy=ignore
case_ no-admission-policy --set wva.admissionPolicy.enabled=false
case_ instance-require   --set wva.controllerInstance=team-a,wva.webhook.instancePolicy=require
case_ external-metrics    --set wva.externalMetrics.enabled=true
case_ no-controller       --set controller.enabled=false
case_ no-webhook          --set wva.webhook.enabled=false
case_ not-registered      --set wva.webhook.register=false
case_ plain-metrics       --set wva.metrics.secure=false,wva.metrics.serviceMonitor.enabled=true
case_ no-metrics          --set wva.metrics.enabled=false
case_ cert-manager        --set wva.webhook.certMode=cert-manager
case_ existing-secret     --set wva.webhook.certMode=existingSecret,wva.webhook.existingSecret=my-cert
case_ with-operator       --api-versions monitoring.coreos.com/v1/ServiceMonitor --api-versions monitoring.coreos.com/v1/PrometheusRule
case_ everything          -f tests/chart/everything.yaml
case_ parent-chart        --set global.imageRegistry=registry.example
case_ http-prometheus     --set wva.prometheus.baseURL=http://prometheus.monitoring.svc:9090
case_ kubernetes-1.30     --kube-version 1.30.0
case_ long-name           --set fullnameOverride=a-release-with-a-name-of-fifty-characters-or-more-a
case_ readme-defaults     -f $values/chart-values-defaults.yaml $ours
case_ readme-saturation   -f $values/chart-values-saturation.yaml
case_ readme-behavior     -f $values/chart-values-hpa-behavior.yaml
case_ readme-old-keys     -f $values/chart-values-old-keys.yaml
# The commands of the original's README.
case_ readme-openshift    --set-file wva.prometheus.caCert=tests/chart/ca.crt --set va.accelerator=L40S --set llmd.modelID=unsloth/Meta-Llama-3.1-8B --set vllmService.enabled=true --set vllmService.nodePort=30000
case_ readme-production   --values "$chart/values.yaml"
case_ readme-custom       --values "$chart/values.yaml" --set wva.prometheus.tls.insecureSkipVerify=true --set wva.image.tag=v0.0.1-dev
case_ readme-immutable    --values "$chart/values.yaml" --set wva.configMap.immutable=true
case_ readme-fast-hpa     --set hpa.behavior.scaleUp.stabilizationWindowSeconds=30 --set hpa.behavior.scaleDown.stabilizationWindowSeconds=30
