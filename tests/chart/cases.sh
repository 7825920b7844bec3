# shellcheck shell=bash disable=SC2154,SC2086 # names of tests/chart.sh, and arguments that are separate words
# Cases that tests/chart.sh renders: `case_ NAME ARGUMENTS...`, arguments of `helm template`. Release and
# namespace are those of the documentation, and tests/chart/prometheus.yaml names a Prometheus, unless a case sets others.
compat="-f $chart/values-llm-d-wva.yaml"
model="-f tests/chart/model.yaml"

case_ defaults
case_ model               $model
case_ dev                 -f "$chart/values-dev.yaml" $model
case_ ha                  -f "$chart/values-ha.yaml"
case_ kube-prometheus-stack -f "$chart/values-kube-prometheus-stack.yaml" $model --api-versions monitoring.coreos.com/v1/ServiceMonitor --api-versions monitoring.coreos.com/v1/PrometheusRule
case_ openshift           -f "$chart/values-openshift.yaml" $model
case_ llm-d-wva           $compat
case_ namespaced          $model --set wva.namespaceScoped=true,llmd.namespace=$system
case_ namespaced-limited  $model --set wva.namespaceScoped=true,wva.limitedMode=true,wva.controllerInstance=team-a
case_ instance            $model --set wva.controllerInstance=team-a
case_ instance-ignore     --set wva.controllerInstance=team-a,wva.webhook.instancePolicy=ignore
case_ no-admission-policy --set wva.admissionPolicy.enabled=false
case_ instance-require   --set wva.controllerInstance=team-a,wva.webhook.instancePolicy=require
case_ external-metrics    --set wva.externalMetrics.enabled=true
case_ no-controller       $model --set controller.enabled=false
case_ tenant              $model --set controller.enabled=false,rbac.create=false,vllmService.serviceMonitor.enabled=true
case_ no-webhook          --set wva.webhook.enabled=false
case_ not-registered      --set wva.webhook.register=false
case_ pod-monitor         --set wva.metrics.podMonitor.enabled=true
case_ other-namespace     $model -f tests/chart/everything.yaml --set namespaceOverride=elsewhere,wva.webhook.certMode=cert-manager
case_ parent-chart-secret --set 'global.imagePullSecrets[0]=registry,global.imagePullSecrets[1].name=mirror,imagePullSecrets[0].name=registry'
case_ budget              --set podDisruptionBudget.minAvailable=50%,podDisruptionBudget.unhealthyPodEvictionPolicy=IfHealthyBudget
case_ plain-metrics       --set wva.metrics.secure=false,wva.metrics.serviceMonitor.enabled=true
case_ no-metrics          --set wva.metrics.enabled=false
case_ cert-manager        --set wva.webhook.certMode=cert-manager
case_ existing-secret     --set wva.webhook.certMode=existingSecret,wva.webhook.existingSecret=my-cert
case_ with-operator       $model --api-versions monitoring.coreos.com/v1/ServiceMonitor --api-versions monitoring.coreos.com/v1/PrometheusRule
case_ everything          $model -f tests/chart/everything.yaml
case_ parent-chart        --set global.imageRegistry=registry.example,enabled=true,global.other.key=x
case_ aks                 -f "$chart/values-aks.yaml" --set wva.controllerInstance=team-a
case_ host-network        --set hostNetwork=true,wva.externalMetrics.enabled=true,wva.health.port=18081,wva.debug.port=18082,wva.metrics.port=18443,wva.webhook.port=19443,wva.externalMetrics.port=16443
case_ own-namespace       -f "$chart/values-namespace.yaml" $model --set llmd.namespace=$system
case_ http-prometheus     --set wva.prometheus.baseURL=http://prometheus.monitoring.svc:9090
case_ kubernetes-1.30     $model --kube-version 1.30.0
case_ long-name           $model --set fullnameOverride=a-release-with-a-name-of-fifty-characters-or-more-a
case_ no-rbac             --set rbac.create=false,wva.externalMetrics.enabled=true,serviceAccount.create=false,serviceAccount.name=mine
case_ crd                 --set crds.install=true
