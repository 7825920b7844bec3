//! Names the look-alike of a space, quote or colon that breaks a document, or that hides a key or a kind.

use wva_crds::look_alikes::{self, LookAlike, cause_of_error};

use super::{Content, Entry, Node, Problem, Reader};

/// Fields by which wva recognises an object.
const HEADER: [&str; 2] = ["apiVersion", "kind"];

/// A problem of the parser, or the look-alike that causes it.
pub(super) fn name_cause(document: &str, base: usize, problem: Problem) -> Problem {
    let error = |text: &str| Reader::read(text, base, &mut Vec::new()).err();
    let Some(cause) = cause_of_error(document, &problem, error) else { return problem };
    let start = base + cause.offset;
    let message = format!("{cause} breaks the YAML; {}", cause.advice());
    Problem { message, at: start..start + cause.length() }
}

/// Keys of an object with a look-alike, and such a name: wva would ignore the object.
pub(in crate::validate) fn hidden_parts(object: &Node) -> Vec<Problem> {
    let entries = object.all_entries();
    let mut problems: Vec<Problem> = entries.into_iter().filter_map(key_problem).collect();
    let metadata = object.entry("metadata").map(|metadata| &metadata.node);
    let named = ["name", "namespace"].into_iter().filter_map(|key| metadata?.entry(key));
    problems.extend(named.filter_map(value_problem));
    problems
}

/// The same of API version and kind, in a document that may not be an object.
pub(in crate::validate) fn hidden_header(document: &Node) -> Vec<Problem> {
    let Content::Map(entries) = &document.content else { return Vec::new() };
    let is_header = |entry: &&Entry| {
        let plain: String = entry.key.chars().filter(char::is_ascii_alphanumeric).collect();
        HEADER.contains(&plain.as_str())
    };
    let header = entries.iter().filter(is_header);
    header.flat_map(|entry| key_problem(entry).into_iter().chain(value_problem(entry))).collect()
}

fn key_problem(entry: &Entry) -> Option<Problem> {
    let found = look_alikes::first(&entry.key)?;
    Some(Problem { message: describe("the key", found), at: entry.key_at.clone() })
}

fn value_problem(entry: &Entry) -> Option<Problem> {
    let Content::Scalar { value, .. } = &entry.node.content else { return None };
    let found = look_alikes::first(value.as_str()?)?;
    Some(Problem { message: describe("the value", found), at: entry.at.clone() })
}

fn describe(what: &str, found: LookAlike) -> String {
    format!("{what} has {found}; {}", found.advice())
}
