//! From facts to a verdict: every rule is asked, every fault comes back, and an update is not blamed for what it did
//! not touch. Also the forms in which a verdict is told: the text of a refusal, its causes, and bounded warnings.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Status, StatusCause, StatusDetails};
use serde_json::{Map, Value};
use wva_crds::names::{GROUP, KIND};

use crate::autoscalers::AutoscalerFacts;
use crate::facts::{Facts, at};
use crate::findings::{Finding, PatchOp};
use crate::maps::facts::MapFacts;
use crate::subject::{Subject as _, judge};
use crate::table::{Kind, RULES, Rule};
use crate::text::shorten;

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

/// Judges an object as it is, for the validating webhook, the controller and files.
///
/// On an update, a deny rule's violation is only a warning where the old object had the same one and the update left
/// alone what the rule looks at: a rule that got stricter freezes nobody's objects. An update that leaves spec,
/// labels and known annotations unchanged is never refused.
#[must_use]
pub fn validate(facts: &Facts<'_>) -> Verdict {
    judge(facts)
}

/// Judges a ConfigMap that the program reads, by the same principles as [`validate`].
#[must_use]
pub fn validate_map(facts: &MapFacts<'_>) -> Verdict {
    judge(facts)
}

/// Judges what follows the metric of a variant; for files alone, and with warnings alone.
#[must_use]
pub fn validate_autoscaler(facts: &AutoscalerFacts<'_>) -> Verdict {
    judge(facts)
}

/// Completes an object and judges what it would become, for the mutating webhook: the person sees every fault in the
/// first answer, before the schema has stopped at its own.
///
/// An update that leaves spec, labels and known annotations unchanged is not completed: a label put on by the way
/// could make it a refused one.
#[must_use]
pub fn mutate(facts: &Facts<'_>) -> Verdict {
    if !facts.judged() || facts.unchanged() {
        return validate(facts);
    }
    let patch: Vec<PatchOp> =
        RULES.iter().filter(|r| r.kind == Kind::Mutate).flat_map(|r| facts.ask(r).patch).collect();
    if patch.is_empty() {
        return validate(facts);
    }
    let mut completed = facts.object.clone();
    for op in &patch {
        add(&mut completed, op);
    }
    let mut verdict = validate(&Facts { object: &completed, ..*facts });
    if !verdict.denied() {
        verdict.patch = patch;
    }
    verdict
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

pub(crate) fn violation(rule: &Rule, hit: &Finding, severity: Severity) -> Violation {
    let field = shorten(&hit.field, MAX_WARNING_CHARS);
    Violation { code: rule.code, field, message: hit.message(rule), severity }
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

/// Carries out one operation of our own patches: paths of maps alone, the last part absent or `null`.
fn add(object: &mut Value, op: &PatchOp) {
    let mut parts: Vec<String> =
        op.path.split('/').skip(1).map(|p| p.replace("~1", "/").replace("~0", "~")).collect();
    let Some(last) = parts.pop() else { return };
    let parent = parts.iter().try_fold(object, |v, key| v.as_object_mut()?.get_mut(key));
    if let Some(Value::Object(map)) = parent {
        insert(map, last, op.value.clone());
    }
}

fn insert(map: &mut Map<String, Value>, key: String, value: Value) {
    debug_assert!(at(&Value::Object(map.clone()), &[&key]).is_none(), "patches only add what is absent");
    map.insert(key, value);
}
