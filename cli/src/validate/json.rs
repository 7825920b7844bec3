//! Findings as JSON.

use serde::Serialize;

use super::report::{Finding, Report};

#[derive(Serialize)]
pub(super) struct Output<'a> {
    findings: Vec<Row<'a>>,
    summary: Summary,
}

#[derive(Serialize)]
struct Row<'a> {
    file: &'a str,
    line: usize,
    column: usize,
    kind: Option<&'a str>,
    namespace: Option<&'a str>,
    name: Option<&'a str>,
    severity: &'static str,
    code: &'static str,
    field: &'a str,
    message: &'a str,
    docs: String,
}

#[derive(Serialize)]
struct Summary {
    objects: usize,
    deny: usize,
    warn: usize,
}

pub(super) fn output<'a>(report: &'a Report<'_>) -> Output<'a> {
    let findings = report.findings.iter().map(row).collect();
    let summary = Summary { objects: report.objects, deny: report.deny_count(), warn: report.warn_count() };
    Output { findings, summary }
}

fn row<'a>(finding: &'a Finding<'a>) -> Row<'a> {
    let object = finding.object;
    Row {
        file: &finding.source.name,
        line: finding.line,
        column: finding.column,
        kind: object.map(|o| o.kind.as_str()),
        namespace: object.map(|o| o.namespace.as_str()),
        name: object.map(|o| o.name.as_str()),
        severity: if finding.is_denied { "deny" } else { "warn" },
        code: finding.code,
        field: &finding.field,
        message: &finding.message,
        docs: finding.docs(),
    }
}
