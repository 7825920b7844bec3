//! Page of the dashboards.

use std::fmt::Write as _;

use super::source::Source;

const HEAD: &str = "# Dashboards

<!-- Written by `make generate` from charts/dashboards.yaml: change titles, descriptions and queries there, or the text
     around them in xtask/src/dashboards/page.rs. -->

This page explains the three Grafana dashboards of the chart and lists their panels with their queries.
[Metrics](../reference/metrics.md) explains the series, and the [runbook](runbook.md) the alerts.

## Install

`wva.metrics.grafanaDashboard.enabled=true` renders a ConfigMap with the three dashboards and the labels
`wva.metrics.grafanaDashboard.labels`, by which the sidecar of Grafana finds it. One release per Grafana is enough: the
dashboards show any release. You can also import the files from
[the chart](../../charts/workload-variant-autoscaler/dashboards). They need Grafana 10 or later.

This page has no pictures of them, because no Grafana runs in our tests. Instead, an end-to-end test sends every query
to a real Prometheus, and checks that it returns data. `wva report` draws [similar figures](../reference/cli.md#wva-report)
from recorded cycles.

## Choose what you see

| variable | what it selects |
|---|---|
| Data source | a Prometheus |
| Release | the scrape job of one release. No panel mixes two releases |
| Release namespace | the namespace of this release, if another one has a release of the same name |
| Instance | pods of the controller, on the controller's dashboard |
| Namespace, Model, Variant | what its name says |
| Filters | more label matchers for all queries, such as `cluster=\"a\"` if one Prometheus holds several clusters |

Prometheus renames the label `namespace` of a variant to `exported_namespace`, unless the scrape job has `honorLabels:
true` or no `namespace` of its own. A hidden variable finds out which of the two your Prometheus has, so the dashboards
work with both.

The panels about model servers read the series of vLLM, SGLang and TensorRT-LLM from the same Prometheus. These need the
labels `namespace` and `pod`, and a `model_name` that equals `spec.modelID`.

The tables below show queries without those matchers: `{...}` stands for release, namespace, model and variant, and
`namespace` for either of the two labels. A word such as `@cost` stands for a [shared part](#shared-parts-of-queries).
";

pub(crate) fn page() -> String {
    let source = Source::read();
    let mut out = HEAD.to_owned();
    for board in &source.dashboards {
        let _ = write!(out, "\n## {}\n\n{}\n", board.title, source.expand(&board.about));
        for row in &board.rows {
            let _ = write!(
                out,
                "\n### {}: {}\n\n| panel | meaning | queries |\n|---|---|---|\n",
                title(&board.file),
                row.title
            );
            for panel in &row.panels {
                let about = cell(&source.expand(&panel.about));
                let queries =
                    panel.queries.iter().map(|query| format!("`{}`", cell(&source.abbreviate(&query.expr))));
                let _ = writeln!(
                    out,
                    "| {} | {about} | {} |",
                    panel.title,
                    queries.collect::<Vec<_>>().join("<br>")
                );
            }
        }
        if !board.annotations.is_empty() {
            let _ = write!(
                out,
                "\n### {}: annotations\n\n| annotation | query |\n|---|---|\n",
                title(&board.file)
            );
            for annotation in &board.annotations {
                let expr = cell(&source.abbreviate(&annotation.expr));
                let _ = writeln!(out, "| {} | `{expr}` |", annotation.name);
            }
        }
    }
    out += "\n## Shared parts of queries\n\n| word | stands for |\n|---|---|\n";
    for (word, meaning) in source.parts() {
        let _ = writeln!(out, "| `{word}` | `{}` |", cell(&meaning));
    }
    out
}

/// Title of a dashboard, with a capital letter, so that headings of two dashboards differ.
fn title(file: &str) -> String {
    let (first, rest) = file.split_at(1);
    first.to_uppercase() + rest
}

/// A `|` would end the cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}
