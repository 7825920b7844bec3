//! What all kinds of objects have in common when they are judged: every rule is asked, every fault comes back, and an
//! update is not blamed for what it did not touch.

use std::cell::LazyCell;
use std::collections::BTreeSet;

use crate::findings::{Finding, Findings, MOST_TOLD};
use crate::table::{Kind, RULES, Rule};
use crate::verdict::{MAX_WARNING_CHARS, Severity, Verdict, violation, within_budget};

/// Facts about one object that rules of its kind can be asked about.
pub(crate) trait Subject: Sized {
    /// Kind of the object, as in messages.
    const KIND: &'static str;
    /// API group of that kind.
    const GROUP: &'static str;

    /// The object's name, harmless on a terminal.
    fn shown_name(&self) -> String;
    /// Whether this caller judges the object at all.
    fn judged(&self) -> bool;
    /// This update leaves alone everything that rules look at.
    fn unchanged(&self) -> bool;
    /// The same facts about the object that is stored now, as if it were new.
    fn before(&self) -> Option<Self>;
    /// What a rule finds; nothing where it is about another kind, or cannot be asked now.
    fn ask(&self, rule: &Rule) -> Findings;
    /// The update left alone what the rule reads.
    fn untouched(&self, rule: &Rule, before: &Self) -> bool;
}

/// Asks every rule that refuses or warns.
pub(crate) fn judge<S: Subject>(facts: &S) -> Verdict {
    let mut verdict =
        Verdict { kind: S::KIND, group: S::GROUP, name: facts.shown_name(), ..Verdict::default() };
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
                warnings.push(hit.brief(rule, MAX_WARNING_CHARS));
            }
            verdict.violations.push(violation(rule, &hit, severity));
        }
    }
    verdict.warnings = within_budget(warnings);
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
