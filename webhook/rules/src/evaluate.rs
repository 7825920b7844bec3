//! Evaluates all rules and collects every violation. An update is not denied for fields that it does not change.

use std::cell::LazyCell;
use std::collections::BTreeSet;

use serde_json::{Map, Value};
use wva_crds::names::{
    ALLOW_INSTANCE_CHANGE_ANNOTATION, ALLOW_SHARED_TARGET_ANNOTATION, GROUP, KIND, MODE_ANNOTATION,
    POD_DELETION_COST_ANNOTATION,
};

use crate::autoscalers::AutoscalerFacts;
use crate::facts::{Facts, InstanceScope, Operation};
use crate::findings::{Finding, Findings, MAX_REPORTED, PatchOp};
use crate::maps::facts::MapFacts;
use crate::rule::{Check, Kind, Rule, Scope};
use crate::table::RULES;
use crate::text::{escape, shorten};
use crate::verdict::{MAX_WARNING_CHARS, Severity, Verdict, Violation, limit_warnings};
use wva_objects::json::at;

trait Subject: Sized {
    /// Name in messages.
    const KIND: &'static str;
    const GROUP: &'static str;

    fn object_name(&self) -> &str;
    fn is_checked(&self) -> bool {
        true
    }
    /// The update changes nothing that rules read.
    fn is_unchanged(&self) -> bool {
        false
    }
    /// The stored object as if it were new; `None` unless this is an update.
    fn stored(&self) -> Option<Self> {
        None
    }
    /// Unless the rule is for another kind, or its facts are incomplete.
    fn run(&self, rule: &Rule, out: &mut Findings);
    fn findings(&self, rule: &Rule) -> Findings {
        let mut out = Findings::new(rule.field);
        self.run(rule, &mut out);
        out
    }
    /// Whether the update leaves unchanged what the rule reads. Findings with a basis do not use it.
    fn leaves_unchanged(&self, _: &Rule, _stored: &Self) -> bool {
        false
    }
}

fn evaluate<S: Subject>(facts: &S) -> Verdict {
    // Safe for terminals.
    let name = escape(facts.object_name(), false);
    let mut verdict = Verdict { kind: S::KIND, group: S::GROUP, name, ..Verdict::default() };
    if !facts.is_checked() {
        return verdict;
    }
    let stored = LazyCell::new(|| facts.stored());
    let is_unchanged = facts.is_unchanged();
    let mut warnings = Vec::new();
    for rule in RULES.iter().filter(|r| r.kind != Kind::Mutate) {
        let findings = facts.findings(rule).all;
        if findings.is_empty() {
            continue;
        }
        // An unchanged object is never denied.
        let stored_findings = stored
            .as_ref()
            .filter(|_| !is_unchanged)
            .map(|s| StoredFindings::new(s.findings(rule).all, facts.leaves_unchanged(rule, s)));
        let (mut denied, mut warned) = (0, 0);
        for finding in findings {
            let is_old =
                is_unchanged || stored_findings.as_ref().is_some_and(|stored| stored.contains(&finding));
            let severity = if rule.kind == Kind::Deny && !is_old { Severity::Deny } else { Severity::Warn };
            let count = if severity == Severity::Deny { &mut denied } else { &mut warned };
            *count += 1;
            if *count > MAX_REPORTED {
                continue;
            }
            if severity == Severity::Warn {
                warnings.push(finding.warning(rule.code, rule.message, MAX_WARNING_CHARS));
            }
            verdict.violations.push(violation(rule, &finding, severity));
        }
    }
    verdict.warnings = limit_warnings(warnings);
    verdict
}

/// Validates an object, for webhook, controller and files.
///
/// On an update, a violation is only a warning if the stored object has it too and the update leaves the rule's fields
/// unchanged. So a stricter rule does not block updates of existing objects. An update that leaves spec, labels and
/// known annotations unchanged is never denied.
#[must_use]
pub fn validate(facts: &Facts<'_>) -> Verdict {
    evaluate(facts)
}

/// Validates a ConfigMap, by the principles of [`validate`].
#[must_use]
pub fn validate_map(facts: &MapFacts<'_>) -> Verdict {
    evaluate(facts)
}

/// Validates an autoscaler. Only for files, and only with warnings.
#[must_use]
pub fn validate_autoscaler(facts: &AutoscalerFacts<'_>) -> Verdict {
    evaluate(facts)
}

/// Completes an object and validates the result, before the schema validation: users see all violations at once.
///
/// An update that leaves spec, labels and known annotations unchanged is not completed, because an added label could
/// cause a denial.
#[must_use]
pub fn mutate(facts: &Facts<'_>) -> Verdict {
    if !facts.is_checked() || facts.is_unchanged() {
        return validate(facts);
    }
    let patch: Vec<PatchOp> =
        RULES.iter().filter(|r| r.kind == Kind::Mutate).flat_map(|r| facts.findings(r).patch).collect();
    if patch.is_empty() {
        return validate(facts);
    }
    let mut completed = facts.object.clone();
    for op in &patch {
        apply(&mut completed, op);
    }
    let mut verdict = validate(&Facts { object: &completed, ..*facts });
    if !verdict.is_denied() {
        verdict.patch = patch;
    }
    verdict
}

