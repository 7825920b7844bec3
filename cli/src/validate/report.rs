//! The findings of a run in the order in which they are told, each with its place. All formats are made from this,
//! so that they say the same.

use wva_rules::{RULES_ABOUT_KEYS, Severity};

use super::input::{Source, printable};
use super::judge::{FILE_CODE, Judged, ObjectViolation};
use super::objects::{Collected, Object, SourceProblem};
use super::position::{self, Part};
use crate::output::count;

/// Everything found.
#[derive(Debug)]
pub(super) struct Report<'a> {
    /// By file, line, column and code.
    pub(super) findings: Vec<Finding<'a>>,
    /// Objects of every kind.
    pub(super) objects: usize,
    /// Those of them that were judged.
    pub(super) judged: usize,
}

/// One finding.
#[derive(Debug)]
pub(super) struct Finding<'a> {
    pub(super) source: &'a Source,
    /// Where it begins in the text, in bytes, and how many bytes it is long. Never longer than its line.
    pub(super) offset: usize,
    pub(super) length: usize,
    /// From 1.
    pub(super) line: usize,
    /// From 1, in characters.
    pub(super) column: usize,
    /// The column after its last character.
    pub(super) end_column: usize,
    /// `None` where a file could not be read as objects.
    pub(super) object: Option<&'a Object>,
    pub(super) denied: bool,
    pub(super) code: &'static str,
    /// Empty where it is about the file.
    pub(super) field: String,
    pub(super) message: String,
}

impl<'a> Report<'a> {
    pub(super) fn new(sources: &'a [Source], collected: &'a Collected, judged: Judged) -> Self {
        let mut findings = Vec::new();
        for SourceProblem { source, problem } in &collected.problems {
            let message = hint(&sources[*source].text, &problem.message);
            findings.push(file_finding(&sources[*source], None, problem.at.clone(), &message));
        }
        for object in &collected.objects {
            for entry in object.node.repeated_keys() {
                let message = format!(
                    "the key \"{}\" stands twice in one mapping: kubectl keeps the last without a word; remove one",
                    entry.key
                );
                findings.push(file_finding(
                    &sources[object.source],
                    Some(object),
                    entry.key_at.clone(),
                    &message,
                ));
            }
        }
        for ObjectViolation { object, violation } in judged.violations {
            let object = &collected.objects[object];
            let source = &sources[object.source];
            let part = if RULES_ABOUT_KEYS.contains(&violation.code) { Part::Key } else { Part::Value };
            let at = position::of(&source.text, &object.node, &violation.field, part);
            findings.push(Finding {
                object: Some(object),
                denied: violation.severity == Severity::Deny,
                code: violation.code,
                field: printable(&violation.field),
                message: printable(&violation.message),
                ..Finding::at(source, at)
            });
        }
        findings.sort_by(|a, b| a.order().cmp(&b.order()));
        // Two documents that share an anchor share its faults.
        findings.dedup_by(|a, b| {
            a.order() == b.order() && a.object.map(|o| &o.name) == b.object.map(|o| &o.name)
        });
        Self { findings, objects: collected.counted, judged: judged.count }
    }

    /// How many findings deny an object or a file.
    pub(super) fn denied(&self) -> usize {
        self.findings.iter().filter(|f| f.denied).count()
    }

    /// How many findings are warnings.
    pub(super) fn warned(&self) -> usize {
        self.findings.len() - self.denied()
    }

    /// The last line for people: `2 objects: 3 denied, 1 warning`.
    pub(super) fn totals(&self) -> String {
        let (denied, warned) = (self.denied(), self.warned());
        let others = match self.objects - self.judged {
            0 => String::new(),
            n => format!(" ({n} of other kinds passed over)"),
        };
        let (objects, warnings) = (count(self.objects, "object"), count(warned, "warning"));
        format!("{objects}{others}: {denied} denied, {warnings}")
    }
}

impl<'a> Finding<'a> {
    fn at(source: &'a Source, at: std::ops::Range<usize>) -> Self {
        let at = position::first_line(&source.text, at);
        let (line, column) = source.position(at.start);
        let (_, end_column) = source.position(at.end);
        Self {
            source,
            offset: at.start,
            length: at.len(),
            line,
            column,
            end_column,
            object: None,
            denied: true,
            code: FILE_CODE,
            field: String::new(),
            message: String::new(),
        }
    }

    /// The page about the rule.
    pub(super) fn docs(&self) -> String {
        docs(self.code)
    }

    /// `Kind namespace/name` of the object.
    pub(super) fn object_name(&self) -> Option<String> {
        let object = self.object?;
        Some(printable(&format!("{} {}/{}", object.kind, object.namespace, object.name)))
    }

    /// The message, after the field where there is one.
    pub(super) fn sentence(&self) -> String {
        if self.field.is_empty() { self.message.clone() } else { format!("{}: {}", self.field, self.message) }
    }

    fn order(&self) -> (&str, usize, usize, &str, &str, &str) {
        (&self.source.name, self.line, self.column, self.code, &self.field, &self.message)
    }
}

/// The page about a rule, as seen from the root of the repository.
pub(super) fn docs(code: &str) -> String {
    format!("docs/rules/{code}.md")
}

fn file_finding<'a>(
    source: &'a Source,
    object: Option<&'a Object>,
    at: std::ops::Range<usize>,
    message: &str,
) -> Finding<'a> {
    Finding { object, message: printable(message), ..Finding::at(source, at) }
}

/// Templates are the most common reason why a manifest is no YAML.
fn hint(text: &str, message: &str) -> String {
    if text.contains("{{") {
        format!("{message} (a Helm template? Render it first: helm template ... | wva validate -)")
    } else {
        message.to_owned()
    }
}

/// A value as JSON on one line.
pub(super) fn json_line(value: &impl serde::Serialize) -> String {
    // Texts, numbers and lists of them always have a JSON form.
    serde_json::to_string(value).unwrap_or_default() + "\n"
}
