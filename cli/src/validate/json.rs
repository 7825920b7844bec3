//! Findings as JSON.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use wva_crds::envelope::{self, FileKind};

use super::report::{Finding, Report};

/// Report of `wva validate -o json`.
#[derive(Serialize, JsonSchema)]
pub(super) struct Output<'a> {
    /// Sorted by file, line, column and code.
    findings: Vec<Row<'a>>,
    /// Numbers of objects and findings.
    summary: Summary,
}

/// A finding about a file or an object in it.
#[derive(Serialize, JsonSchema)]
struct Row<'a> {
    /// Path of the file.
    file: &'a str,
    /// Line, from 1.
    line: usize,
    /// Column, from 1, in characters.
    column: usize,
    /// Kind of the object; `null` for a finding about the file.
    kind: Option<&'a str>,
    /// Namespace of the object.
    namespace: Option<&'a str>,
    /// Name of the object.
    name: Option<&'a str>,
    /// `deny` or `warn`.
    severity: &'static str,
    /// Code of the rule.
    code: &'static str,
    /// Path of the field; empty for a finding about the file.
    field: &'a str,
    /// What is wrong, and what is right.
    message: &'a str,
    /// Page of the rule.
    docs: String,
}

/// Numbers of objects and findings.
#[derive(Serialize, JsonSchema)]
struct Summary {
    /// Objects of any kind.
    objects: usize,
    /// Findings that deny an object.
    deny: usize,
    /// Warnings.
    warn: usize,
}

/// JSON Schema of the report.
pub(crate) fn schema() -> Value {
    envelope::schema::<Output<'_>>(FileKind::ValidationReport, false)
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
