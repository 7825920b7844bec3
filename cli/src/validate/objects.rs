//! Collects the objects of relevant kinds, with their places in the text. It expands lists.

use std::rc::Rc;

use serde_json::Value;

use super::evaluate;
use super::input::Source;
use super::yaml::{Content, Node, Problem, documents, look_alikes};

#[derive(Debug)]
pub(super) struct Object {
    pub(super) source: usize,
    pub(super) node: Rc<Node>,
    pub(super) api_version: String,
    pub(super) kind: String,
    /// Namespace of the object, or the default for objects without one.
    pub(super) namespace: String,
    /// `name`, or `generateName`, or empty.
    pub(super) name: String,
    /// Value with the schema defaults, like the object that a webhook receives.
    pub(super) value: Value,
}

#[derive(Debug, Default)]
pub(super) struct ObjectSet {
    pub(super) objects: Vec<Object>,
    /// Objects of any kind, and documents without a kind.
    pub(super) count: usize,
    pub(super) problems: Vec<SourceProblem>,
}

#[derive(Debug)]
pub(super) struct SourceProblem {
    pub(super) source: usize,
    pub(super) problem: Problem,
}

pub(super) fn collect(sources: &[Source], namespace: &str) -> ObjectSet {
    collect_kinds(sources, namespace, evaluate::is_relevant)
}

/// Objects of the kinds for whose API version and name `is_wanted` is true.
pub(super) fn collect_kinds(
    sources: &[Source],
    namespace: &str,
    is_wanted: fn(&str, &str) -> bool,
) -> ObjectSet {
    let mut out = ObjectSet::default();
    for (index, source) in sources.iter().enumerate() {
        if let Some(problem) = &source.problem {
            out.problems.push(SourceProblem { source: index, problem: problem.clone() });
            continue;
        }
        let documents = documents(&source.text);
        let is_only = documents.len() == 1;
        for document in documents {
            match document {
                Ok(node) if is_only && !matches!(node.content, Content::Map(_)) => {
                    let message =
                        "not a Kubernetes object: expected a mapping with apiVersion and kind".to_owned();
                    let problem = Problem { message, at: node.span.clone() };
                    out.problems.push(SourceProblem { source: index, problem });
                }
                Ok(node) => add_objects(index, &node, ListedKind::default(), namespace, is_wanted, &mut out),
                Err(problem) => out.problems.push(SourceProblem { source: index, problem }),
            }
        }
    }
    out
}

/// Kind that a list gives its items; empty outside lists.
#[derive(Clone, Copy, Default)]
struct ListedKind<'a> {
    api_version: &'a str,
    kind: &'a str,
}

/// `list`: for objects without API version or kind.
fn add_objects(
    source: usize,
    node: &Rc<Node>,
    list: ListedKind<'_>,
    namespace: &str,
    is_wanted: fn(&str, &str) -> bool,
    out: &mut ObjectSet,
) {
    let api_version = node.text("apiVersion").unwrap_or(list.api_version);
    let kind = node.text("kind").unwrap_or(list.kind);
    let items = node.entry("items").filter(|_| kind.ends_with("List")).map(|items| &items.node.content);
    if let Some(Content::List(items)) = items {
        let item_kind = kind.strip_suffix("List").filter(|kind| !kind.is_empty());
        let list = item_kind.map(|kind| ListedKind { api_version, kind }).unwrap_or_default();
        for item in items {
            add_objects(source, &item.node, list, namespace, is_wanted, out);
        }
        return;
    }
    out.count += 1;
    let is_wanted = is_wanted(api_version, kind);
    let hidden = if is_wanted { look_alikes::hidden_parts(node) } else { look_alikes::hidden_header(node) };
    out.problems.extend(hidden.into_iter().map(|problem| SourceProblem { source, problem }));
    if !is_wanted {
        return;
    }
    let metadata = node.entry("metadata").map(|m| &m.node);
    let text = |key| metadata.and_then(|m| m.text(key)).filter(|t| !t.is_empty());
    let mut value = node.to_value();
    evaluate::fill_defaults(kind, &mut value);
    out.objects.push(Object {
        source,
        node: Rc::clone(node),
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        namespace: text("namespace").unwrap_or(namespace).to_owned(),
        name: text("name").or_else(|| text("generateName")).unwrap_or_default().to_owned(),
        value,
    });
}
