//! Page of the Grafana dashboards, from the chart's files.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::Value;

const FOLDER: &str = "charts/workload-variant-autoscaler/dashboards";
const HEAD: &str = "# Dashboards

<!-- Written by `make generate` from the chart's dashboards: change titles and descriptions there, or the text around them
     in tests/program/dashboard_page.rs. -->

This page lists the panels of the chart's Grafana dashboards and the series behind them.

`wva.metrics.grafanaDashboard.enabled=true` renders each dashboard as a ConfigMap with the labels
`wva.metrics.grafanaDashboard.labels`, by which the sidecar of Grafana finds it. You can also import the files from
[the chart](../../charts/workload-variant-autoscaler/dashboards). [Metrics](../reference/metrics.md) explains the
series, and the [runbook](runbook.md) the alerts.
";

pub(crate) fn page() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(FOLDER);
    let files: BTreeSet<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    let mut out = HEAD.to_owned();
    for file in files {
        let dashboard: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        let title = dashboard["title"].as_str().unwrap();
        let _ = write!(out, "\n## {title}\n\n| panel | meaning | series |\n|---|---|---|\n");
        for panel in dashboard["panels"].as_array().unwrap().iter().flat_map(with_inner) {
            let targets = panel["targets"].as_array().into_iter().flatten();
            let series: BTreeSet<&str> =
                targets.filter_map(|t| t["expr"].as_str()).flat_map(series).collect();
            if !series.is_empty() {
                let series: Vec<String> = series.iter().map(|name| format!("`{name}`")).collect();
                let meaning = panel["description"].as_str().unwrap_or_default();
                let _ = writeln!(
                    out,
                    "| {} | {meaning} | {} |",
                    panel["title"].as_str().unwrap(),
                    series.join(", ")
                );
            }
        }
    }
    out
}

/// A panel, and those in it if it is a collapsed row.
fn with_inner(panel: &Value) -> impl Iterator<Item = &Value> {
    std::iter::once(panel).chain(panel["panels"].as_array().into_iter().flatten())
}

/// Names of series in an expression.
fn series(expression: &str) -> impl Iterator<Item = &str> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':');
    words.filter(|word| word.starts_with("wva_") || word.starts_with("vllm:"))
}
