//! From documents to the objects that are judged: lists are opened, objects of other kinds are counted and passed
//! over, and each object keeps its place in the text.

use std::rc::Rc;

use serde_json::Value;

use super::input::Source;
use super::judge;
use super::located::{Content, Node, Problem, documents};

/// An object of a kind that is looked at.
#[derive(Debug)]
pub(super) struct Object {
    /// Which of the sources holds it.
    pub(super) source: usize,
    /// Where it stands there.
    pub(super) node: Rc<Node>,
    pub(super) api_version: String,
    pub(super) kind: String,
    /// Its own namespace, or the one for objects that name none.
    pub(super) namespace: String,
    /// Its name, or the prefix that its name is made from, or nothing.
    pub(super) name: String,
    /// The object as an apiserver would hand it to a webhook: with the schema's defaults.
    pub(super) value: Value,
}

/// All that the sources hold.
#[derive(Debug, Default)]
pub(super) struct Collected {
    /// Objects of the kinds that are looked at, in order.
    pub(super) objects: Vec<Object>,
    /// Objects of every kind, and documents that say no kind.
    pub(super) counted: usize,
    /// What is no YAML or no object.
    pub(super) problems: Vec<SourceProblem>,
}

/// A problem of one source.
#[derive(Debug)]
pub(super) struct SourceProblem {
    /// Index of the source.
    pub(super) source: usize,
    pub(super) problem: Problem,
}

/// Reads all objects of the sources.
pub(super) fn collect(sources: &[Source], namespace: &str) -> Collected {
    let mut out = Collected::default();
    for (index, source) in sources.iter().enumerate() {
        if let Some(problem) = &source.problem {
            out.problems.push(SourceProblem { source: index, problem: problem.clone() });
            continue;
        }
        let documents = documents(&source.text);
        let only = documents.len() == 1;
        for document in documents {
            match document {
                Ok(node) if only && !matches!(node.content, Content::Map(_)) => {
                    let message =
                        "no Kubernetes object: an object is a mapping with apiVersion and kind".to_owned();
                    let problem = Problem { message, at: node.span.clone() };
                    out.problems.push(SourceProblem { source: index, problem });
                }
                Ok(node) => open(index, &node, None, namespace, &mut out),
                Err(problem) => out.problems.push(SourceProblem { source: index, problem }),
            }
        }
    }
    out
}

/// An object, or all objects of a list. `list` is what the list says of its items, where they do not say it
/// themselves, as in the API's own lists.
fn open(source: usize, node: &Rc<Node>, list: Option<(&str, &str)>, namespace: &str, out: &mut Collected) {
    let (list_version, list_kind) = list.unwrap_or_default();
    let api_version = node.text("apiVersion").unwrap_or(list_version);
    let kind = node.text("kind").unwrap_or(list_kind);
    let items = node.entry("items").filter(|_| kind.ends_with("List")).map(|items| &items.node.content);
    if let Some(Content::List(items)) = items {
        let of = kind.strip_suffix("List").filter(|k| !k.is_empty()).map(|k| (api_version, k));
        for item in items {
            open(source, &item.node, of, namespace, out);
        }
        return;
    }
    out.counted += 1;
    if !judge::is_kept(api_version, kind) {
        return;
    }
    let metadata = node.entry("metadata").map(|m| &m.node);
    let text = |key| metadata.and_then(|m| m.text(key)).filter(|t| !t.is_empty());
    let mut value = node.to_value();
    judge::complete(kind, &mut value);
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
