//! Findings of a rule: a full message in a denial, a short one in a warning.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;

use crate::text::{FOUND_CHARS, shorten, show};

/// Findings of one rule for one object. All count; [`MAX_REPORTED`] are reported.
const MAX_FINDINGS: usize = 5_000;
/// Denials, and likewise warnings, of one rule for one object.
pub(crate) const MAX_REPORTED: usize = 50;
/// The longest known key with two extra letters.
const MAX_FIELD_CHARS: usize = 57;

/// Operation of a JSON patch (RFC 6902), which only adds absent fields.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PatchOp {
    /// Always `add`.
    pub op: &'static str,
    /// JSON pointer to the added field.
    pub path: String,
    /// The added value.
    pub value: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Finding {
    pub(crate) field: String,
    /// Value of `{found}`; `None` if the field is missing. Then "missing" replaces the first clause.
    pub(crate) found: Option<String>,
    /// Value of `{other}`.
    pub(crate) other: String,
    /// Never shortened.
    pub(crate) remedy: String,
    /// Values that the rule checked. A finding with the same basis in the old object is not new. `None`: the rule's
    /// `reads` count.
    pub(crate) basis: Option<Value>,
}

/// Collects the findings of one rule.
#[derive(Debug)]
pub struct Findings {
    rule_field: &'static str,
    pub(crate) all: Vec<Finding>,
    pub(crate) patch: Vec<PatchOp>,
}

impl Findings {
    pub(crate) fn new(rule_field: &'static str) -> Self {
        Self { rule_field, all: Vec::new(), patch: Vec::new() }
    }

    /// The rule's field has an invalid value.
    pub(crate) fn add_value(&mut self, value: &Value) {
        self.add(show(value), "");
    }

    /// The rule's field is missing.
    pub(crate) fn add_missing(&mut self) {
        self.add_missing_at(self.rule_field);
    }

    pub(crate) fn add_missing_at(&mut self, field: impl Into<String>) {
        self.push(field.into(), None, String::new());
    }

    /// Adds a finding in the rule's field, with the values of `{found}` and `{other}`.
    pub(crate) fn add(&mut self, found: impl Into<String>, other: impl Into<String>) {
        self.add_at(self.rule_field, found, other);
    }

    pub(crate) fn add_at(
        &mut self,
        field: impl Into<String>,
        found: impl Into<String>,
        other: impl Into<String>,
    ) {
        self.push(field.into(), Some(found.into()), other.into());
    }

    fn push(&mut self, field: String, found: Option<String>, other: String) {
        if self.all.len() < MAX_FINDINGS {
            self.all.push(Finding { field, found, other, remedy: String::new(), basis: None });
        }
    }

    /// Changes the last finding.
    pub(crate) fn set_basis(&mut self, basis: impl Into<Value>) {
        if let Some(last) = self.all.last_mut() {
            last.basis = Some(basis.into());
        }
    }

    /// Changes the last finding.
    pub(crate) fn set_remedy(&mut self, remedy: impl Into<String>) {
        if let Some(last) = self.all.last_mut() {
            last.remedy = remedy.into();
        }
    }

    pub(crate) fn add_patch(&mut self, path: impl Into<String>, value: Value) {
        self.patch.push(PatchOp { op: "add", path: path.into(), value });
    }
}

impl Finding {
    pub(crate) fn message(&self, template: &str) -> String {
        let template = self.template(template);
        let text = fill(&template, &shorten(self.found(), FOUND_CHARS), &shorten(&self.other, FOUND_CHARS));
        format!("{text}{}", self.remedy)
    }

    /// `[code] field: message` in at most `limit` characters. Shortens user values first, then drops the last clauses,
    /// then cuts the end.
    pub(crate) fn warning(&self, code: &str, template: &str, limit: usize) -> String {
        let template = self.template(template);
        let prefix = format!("[{}] {}: ", code, shorten(&self.field, MAX_FIELD_CHARS));
        let complete = format!("{}{}", self.fill_within(&template, &prefix, limit), self.remedy);
        let message = Some(template.len()).filter(|len| *len > 0);
        let is_clause_end = |at: &usize| template[at + 1..].starts_with(' ');
        let clause_ends = template.rmatch_indices([';', ':']).map(|(at, _)| at).filter(is_clause_end);
        let shorter = message
            .into_iter()
            .chain(clause_ends)
            .map(|end| self.fill_within(&template[..end], &prefix, limit));
        let mut candidates = std::iter::once(complete.clone()).chain(shorter);
        candidates.find(|text| text.chars().count() <= limit).unwrap_or_else(|| shorten(&complete, limit))
    }

    fn found(&self) -> &str {
        self.found.as_deref().unwrap_or_default()
    }

    /// Template for this finding. If the field is missing, "missing" replaces the first clause.
    fn template<'t>(&self, template: &'t str) -> Cow<'t, str> {
        match (&self.found, template.find("; ")) {
            (None, Some(end)) => format!("missing{}", &template[end..]).into(),
            (None, None) => "missing".into(),
            (Some(_), _) => template.into(),
        }
    }

    /// Shortens the user values to fit into `limit` characters.
    fn fill_within(&self, template: &str, prefix: &str, limit: usize) -> String {
        let fixed = prefix.chars().count() + fill(template, "", "").chars().count();
        let available = limit.saturating_sub(fixed);
        let is_used = |name: &str, text: &str| usize::from(template.contains(name) && !text.is_empty());
        let used = is_used("{found}", self.found()) + is_used("{other}", &self.other);
        let each = available / used.max(1);
        // A value can use what the other one does not need.
        let share = |other: &str| (available - each).saturating_sub(other.chars().count()) + each;
        let clamped = |share: usize| share.clamp(8, FOUND_CHARS);
        let text = fill(
            template,
            &shorten(self.found(), clamped(share(&self.other))),
            &shorten(&self.other, clamped(share(self.found()))),
        );
        format!("{prefix}{text}")
    }
}

/// Replaces the placeholders, but not inside user values.
fn fill(template: &str, found: &str, other: &str) -> String {
    let (mut text, mut rest) = (String::new(), template);
    let next = |rest: &str| ["{found}", "{other}"].into_iter().filter_map(|p| Some((rest.find(p)?, p))).min();
    while let Some((at, placeholder)) = next(rest) {
        text.push_str(&rest[..at]);
        text.push_str(if placeholder == "{found}" { found } else { other });
        rest = &rest[at + placeholder.len()..];
    }
    text + rest
}
