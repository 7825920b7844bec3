//! Output: objects as YAML with comments or as JSON, and a summary.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::guess::Guess;
use crate::output::{self, printable};

/// A value of the output, for comments and the summary.
pub(super) struct Field {
    /// Key of the value in the object.
    pub(super) key: &'static str,
    pub(super) value: String,
    /// `None`: a flag sets the value.
    pub(super) source: Option<String>,
}

impl Field {
    pub(super) fn new<T: ToString>(key: &'static str, guess: &Guess<T>) -> Self {
        Self { key, value: guess.value.to_string(), source: guess.source.clone() }
    }

    /// Key without the prefix of a label.
    fn short_key(&self) -> &'static str {
        self.key.rsplit('/').next().unwrap_or(self.key)
    }
}

pub(super) struct Document {
    pub(super) heading: String,
    pub(super) object: Value,
    pub(super) fields: Vec<Field>,
}

/// What to print for one workload.
pub(super) struct Plan {
    /// `Deployment prod/llama`.
    pub(super) title: String,
    pub(super) documents: Vec<Document>,
    pub(super) notes: Vec<String>,
}

pub(super) fn yaml(plans: &[Plan]) -> anyhow::Result<String> {
    let mut out = String::new();
    for document in plans.iter().flat_map(|plan| &plan.documents) {
        let _ = writeln!(out, "---\n# {}", printable(&document.heading));
        let text = output::yaml(&document.object)?;
        let mut left: Vec<&Field> = document.fields.iter().collect();
        // Indentation of the key of the block scalar around a line: a comment in it would be part of its text.
        let mut scalar: Option<usize> = None;
        for line in text.lines() {
            let indent = line.len() - line.trim_start().len();
            if scalar.is_some_and(|key| indent > key || line.is_empty()) {
                out.push_str(line);
                out.push('\n');
                continue;
            }
            let begins_scalar = line.rsplit(' ').next().is_some_and(|word| word.starts_with(['|', '>']));
            scalar = begins_scalar.then_some(indent);
            let key = line.trim_start().trim_start_matches("- ");
            let is_named =
                |field: &&Field| key.strip_prefix(field.key).is_some_and(|rest| rest.starts_with(':'));
            if let Some(at) = left.iter().position(is_named) {
                let field = left.remove(at);
                if let Some(source) = &field.source {
                    let _ = writeln!(out, "{:indent$}# {}: {}", "", field.short_key(), printable(source));
                }
            }
            out.push_str(line);
            out.push('\n');
        }
    }
    Ok(out)
}

pub(super) fn json(plans: &[Plan]) -> anyhow::Result<String> {
    let items: Vec<&Value> =
        plans.iter().flat_map(|plan| &plan.documents).map(|document| &document.object).collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    Ok(serde_json::to_string_pretty(&list)? + "\n")
}

/// Values with their sources, and notes, for standard error.
pub(super) fn summary(plan: &Plan) -> String {
    let names = plan.documents.iter().map(|document| {
        let name = document.object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        format!("{} {name}", document.object["kind"].as_str().unwrap_or_default())
    });
    let names = names.collect::<Vec<_>>().join(" and ");
    let mut out = format!("wva: {}: {names}. Nothing was applied.\n", plan.title);
    let fields: Vec<&Field> = plan.documents.iter().flat_map(|document| &document.fields).collect();
    let keys = fields.iter().map(|field| field.short_key().len()).max().unwrap_or(0);
    let values = fields.iter().map(|field| field.value.chars().count()).max().unwrap_or(0);
    for field in fields {
        let (key, value) = (field.short_key(), printable(&field.value));
        let source = printable(field.source.as_deref().unwrap_or("set by you"));
        let _ = writeln!(out, "  {key:<keys$}   {value:<values$}   {source}");
    }
    for note in &plan.notes {
        let _ = writeln!(out, "  note: {}", printable(note));
    }
    out
}