struct StoredFindings {
    /// Field and basis.
    keys: BTreeSet<(String, Option<String>)>,
    reads_unchanged: bool,
}

impl StoredFindings {
    fn new(findings: Vec<Finding>, reads_unchanged: bool) -> Self {
        let keys = findings.into_iter().map(|f| (f.field, f.basis.map(|basis| basis.to_string())));
        Self { keys: keys.collect(), reads_unchanged }
    }

    fn contains(&self, finding: &Finding) -> bool {
        let basis = finding.basis.as_ref().map(ToString::to_string);
        (basis.is_some() || self.reads_unchanged) && self.keys.contains(&(finding.field.clone(), basis))
    }
}

fn violation(rule: &Rule, finding: &Finding, severity: Severity) -> Violation {
    let field = shorten(&finding.field, MAX_WARNING_CHARS);
    Violation { code: rule.code, field, message: finding.message(rule.message), severity }
}

/// The path has only map keys, and the last one is absent or `null`.
fn apply(object: &mut Value, op: &PatchOp) {
    let mut parts: Vec<String> =
        op.path.split('/').skip(1).map(|p| p.replace("~1", "/").replace("~0", "~")).collect();
    let Some(last) = parts.pop() else { return };
    let parent = parts.iter().try_fold(object, |v, key| v.as_object_mut()?.get_mut(key));
    if let Some(Value::Object(map)) = parent {
        insert(map, last, op.value.clone());
    }
}

fn insert(map: &mut Map<String, Value>, key: String, value: Value) {
    debug_assert!(at(&Value::Object(map.clone()), &[&key]).is_none(), "patches only add absent fields");
    map.insert(key, value);
}

impl Subject for Facts<'_> {
    const KIND: &'static str = KIND;
    const GROUP: &'static str = GROUP;

    fn object_name(&self) -> &str {
        self.name()
    }

    // An update that removes the instance label is still checked by the instance.
    fn is_checked(&self) -> bool {
        if self.operation == Operation::Delete {
            return false;
        }
        match (self.instance_scope, self.instance_label()) {
            (InstanceScope::All, _) | (InstanceScope::Own, None | Some("")) => true,
            (InstanceScope::Own, Some(label)) => {
                self.instance == Some(label)
                    || (self.instance.is_some() && self.old_instance_label() == self.instance)
            }
        }
    }

    fn stored(&self) -> Option<Self> {
        let old = self.old.filter(|_| self.operation == Operation::Update)?;
        Some(Self { object: old, old: None, operation: Operation::Create, ..*self })
    }

    // It changes finalizers, owners or annotations of other programs.
    fn is_unchanged(&self) -> bool {
        let Some(stored) = self.stored() else { return false };
        let annotations = [
            MODE_ANNOTATION, ALLOW_INSTANCE_CHANGE_ANNOTATION, ALLOW_SHARED_TARGET_ANNOTATION,
            POD_DELETION_COST_ANNOTATION,
        ];
        self.get(&["spec"]) == stored.get(&["spec"])
            && self.get(&["metadata", "labels"]) == stored.get(&["metadata", "labels"])
            && annotations.iter().all(|key| self.annotation(key) == stored.annotation(key))
    }

    fn run(&self, rule: &Rule, out: &mut Findings) {
        if let Check::Variant(check) = rule.check
            && (rule.scope == Scope::Object || self.is_synced)
        {
            check(self, out);
        }
    }

    fn leaves_unchanged(&self, rule: &Rule, stored: &Self) -> bool {
        rule.reads.iter().all(|path| self.get(path) == stored.get(path))
    }
}

impl Subject for MapFacts<'_> {
    const KIND: &'static str = "ConfigMap";
    const GROUP: &'static str = "";

    fn object_name(&self) -> &str {
        self.name()
    }

    fn is_checked(&self) -> bool {
        self.operation != Operation::Delete
    }

    fn is_unchanged(&self) -> bool {
        let Some(old) = self.old.filter(|_| self.operation == Operation::Update) else { return false };
        ["data", "binaryData"].iter().all(|field| at(old, &[field]) == at(self.object, &[field]))
    }

    fn stored(&self) -> Option<Self> {
        self.stored_map()
    }

    fn run(&self, rule: &Rule, out: &mut Findings) {
        if let Check::ConfigMap(check) = rule.check {
            check(self, out);
        }
    }
}

impl Subject for AutoscalerFacts<'_> {
    const KIND: &'static str = "HorizontalPodAutoscaler";
    const GROUP: &'static str = "autoscaling";

    fn object_name(&self) -> &str {
        at(self.object, &["metadata", "name"]).and_then(Value::as_str).unwrap_or_default()
    }

    fn run(&self, rule: &Rule, out: &mut Findings) {
        if let Check::Autoscaler(check) = rule.check {
            check(self, out);
        }
    }
}
