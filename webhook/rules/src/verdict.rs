//! Verdict of all rules: message and causes of a denial, and warnings within the API limits.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Status, StatusCause, StatusDetails};
use wva_crds::names::{GROUP, KIND};

use crate::findings::PatchOp;

/// The API server truncates longer warnings.
pub const MAX_WARNING_CHARS: usize = 120;
/// Maximum bytes of all warnings of a review; the API server drops the rest.
pub const MAX_WARNING_BYTES: usize = 4096;

/// Effect of a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The object is denied.
    Deny,
    /// The user gets a warning.
    Warn,
}

/// One violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Code of the rule, such as `WVA-VA-003`.
    pub code: &'static str,
    /// The field, as kubectl prints it.
    pub field: String,
    /// The problem and its solution.
    pub message: String,
    /// A violation of a deny rule that an update does not touch is a warning.
    pub severity: Severity,
}

/// Verdict of all rules on one object.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Kind of the object in messages.
    pub kind: &'static str,
    /// API group of the kind.
    pub group: &'static str,
    /// Name of the object in messages.
    pub name: String,
    /// Violations in the order of the table.
    pub violations: Vec<Violation>,
    /// Warnings within the API limits.
    pub warnings: Vec<String>,
    /// Completes the object; possibly empty.
    pub patch: Vec<PatchOp>,
}

impl Default for Verdict {
    /// Verdict on a `VariantAutoscaling` without a name.
    fn default() -> Self {
        let (violations, warnings, patch) = (Vec::new(), Vec::new(), Vec::new());
        Self { kind: KIND, group: GROUP, name: String::new(), violations, warnings, patch }
    }
}

impl Verdict {
    /// Whether the object is denied.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        self.denials().next().is_some()
    }

    /// They deny the object.
    pub fn denials(&self) -> impl Iterator<Item = &Violation> {
        self.violations.iter().filter(|v| v.severity == Severity::Deny)
    }

    /// All denials, for clients that show only this.
    #[must_use]
    pub fn message(&self) -> String {
        let denials: Vec<String> =
            self.denials().map(|v| format!("[{}] {}: {}", v.code, v.field, v.message)).collect();
        format!("{} \"{}\" is invalid: {}", self.kind, self.name, denials.join("; "))
    }

    /// Reason `Invalid`, code 422, one cause for each violation. `None` if the object is admitted.
    #[must_use]
    pub fn to_status(&self) -> Option<Status> {
        if !self.is_denied() {
            return None;
        }
        let cause = |v: &Violation| StatusCause {
            field: Some(v.field.clone()),
            message: Some(format!("[{}] {}", v.code, v.message)),
            reason: Some("FieldValueInvalid".to_owned()),
        };
        Some(Status {
            status: Some("Failure".to_owned()),
            reason: Some("Invalid".to_owned()),
            code: Some(422),
            message: Some(self.message()),
            details: Some(StatusDetails {
                group: Some(self.group.to_owned()),
                kind: Some(self.kind.to_owned()),
                name: Some(self.name.clone()),
                causes: Some(self.denials().map(cause).collect()),
                ..StatusDetails::default()
            }),
            ..Status::default()
        })
    }
}

/// Limits the warnings to [`MAX_WARNING_BYTES`]. The last one counts those that are left out.
pub(crate) fn limit_warnings(warnings: Vec<String>) -> Vec<String> {
    let bytes: usize = warnings.iter().map(String::len).sum();
    if bytes <= MAX_WARNING_BYTES {
        return warnings;
    }
    let total_count = warnings.len();
    let mut left = MAX_WARNING_BYTES - MAX_WARNING_CHARS;
    let mut kept = Vec::new();
    for warning in warnings {
        let Some(rest) = left.checked_sub(warning.len()) else { break };
        left = rest;
        kept.push(warning);
    }
    kept.push(format!("and {} more warnings; `wva validate` shows all of them", total_count - kept.len()));
    kept
}
