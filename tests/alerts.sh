#!/usr/bin/env bash
# Tests the chart's alerts with promtool: each fires and clears as tests/chart/alerts.txt says, in both layouts of labels
# (with honorLabels the variant's namespace is `namespace`, else `exported_namespace`), while no other alert fires, and
# another release of the same name has the same series. The recording rules and the panel that reads them have their costs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=target/chart/alerts
mkdir -p $out
export HELM_CONFIG_HOME=$PWD/$out/helm HELM_CACHE_HOME=$PWD/$out/helm HELM_DATA_HOME=$PWD/$out/helm
unset KUBECONFIG HELM_NAMESPACE
tools=$(tests/testbed/tools/build.sh helm promtool)
helm=$(sed -n 's/^helm=//p' <<<"$tools")
promtool=$(sed -n 's/^promtool=//p' <<<"$tools")
cases=tests/chart/alerts.txt

"$helm" template workload-variant-autoscaler charts/workload-variant-autoscaler --namespace sys -f tests/chart/prometheus.yaml \
  --set wva.metrics.prometheusRule.enabled=true,wva.metrics.prometheusRule.additionalRules[0].record=own,wva.metrics.prometheusRule.additionalRules[0].expr=1 \
  --show-only templates/alerts.yaml > $out/rule.yaml
sed -n '/^  groups:/,$p' $out/rule.yaml | sed 's/^  //' > $out/rules.yaml
"$promtool" check rules --lint=all --lint-fatal $out/rules.yaml
grep -q 'record: own' $out/rules.yaml || { echo "alerts: additionalRules are not in the render" >&2; exit 1; }
job=$(sed -nE '/job="/ { s/.*job="([^"]*)".*/\1/p; q; }' $out/rules.yaml)

