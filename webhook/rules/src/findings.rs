//! What a rule's check hands back: what it found and where, not yet as text, so that the same finding can be told at
//! length in a refusal and briefly in a warning.

use serde::Serialize;
use serde_json::Value;

use crate::text::{FOUND_CHARS, shorten, show};

/// Findings of one rule about one object that are noted: an object of a few megabytes could hold hundreds of
/// thousands. All that are noted count for the verdict; [`MOST_TOLD`] are told.
pub(crate) const MOST_HITS: usize = 5_000;
/// Refusals, and likewise warnings, of one rule about one object that are told. Who mends these is told of the rest.
pub(crate) const MOST_TOLD: usize = 50;
/// The most characters of a field in a brief finding: the longest known key with two letters too many.
const FIELD_CHARS: usize = 57;

/// One operation of a JSON patch (RFC 6902). Only ever adds what is absent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PatchOp {
    /// Always `add`.
    pub op: &'static str,
    /// JSON pointer to what is added.
    pub path: String,
    /// What is added.
    pub value: Value,
}

/// One thing a rule found.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Finding {
    pub(crate) field: String,
    /// What stands for `{found}`.
    pub(crate) found: String,
    /// What stands for `{other}`.
    pub(crate) other: String,
    /// What to do, told after the rule's message and at full length: it is our text, or bounded by who wrote it.
    pub(crate) remedy: String,
    /// What the rule looked at: where the old object had the same finding about the same, it is no news. `None`
    /// where the rule's `reads` say it.
    pub(crate) basis: Option<Value>,
}

/// Collects what one rule finds. A check adds nothing where the object is as it should be.
#[derive(Debug)]
pub struct Findings {
    rule_field: &'static str,
    pub(crate) hits: Vec<Finding>,
    pub(crate) patch: Vec<PatchOp>,
}

impl Findings {
    pub(crate) fn new(rule_field: &'static str) -> Self {
        Self { rule_field, hits: Vec::new(), patch: Vec::new() }
    }

    /// The rule's field holds this, and must not.
    pub(crate) fn value(&mut self, value: &Value) {
        self.text(show(value), "");
    }

    /// The rule's field is absent, and must not be.
    pub(crate) fn absent(&mut self) {
        self.text("nothing", "");
    }

    /// The rule's field, with the texts for `{found}` and `{other}`.
    pub(crate) fn text(&mut self, found: impl Into<String>, other: impl Into<String>) {
        self.at(self.rule_field, found, other);
    }

    /// A field that the rule could not name beforehand.
    pub(crate) fn at(
        &mut self,
        field: impl Into<String>,
        found: impl Into<String>,
        other: impl Into<String>,
    ) {
        if self.hits.len() < MOST_HITS {
            let (field, found, other) = (field.into(), found.into(), other.into());
            self.hits.push(Finding { field, found, other, remedy: String::new(), basis: None });
        }
    }

    /// What the last finding looked at.
    pub(crate) fn basis(&mut self, basis: impl Into<Value>) {
        if let Some(last) = self.hits.last_mut() {
            last.basis = Some(basis.into());
        }
    }

    /// What to do about the last finding.
    pub(crate) fn remedy(&mut self, remedy: impl Into<String>) {
        if let Some(last) = self.hits.last_mut() {
            last.remedy = remedy.into();
        }
    }

    /// Adds what is absent.
    pub(crate) fn add(&mut self, path: impl Into<String>, value: Value) {
        self.patch.push(PatchOp { op: "add", path: path.into(), value });
    }
}

impl Finding {
    /// The message of the rule, filled in.
    pub(crate) fn message(&self, template: &str) -> String {
        let text = fill(template, &shorten(&self.found, FOUND_CHARS), &shorten(&self.other, FOUND_CHARS));
        format!("{text}{}", self.remedy)
    }

    /// `[code] field: message` in at most `limit` characters: first the user's own values get shorter, then what would
    /// be right and why are left out, which the rule's page says; only where that is not enough the end is cut off.
    pub(crate) fn brief(&self, code: &str, template: &str, limit: usize) -> String {
        let prefix = format!("[{}] {}: ", code, shorten(&self.field, FIELD_CHARS));
        let whole = format!("{}{}", self.told(template, &prefix, limit), self.remedy);
        let message = Some(template.len()).filter(|len| *len > 0);
        let clause = |at: &usize| template[at + 1..].starts_with(' ');
        let ends = template.rmatch_indices([';', ':']).map(|(at, _)| at).filter(clause);
        let shorter = message.into_iter().chain(ends).map(|end| self.told(&template[..end], &prefix, limit));
        let mut told = std::iter::once(whole.clone()).chain(shorter);
        told.find(|text| text.chars().count() <= limit).unwrap_or_else(|| shorten(&whole, limit))
    }

    /// A template filled in behind a prefix, with the user's values as short as `limit` wants them.
    fn told(&self, template: &str, prefix: &str, limit: usize) -> String {
        let fixed = prefix.chars().count() + fill(template, "", "").chars().count();
        let room = limit.saturating_sub(fixed);
        let hole = |name: &str, text: &str| usize::from(template.contains(name) && !text.is_empty());
        let holes = hole("{found}", &self.found) + hole("{other}", &self.other);
        let each = room / holes.max(1);
        // What one of the two does not need, the other may have.
        let share = |other: &str| (room - each).saturating_sub(other.chars().count()) + each;
        let of = |part: usize| part.clamp(8, FOUND_CHARS);
        let text = fill(
            template,
            &shorten(&self.found, of(share(&self.other))),
            &shorten(&self.other, of(share(&self.found))),
        );
        format!("{prefix}{text}")
    }
}

fn fill(template: &str, found: &str, other: &str) -> String {
    parts(template, str::to_owned, found, other).concat()
}

/// The parts of a template from left to right, each text as `text` writes it. A user's value that looks like a hole stays
/// what it is.
pub(crate) fn parts(template: &str, text: impl Fn(&str) -> String, found: &str, other: &str) -> Vec<String> {
    let (mut parts, mut rest) = (Vec::new(), template);
    let next = |rest: &str| ["{found}", "{other}"].into_iter().filter_map(|h| Some((rest.find(h)?, h))).min();
    while let Some((at, hole)) = next(rest) {
        parts.push(text(&rest[..at]));
        parts.push(if hole == "{found}" { found } else { other }.to_owned());
        rest = &rest[at + hole.len()..];
    }
    parts.push(text(rest));
    parts
}
