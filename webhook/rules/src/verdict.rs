//! The outcome of all rules, and its forms: the text of a refusal, its causes, and bounded warnings.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Status, StatusCause, StatusDetails};
use wva_crds::names::{GROUP, KIND};

use crate::findings::PatchOp;

/// The most characters of one warning: a longer one is cut by the apiserver.
pub const MAX_WARNING_CHARS: usize = 120;
/// The most bytes of all warnings of a review together: the apiserver drops what is beyond.
pub const MAX_WARNING_BYTES: usize = 4096;

/// What a violation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The object is refused.
    Deny,
    /// The person is told.
    Warn,
}

/// One finding of one rule, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule's code, e.g. `WVA-VA-003`.
    pub code: &'static str,
    /// The field, as kubectl prints it.
    pub field: String,
    /// What was found, why it is wrong, what would be right.
    pub message: String,
    /// Whether it refuses the object. A deny rule's violation that an update did not touch is a warning.
    pub severity: Severity,
}

/// The outcome of all rules.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Kind of the object, as in its messages.
    pub kind: &'static str,
    /// API group of that kind.
    pub group: &'static str,
    /// The object's name, as in its messages.
    pub name: String,
    /// Everything found, refusals and warnings, in the order of the table.
    pub violations: Vec<Violation>,
    /// Warnings in the form an admission response wants: short, and few enough.
    pub warnings: Vec<String>,
    /// JSON patch that completes the object; empty where nothing is missing.
    pub patch: Vec<PatchOp>,
}

impl Default for Verdict {
    /// Nothing found about a `VariantAutoscaling` without a name.
    fn default() -> Self {
        let (violations, warnings, patch) = (Vec::new(), Vec::new(), Vec::new());
        Self { kind: KIND, group: GROUP, name: String::new(), violations, warnings, patch }
    }
}

impl Verdict {
    /// Whether the object is refused.
    #[must_use]
    pub fn denied(&self) -> bool {
        self.denials().next().is_some()
    }

    /// The violations that refuse the object.
    pub fn denials(&self) -> impl Iterator<Item = &Violation> {
        self.violations.iter().filter(|v| v.severity == Severity::Deny)
    }

    /// All of the refusal in one text, for clients that show nothing else.
    #[must_use]
    pub fn message(&self) -> String {
        let told: Vec<String> =
            self.denials().map(|v| format!("[{}] {}: {}", v.code, v.field, v.message)).collect();
        format!("{} \"{}\" is invalid: {}", self.kind, self.name, told.join("; "))
    }

    /// The `Status` of a refusal: reason `Invalid`, code 422, one cause per violation. `None` where the object is
    /// admitted.
    #[must_use]
    pub fn to_status(&self) -> Option<Status> {
        if !self.denied() {
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

/// As many warnings as fit, and a last one for the rest.
pub(crate) fn within_budget(warnings: Vec<String>) -> Vec<String> {
    let total: usize = warnings.iter().map(String::len).sum();
    if total <= MAX_WARNING_BYTES {
        return warnings;
    }
    let all = warnings.len();
    let mut left = MAX_WARNING_BYTES - MAX_WARNING_CHARS;
    let mut kept = Vec::new();
    for warning in warnings {
        let Some(rest) = left.checked_sub(warning.len()) else { break };
        left = rest;
        kept.push(warning);
    }
    kept.push(format!("and {} more warnings: `wva validate` lists all of them", all - kept.len()));
    kept
}
