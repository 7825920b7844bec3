//! Findings as SARIF 2.1.0, for code scanning.

use serde_json::{Value, json};

use super::evaluate::{RuleText, rules};
use super::report::{Finding, REPOSITORY, Report, command, docs};

const SCHEMA: &str =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

pub(super) fn render(report: &Report<'_>) -> String {
    let rules: Vec<RuleText> = rules().collect();
    super::report::json_line(&json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "wva",
                "informationUri": REPOSITORY,
                "semanticVersion": env!("CARGO_PKG_VERSION"),
                "rules": rules.iter().map(rule).collect::<Vec<_>>(),
            }},
            "columnKind": "unicodeCodePoints",
            "results": report.findings.iter().map(|f| result(f, &rules)).collect::<Vec<_>>(),
        }],
    }))
}

fn rule(rule: &RuleText) -> Value {
    json!({
        "id": rule.code,
        "shortDescription": { "text": rule.docs },
        "help": { "text": command(rule.code) },
        "helpUri": docs(rule.code),
        "defaultConfiguration": { "level": level(rule.denies) },
    })
}

fn result(finding: &Finding<'_>, rules: &[RuleText]) -> Value {
    let mut location = json!({
        "physicalLocation": {
            "artifactLocation": { "uri": uri(&finding.source.name) },
            "region": {
                "startLine": finding.line,
                "startColumn": finding.column,
                "endLine": finding.line,
                "endColumn": finding.end_column,
            },
        },
    });
    if let Some(object) = finding.object_name() {
        let name = format!("{object} {}", finding.field);
        location["logicalLocations"] = json!([{ "fullyQualifiedName": name.trim_end(), "kind": "resource" }]);
    }
    let mut result = json!({
        "ruleId": finding.code,
        "level": level(finding.is_denied),
        "message": { "text": finding.sentence() },
        "locations": [location],
    });
    if let Some(index) = rules.iter().position(|r| r.code == finding.code) {
        result["ruleIndex"] = json!(index);
    }
    result
}

fn level(is_denied: bool) -> &'static str {
    if is_denied { "error" } else { "warning" }
}

/// Relative paths stay relative, so that code scanning finds them.
fn uri(path: &str) -> String {
    let is_safe = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'-' | b'.' | b'_' | b'~');
    let escaped =
        path.bytes().map(|b| if is_safe(b) { char::from(b).to_string() } else { format!("%{b:02X}") });
    let prefix = if path.starts_with('/') { "file://" } else { "" };
    format!("{prefix}{}", escaped.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_paths_in_uri_references() {
        for (path, want) in [
            ("a/b.yaml", "a/b.yaml"),
            ("a b/ü:1.yaml", "a%20b/%C3%BC%3A1.yaml"),
            ("/abs/x.yaml", "file:///abs/x.yaml"),
            ("<stdin>", "%3Cstdin%3E"),
        ] {
            assert_eq!(uri(path), want);
        }
    }
}
