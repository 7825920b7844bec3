//! From facts to a verdict: every rule is asked, every violation is reported, and an update is not refused for fields
//! that it did not touch.

use std::cell::LazyCell;
use std::collections::BTreeSet;

use serde_json::{Map, Value};
use wva_crds::names::{
    ALLOW_INSTANCE_CHANGE_ANNOTATION, ALLOW_SHARED_TARGET_ANNOTATION, GROUP, KIND, MODE_ANNOTATION,
};

use crate::autoscalers::AutoscalerFacts;
use crate::facts::{Facts, Operation, Reach, at};
use crate::findings::{Finding, Findings, MOST_TOLD, PatchOp};
use crate::maps::facts::MapFacts;
use crate::rule::{Check, Kind, Rule, Scope};
use crate::table::RULES;
use crate::text::{escape, shorten};
use crate::verdict::{MAX_WARNING_CHARS, Severity, Verdict, Violation, within_budget};

/// Facts about one object that rules of its kind can be asked about.
trait Subject: Sized {
    /// Kind of the object, as in messages.
    const KIND: &'static str;
    /// API group of that kind.
    const GROUP: &'static str;

    /// The object's name.
    fn object_name(&self) -> &str;
    /// Whether this caller judges the object at all.
    fn judged(&self) -> bool {
        true
    }
    /// This update leaves alone everything that rules look at.
    fn unchanged(&self) -> bool {
        false
    }
    /// The same facts about the object that is stored now, as if it were new.
    fn before(&self) -> Option<Self> {
        None
    }
    /// Runs a rule; not where it is about another kind, or cannot be asked now.
    fn run(&self, rule: &Rule, out: &mut Findings);
    /// What a rule finds.
    fn ask(&self, rule: &Rule) -> Findings {
        let mut out = Findings::new(rule.field);
        self.run(rule, &mut out);
        out
    }
    /// The update left alone what the rule reads. Where findings say what they looked at, the rule need not.
    fn untouched(&self, _: &Rule, _before: &Self) -> bool {
        false
    }
}

/// Asks every rule that refuses or warns.
fn judge<S: Subject>(facts: &S) -> Verdict {
    // Harmless on a terminal.
    let name = escape(facts.object_name(), false);
    let mut verdict = Verdict { kind: S::KIND, group: S::GROUP, name, ..Verdict::default() };
    if !facts.judged() {
        return verdict;
    }
    let before = LazyCell::new(|| facts.before());
    let unchanged = facts.unchanged();
    let mut warnings = Vec::new();
    for rule in RULES.iter().filter(|r| r.kind != Kind::Mutate) {
        let hits = facts.ask(rule).hits;
        if hits.is_empty() {
            continue;
        }
        // An unchanged object is not refused, so what was wrong with it before need not be looked for.
        let known = before
            .as_ref()
            .filter(|_| !unchanged)
            .map(|b| Known::of(b.ask(rule).hits, facts.untouched(rule, b)));
        let (mut denied, mut warned) = (0, 0);
        for hit in hits {
            let already = unchanged || known.as_ref().is_some_and(|known| known.has(&hit));
            let severity = if rule.kind == Kind::Deny && !already { Severity::Deny } else { Severity::Warn };
            let told = if severity == Severity::Deny { &mut denied } else { &mut warned };
            *told += 1;
            if *told > MOST_TOLD {
                continue;
            }
            if severity == Severity::Warn {
                warnings.push(hit.brief(rule.code, rule.message, MAX_WARNING_CHARS));
            }
            verdict.violations.push(violation(rule, &hit, severity));
        }
    }
    verdict.warnings = within_budget(warnings);
    verdict
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

/// What a rule found about the old object.
struct Known {
    /// Fields, each with what was looked at where the finding says so.
    found: BTreeSet<(String, Option<String>)>,
    /// The update left alone what the rule reads.
    untouched: bool,
}

impl Known {
    fn of(hits: Vec<Finding>, untouched: bool) -> Self {
        let found = hits.into_iter().map(|hit| (hit.field, hit.basis.map(|basis| basis.to_string())));
        Self { found: found.collect(), untouched }
    }

    /// The old object had the same finding about the same.
    fn has(&self, hit: &Finding) -> bool {
        let basis = hit.basis.as_ref().map(ToString::to_string);
        (basis.is_some() || self.untouched) && self.found.contains(&(hit.field.clone(), basis))
    }
}

fn violation(rule: &Rule, hit: &Finding, severity: Severity) -> Violation {
    let field = shorten(&hit.field, MAX_WARNING_CHARS);
    Violation { code: rule.code, field, message: hit.message(rule.message), severity }
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

impl Subject for Facts<'_> {
    const KIND: &'static str = KIND;
    const GROUP: &'static str = GROUP;

    fn object_name(&self) -> &str {
        self.name()
    }

    // An object that was this instance's before an update still is: a label taken off is seen.
    fn judged(&self) -> bool {
        if self.operation == Operation::Delete {
            return false;
        }
        match (self.reach, self.instance_label()) {
            (Reach::All, _) | (Reach::Own, None | Some("")) => true,
            (Reach::Own, Some(label)) => {
                self.instance == Some(label)
                    || (self.instance.is_some() && self.old_instance_label() == self.instance)
            }
        }
    }

    fn before(&self) -> Option<Self> {
        let old = self.old.filter(|_| self.operation == Operation::Update)?;
        Some(Self { object: old, old: None, operation: Operation::Create, ..*self })
    }

    // It is about finalizers, owners or foreign annotations then.
    fn unchanged(&self) -> bool {
        let Some(before) = self.before() else { return false };
        let annotations = [MODE_ANNOTATION, ALLOW_INSTANCE_CHANGE_ANNOTATION, ALLOW_SHARED_TARGET_ANNOTATION];
        self.get(&["spec"]) == before.get(&["spec"])
            && self.get(&["metadata", "labels"]) == before.get(&["metadata", "labels"])
            && annotations.iter().all(|key| self.annotation(key) == before.annotation(key))
    }

    fn run(&self, rule: &Rule, out: &mut Findings) {
        if let Check::Variant(check) = rule.check
            && (rule.scope == Scope::Object || self.synced)
        {
            check(self, out);
        }
    }

    fn untouched(&self, rule: &Rule, before: &Self) -> bool {
        rule.reads.iter().all(|path| self.get(path) == before.get(path))
    }
}

impl Subject for MapFacts<'_> {
    const KIND: &'static str = "ConfigMap";
    const GROUP: &'static str = "";

    fn object_name(&self) -> &str {
        self.name()
    }

    fn judged(&self) -> bool {
        self.operation != Operation::Delete
    }

    fn unchanged(&self) -> bool {
        let Some(old) = self.old.filter(|_| self.operation == Operation::Update) else { return false };
        at(old, &["data"]) == at(self.object, &["data"])
    }

    fn before(&self) -> Option<Self> {
        self.before_update()
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
