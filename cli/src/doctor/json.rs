//! Report of `wva doctor -o json`. Its schema is published: fields are added, but never renamed or removed.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use wva_crds::envelope::{self, FileKind};

use super::chain::{Finding, State, VariantFindings};

/// Report of `wva doctor -o json`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct DoctorReport {
    /// Checks of the cluster: CRD, controllers, leader, namespaces, external metrics API.
    cluster: Vec<CheckResult>,
    /// Chosen variants, by namespace and name.
    variants: Vec<VariantReport>,
    summary: Summary,
}

/// Checks of one variant, from the object to its replicas.
#[derive(Debug, Serialize, JsonSchema)]
struct VariantReport {
    /// Namespace of the VariantAutoscaling.
    namespace: String,
    /// Name of the VariantAutoscaling.
    name: String,
    /// The worst state of its checks.
    state: State,
    /// Checks in the order of the chain. A broken check can end it.
    checks: Vec<CheckResult>,
}

/// Result of one check.
#[derive(Debug, Serialize, JsonSchema)]
struct CheckResult {
    /// Name of the check, such as `scrape`.
    check: String,
    state: State,
    /// What was found.
    message: String,
    /// What to do. Present if the state is `warning` or `broken`.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

/// Numbers of variants by their worst state.
#[derive(Debug, Default, Serialize, JsonSchema)]
struct Summary {
    /// The target of the variant does not take effect.
    broken: usize,
    /// A person should look at it.
    warnings: usize,
    /// Number of variants that are neither broken nor have a warning.
    ok: usize,
}

impl DoctorReport {
    pub(super) fn new(cluster: &[(&'static str, Finding)], variants: &[VariantFindings]) -> Self {
        let mut summary = Summary::default();
        for variant in variants {
            match variant.state() {
                State::Broken => summary.broken += 1,
                State::Warning => summary.warnings += 1,
                State::Fine | State::Unknown => summary.ok += 1,
            }
        }
        let variants = variants.iter().map(VariantReport::new).collect();
        Self { cluster: check_results(cluster), variants, summary }
    }
}

impl VariantReport {
    fn new(variant: &VariantFindings) -> Self {
        let (namespace, name) = variant.variant.split_once('/').unwrap_or(("", &variant.variant));
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            state: variant.state(),
            checks: check_results(&variant.findings),
        }
    }
}

/// Results of these checks, each with its name.
fn check_results(findings: &[(&'static str, Finding)]) -> Vec<CheckResult> {
    let result = |(check, finding): &(&'static str, Finding)| {
        let Finding { state, message, remedy } = finding.clone();
        CheckResult { check: (*check).to_owned(), state, message, remedy }
    };
    findings.iter().map(result).collect()
}

/// JSON Schema of the report.
pub(crate) fn schema() -> Value {
    envelope::schema::<DoctorReport>(FileKind::DoctorReport, false)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn report_has_states_and_remedies() {
        let findings =
            vec![("variant", Finding::fine("accepted")), ("scrape", Finding::broken("none", "do this"))];
        let variant = VariantFindings { variant: "prod/a".to_owned(), findings };
        let report = DoctorReport::new(&[("crd", Finding::unknown("forbidden"))], &[variant]);
        let want = json!({
            "cluster": [{"check": "crd", "state": "unknown", "message": "forbidden"}],
            "variants": [{"namespace": "prod", "name": "a", "state": "broken", "checks": [
                {"check": "variant", "state": "ok", "message": "accepted"},
                {"check": "scrape", "state": "broken", "message": "none", "remedy": "do this"},
            ]}],
            "summary": {"broken": 1, "warnings": 0, "ok": 0},
        });
        assert_eq!(serde_json::to_value(report).unwrap(), want);
    }
}