# Writes the tests of one layout. ns: labels of a series about namespace team; twin: about the other release's.
tests() {
  awk -v job="$job" -v ns="$1" -v twin="$2" '
    function put(line,   at) {
      at = index(line, "} ")
      printf "  - series: %s\n    values: %s\n", q(substr(line, 1, at)), q(substr(line, at + 2))
    }
    function q(text) { gsub(/\047/, "\047\047", text); return "\047" text "\047" }
    function close_case(   k, n, i, at, labels) {
      if (alert == "") return
      if (input !~ /wva_leader/) put("wva_leader{" self "} 1x150")
      if (input !~ /wva_engine_cycles_total/) put("wva_engine_cycles_total{" self ",result=\"ok\"} 0+4x150")
      put("wva_leader{" other "} 1x150")
      # A variant without faults, so that the leader has series of variants.
      if (input !~ /NEXT/) put("wva_variant_condition{" ns ",variant_name=\"calm\",type=\"Ready\",status=\"True\",reason=\"Ready\"} 1x150")
      labels = ", " substr(expected, 2)
      if (expected == "{}") labels = "}"
      print "  promql_expr_test:"
      for (k = 1; k <= 3; k++) {
        n = split(minute[k], at, ",")
        for (i = 1; i <= n; i++) {
          printf "  - expr: ALERTS{alertstate=\"firing\"}\n    eval_time: %sm\n    exp_samples:", at[i]
          if (k != 2) print " []"
          else printf "\n    - labels: %s\n      value: 1\n", q("ALERTS{alertname=\"" alert "\", alertstate=\"firing\", severity=\"" severity "\"" labels)
        }
      }
    }
    BEGIN {
      following = ns; sub(/pod="p",instance="i"/, "pod=\"q\",instance=\"j\"", following)
      self = "namespace=\"sys\",job=\"" job "\",pod=\"p\",instance=\"i\""
      other = "namespace=\"other\",job=\"" job "\",pod=\"o\",instance=\"o\""
      print "rule_files: [rules.yaml]\nevaluation_interval: 1m\ntests:"
    }
    /^#/ || /^$/ { next }
    /^[A-Z]/ {
      close_case()
      alert = $1; severity = $2; minute[1] = $3; minute[2] = $4; minute[3] = $5; input = ""
      expected = $0; sub(/^[^{]*/, "", expected); gsub(/JOB/, job, expected)
      print "- name: " alert "\n  interval: 1m\n  input_series:"
      next
    }
    {
      sub(/^ */, ""); gsub(/JOB/, job); input = input $1
      mine = $0; gsub(/SELF/, self, mine); gsub(/NS,/, ns ",", mine); gsub(/NEXT,/, following ",", mine)
      put(mine)
      if ($0 ~ /NS,/) { gsub(/NS,/, twin ","); put($0) }
      else if ($0 ~ /SELF/ && $0 !~ /wva_leader/) { gsub(/SELF/, other); put($0) }
    }
    END { close_case() }' $cases
}
where="job=\"$job\",pod=\"p\",instance=\"i\""
elsewhere="job=\"$job\",pod=\"o\",instance=\"o\""
tests "namespace=\"sys\",exported_namespace=\"team\",$where" "namespace=\"other\",exported_namespace=\"team2\",$elsewhere" > $out/exported-namespace.yaml
tests "namespace=\"team\",$where" "namespace=\"team2\",$elsewhere" > $out/honor-labels.yaml
# Two hours of a fleet that costs 60 an hour in each of two namespaces, while another release has the same series. With `or`
# the panel must read the records, and the variants' own series only where no rule records. Arguments as above, and the label
# of a variant's namespace.
panel=$(sed -n 's/.*"expr":"\(.*\)","format".*"title":"Cost of the last 24 hours".*/\1/p' charts/workload-variant-autoscaler/dashboards/fleet.json | sed 's/\\"/"/g')
[ -n "$panel" ] || { echo "alerts: no panel \"Cost of the last 24 hours\"" >&2; exit 1; }
# shellcheck disable=SC2016 # those are variables of Grafana
records() {
  local mine=$1 twin=$2 label=$3
  local fleet=${panel//'$job'/$job} labels="job=\"$job\", namespace=\"sys\""
  fleet=${fleet//'$instance'/i}
  fleet=${fleet//'$namespace_label'/$label}
  fleet=${fleet//'$namespace'/team|team-b}
  local recorded=${fleet//'$recorded'/$job} unrecorded=${fleet//'$recorded'/}
  cat <<TEST
rule_files: [rules.yaml]
evaluation_interval: 1m
tests:
- interval: 1m
  input_series:
  - {series: 'wva_leader{namespace="sys",$where}', values: 1x120}
  - {series: 'wva_leader{namespace="other",$elsewhere}', values: 1x120}
  - {series: 'wva_variant_cost{$mine,variant_name="a"}', values: 10x120}
  - {series: 'wva_variant_cost{$mine,variant_name="b"}', values: 15x120}
  - {series: 'wva_variant_cost{${mine/'"team"'/'"team-b"'},variant_name="a"}', values: 5x120}
  - {series: 'wva_variant_cost{$twin,variant_name="a"}', values: 7x120}
  - {series: 'wva_current_replicas{$mine,variant_name="a"}', values: 3x120}
  - {series: 'wva_current_replicas{$mine,variant_name="b"}', values: 2x120}
  - {series: 'wva_current_replicas{${mine/'"team"'/'"team-b"'},variant_name="a"}', values: 12x120}
  - {series: 'wva_current_replicas{$twin,variant_name="a"}', values: 7x120}
  - {series: 'wva_slo_attainment_ratio{$mine,model_name="m",objective="ttft",window="1h"}', values: 0.97x120}
  - {series: 'wva_slo_attainment_ratio{$twin,model_name="m",objective="ttft",window="1h"}', values: 0.5x120}
  promql_expr_test:
  - expr: namespace:wva_cost_per_hour:sum
    eval_time: 1h
    exp_samples:
    - {labels: 'namespace:wva_cost_per_hour:sum{exported_namespace="team", $labels}', value: 60}
    - {labels: 'namespace:wva_cost_per_hour:sum{exported_namespace="team-b", $labels}', value: 60}
  - expr: job:wva_cost_per_hour:sum
    eval_time: 1h
    exp_samples: [{labels: 'job:wva_cost_per_hour:sum{$labels}', value: 120}]
  - expr: namespace_model:wva_slo_attainment_ratio:min
    eval_time: 1h
    exp_samples: [{labels: 'namespace_model:wva_slo_attainment_ratio:min{exported_namespace="team", model_name="m", objective="ttft", window="1h", $labels}', value: 0.97}]
  # 121 samples of the rule.
  - expr: ${recorded//'$release_namespace'/sys}
    eval_time: 2h
    exp_samples: [{labels: '{}', value: 242}]
  # 61 steps of the subquery.
  - expr: ${unrecorded//'$release_namespace'/none}
    eval_time: 2h
    exp_samples: [{labels: '{}', value: 244}]
TEST
}
records "namespace=\"sys\",exported_namespace=\"team\",$where" "namespace=\"other\",exported_namespace=\"team2\",$elsewhere" exported_namespace > $out/records-exported-namespace.yaml
records "namespace=\"team\",$where" "namespace=\"team2\",$elsewhere" namespace > $out/records-honor-labels.yaml
"$promtool" test rules $out/exported-namespace.yaml $out/honor-labels.yaml $out/records-exported-namespace.yaml $out/records-honor-labels.yaml

untested=$(comm -23 <(sed -n 's/^ *- alert: //p' $out/rules.yaml | sort) <(grep -oE '^WVA[A-Za-z]+' $cases | sort -u))
[ -z "$untested" ] || { echo "alerts: no case in $cases for $untested" >&2; exit 1; }
count=$(grep -c '^WVA' $cases)
echo "alerts: $count cases fire and clear in two layouts"
