#!/usr/bin/env bash
# Tests the chart's alerts with promtool: each fires and clears as tests/chart/alerts.txt says, in both layouts of labels
# (with honorLabels the variant's namespace is `namespace`, else `exported_namespace`), while no other alert fires, and
# another release of the same name has the same series.
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
"$promtool" test rules $out/exported-namespace.yaml $out/honor-labels.yaml

untested=$(comm -23 <(sed -n 's/^ *- alert: //p' $out/rules.yaml | sort) <(grep -oE '^WVA[A-Za-z]+' $cases | sort -u))
[ -z "$untested" ] || { echo "alerts: no case in $cases for $untested" >&2; exit 1; }
count=$(grep -c '^WVA' $cases)
echo "alerts: $count cases fire and clear in two layouts"
