//! Findings of a run. All output formats render this report.

use wva_rules::{RULES_ABOUT_KEYS, Severity};

use super::evaluate::{Evaluation, FILE_CODE, ObjectViolation};
use super::input::{Position, Source};
use super::objects::{Object, ObjectSet, SourceProblem};
use super::position::{self, Part};
use crate::output::{count, printable};

pub(super) const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");

#[derive(Debug)]
pub(super) struct Report<'a> {
    /// Sorted by file, line, column and code.
    pub(super) findings: Vec<Finding<'a>>,
    /// Number of objects of any kind.
    pub(super) objects: usize,
    pub(super) evaluated: usize,
}

#[derive(Debug)]
pub(super) struct Finding<'a> {
    pub(super) source: &'a Source,
    pub(super) offset: usize,
    /// Length in bytes, within one line.
    pub(super) length: usize,
    pub(super) line: usize,
    /// Column, from 1, in characters.
    pub(super) column: usize,
    /// The column after the last character.
    pub(super) end_column: usize,
    /// `None` for findings about a file.
    pub(super) object: Option<&'a Object>,
    /// The object is refused. False: it gets a warning.
    pub(super) is_denied: bool,
    pub(super) code: &'static str,
    /// Empty for findings about a file.
    pub(super) field: String,
    pub(super) message: String,
    /// Why the object is judged.
    pub(super) note: Option<&'static str>,
}

impl<'a> Report<'a> {
    pub(super) fn new(sources: &'a [Source], collected: &'a ObjectSet, evaluation: Evaluation) -> Self {
        let mut findings = Vec::new();
        for SourceProblem { source, problem } in &collected.problems {
            let message = with_template_hint(&sources[*source].text, &problem.message);
            findings.push(file_finding(&sources[*source], None, problem.at.clone(), &message));
        }
        for object in &collected.objects {
            for entry in object.node.repeated_keys() {
                let message = format!(
                    "duplicate key \"{}\": kubectl silently keeps the last one; remove one of them",
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
        for ObjectViolation { object, violation, note } in evaluation.violations {
            let object = &collected.objects[object];
            let source = &sources[object.source];
            let part = if RULES_ABOUT_KEYS.contains(&violation.code) { Part::Key } else { Part::Value };
            let at = position::locate_field(&source.text, &object.node, &violation.field, part);
            findings.push(Finding {
                object: Some(object),
                is_denied: violation.severity == Severity::Deny,
                code: violation.code,
                field: printable(&violation.field),
                message: printable(&violation.message),
                note,
                ..Finding::at(source, at)
            });
        }
        findings.sort_by(|a, b| a.sort_key().cmp(&b.sort_key()));
        // Documents that share an anchor share its findings.
        findings.dedup_by(|a, b| {
            a.sort_key() == b.sort_key() && a.object.map(|o| &o.name) == b.object.map(|o| &o.name)
        });
        Self { findings, objects: collected.count, evaluated: evaluation.count }
    }

    pub(super) fn deny_count(&self) -> usize {
        self.findings.iter().filter(|f| f.is_denied).count()
    }

    pub(super) fn warn_count(&self) -> usize {
        self.findings.len() - self.deny_count()
    }

    /// `2 objects: 3 denied, 1 warning`.
    pub(super) fn totals(&self) -> String {
        let denied = self.deny_count();
        let others = match self.objects - self.evaluated {
            0 => String::new(),
            n => format!(" ({n} of other kinds ignored)"),
        };
        let (objects, warnings) = (count(self.objects, "object"), count(self.warn_count(), "warning"));
        format!("{objects}{others}: {denied} denied, {warnings}")
    }
}

impl<'a> Finding<'a> {
    fn at(source: &'a Source, at: std::ops::Range<usize>) -> Self {
        let at = position::first_line(&source.text, at);
        let Position { line, column } = source.position(at.start);
        Self {
            source,
            offset: at.start,
            length: at.len(),
            line,
            column,
            end_column: source.position(at.end).column,
            object: None,
            is_denied: true,
            code: FILE_CODE,
            field: String::new(),
            message: String::new(),
            note: None,
        }
    }

    pub(super) fn docs(&self) -> String {
        docs(self.code)
    }

    /// `Kind namespace/name`.
    pub(super) fn object_name(&self) -> Option<String> {
        let object = self.object?;
        Some(printable(&format!("{} {}/{}", object.kind, object.namespace, object.name)))
    }

    /// The message, after the field if there is one.
    pub(super) fn sentence(&self) -> String {
        if self.field.is_empty() { self.message.clone() } else { format!("{}: {}", self.field, self.message) }
    }

    fn sort_key(&self) -> (&str, usize, usize, &str, &str, &str) {
        (&self.source.name, self.line, self.column, self.code, &self.field, &self.message)
    }
}

/// Page of a rule on the web.
pub(super) fn docs(code: &str) -> String {
    format!("{REPOSITORY}/blob/main/docs/reference/rules/{code}.md")
}

/// Command that prints the page of a rule.
pub(super) fn command(code: &str) -> String {
    format!("wva rule {code}")
}

fn file_finding<'a>(
    source: &'a Source,
    object: Option<&'a Object>,
    at: std::ops::Range<usize>,
    message: &str,
) -> Finding<'a> {
    Finding { object, message: printable(message), ..Finding::at(source, at) }
}

fn with_template_hint(text: &str, message: &str) -> String {
    if text.contains("{{") {
        format!("{message} (if this is a Helm template, render it first: helm template ... | wva validate -)")
    } else {
        message.to_owned()
    }
}

pub(super) fn json_line(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default() + "\n"
}
