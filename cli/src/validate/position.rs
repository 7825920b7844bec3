//! Locates the field of a finding: its value, or the nearest key around it. A path may lead into the YAML of a
//! ConfigMap entry.

use std::ops::Range;

use granit_parser::ScalarStyle;

use super::yaml::{Content, Node, documents};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Value,
    Key,
}

/// Byte range of `field`, at most one line long.
pub(super) fn locate_field(text: &str, object: &Node, field: &str, part: Part) -> Range<usize> {
    // An object without any part of the path is located by its kind.
    let start = object.entry("kind").map_or_else(|| object.span.clone(), |kind| kind.at.clone());
    first_line(text, find(text, object, &steps(field), start, part, true))
}

pub(super) fn first_line(text: &str, at: Range<usize>) -> Range<usize> {
    let line = text.get(at.clone()).and_then(|t| t.split('\n').next()).unwrap_or_default();
    at.start..at.start + line.trim_end_matches('\r').len()
}

/// `data[config.yaml].a`, `spec.metrics[0].x`.
fn steps(field: &str) -> Vec<&str> {
    let mut steps = Vec::new();
    let mut rest = field;
    while !rest.is_empty() {
        if let Some((inside, after)) = rest.strip_prefix('[').and_then(|r| r.split_once(']')) {
            steps.push(inside);
            rest = after.strip_prefix('.').unwrap_or(after);
        } else {
            let end = rest
                .char_indices()
                .skip(1)
                .find(|(_, c)| matches!(c, '.' | '['))
                .map_or(rest.len(), |(n, _)| n);
            steps.push(&rest[..end]);
            rest = rest[end..].strip_prefix('.').unwrap_or(&rest[end..]);
        }
    }
    steps
}

struct PathEnd<'a, 'f> {
    node: &'a Node,
    /// The nearest key.
    key_at: Range<usize>,
    value_at: Option<Range<usize>>,
    /// Remaining steps, if the node is a scalar.
    rest: &'f [&'f str],
}

/// Follows the steps. `Err`: the nearest key, if a step is missing.
fn walk<'a, 'f>(
    root: &'a Node,
    steps: &'f [&'f str],
    nearest: Range<usize>,
) -> Result<PathEnd<'a, 'f>, Range<usize>> {
    let mut end = PathEnd { node: root, key_at: nearest, value_at: None, rest: steps };
    while let Some((step, rest)) = end.rest.split_first() {
        let (node, steps) = (end.node, end.rest);
        match &node.content {
            Content::Map(_) => {
                // The path may contain a key with dots unquoted.
                let found = (1..=steps.len()).find_map(|n| Some((n, node.entry(&steps[..n].join("."))?)));
                let Some((taken, entry)) = found else { return Err(end.key_at) };
                end = PathEnd {
                    node: &entry.node,
                    key_at: entry.key_at.clone(),
                    value_at: Some(entry.at.clone()),
                    rest: &steps[taken..],
                };
            }
            Content::List(items) => {
                let item = step.parse().ok().and_then(|n: usize| items.get(n));
                let Some(item) = item else { return Err(end.key_at) };
                let at = item.at.clone();
                end = PathEnd { node: &item.node, key_at: at.clone(), value_at: Some(at), rest };
            }
            Content::Scalar { .. } => break,
        }
    }
    Ok(end)
}

/// Follows the steps as far as they exist. `enters_entries`: into strings that are YAML.
fn find(
    text: &str,
    root: &Node,
    steps: &[&str],
    nearest: Range<usize>,
    part: Part,
    enters_entries: bool,
) -> Range<usize> {
    let end = match walk(root, steps, nearest) {
        Ok(end) => end,
        Err(nearest) => return nearest,
    };
    let PathEnd { node, key_at, value_at, rest } = end;
    if part == Part::Key && rest.is_empty() {
        return key_at;
    }
    let Content::Scalar { value: scalar, style } = &node.content else {
        // A block collection would be located by its first key, so its own key is better.
        let is_inline =
            |at: &Range<usize>| text.get(at.clone()).is_some_and(|t| t.starts_with(['{', '[', '*']));
        return value_at.filter(|at| rest.is_empty() && is_inline(at)).unwrap_or(key_at);
    };
    let is_block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
    if let (Some(inner), true) = (scalar.as_str(), enters_entries && (is_block || !rest.is_empty())) {
        if *style == ScalarStyle::Literal
            && let Some(at) = find_in_entry(inner, rest, part)
            && let Some(at) = range_in_file(text, node, inner, &first_line(inner, at))
        {
            return at;
        }
        if let [key] = rest
            && let Some(at) = line_of_key(text, node.span.clone(), key)
        {
            return at;
        }
    }
    // The value of a block scalar would be its `|`, and a missing value has no range.
    value_at.filter(|at| !is_block && !at.is_empty()).unwrap_or(key_at)
}

fn find_in_entry(entry: &str, steps: &[&str], part: Part) -> Option<Range<usize>> {
    match documents(entry).into_iter().next()? {
        // A finding about the whole entry is about its duplicate key, if any.
        Ok(root) if steps.is_empty() => root.repeated_keys().first().map(|e| e.key_at.clone()),
        // An empty range means that the entry's own key is nearest.
        Ok(root) => Some(find(entry, &root, steps, 0..0, part, false)).filter(|at| !at.is_empty()),
        // The controller may accept an entry that this parser refuses, such as `.inf`.
        Err(_) if !steps.is_empty() => None,
        Err(problem) => Some(problem.at),
    }
}

/// Line of a key in an entry that is folded, quoted or refused by this parser. `None` unless one line begins with the
/// key.
fn line_of_key(text: &str, span: Range<usize>, key: &str) -> Option<Range<usize>> {
    let entry = text.get(span.clone())?;
    let mut offset = span.start;
    let mut found = None;
    for line in entry.split_inclusive('\n').filter(|_| entry.contains('\n')) {
        let content = line.trim().trim_start_matches(['"', '\'']);
        if content.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with(':')) {
            if found.is_some() {
                return None;
            }
            let start = offset + line.find(content)?;
            found = Some(start..start + content.len());
        }
        offset += line.len();
    }
    found
}

/// Translates a range within a literal block scalar to the file. `None` for a range in its leading empty lines.
fn range_in_file(text: &str, scalar: &Node, inner: &str, at: &Range<usize>) -> Option<Range<usize>> {
    let before = inner.get(..at.start)?;
    let line_start = before.rfind('\n').map_or(0, |n| n + 1);
    let inner_line = inner[line_start..].split('\n').next()?;
    // The parser's range starts at the first line that is not empty.
    let empty = inner.len() - inner.trim_start_matches('\n').len();
    let lines = before.matches('\n').count().checked_sub(empty)?;
    let mut start = text.get(..scalar.span.start)?.rfind('\n').map_or(0, |n| n + 1);
    for _ in 0..lines {
        start += text.get(start..)?.find('\n')? + 1;
    }
    let line = text[start..].split('\n').next()?.trim_end_matches('\r');
    let indentation = line.strip_suffix(inner_line)?;
    let offset = start + indentation.len() + (at.start - line_start);
    Some(offset..offset + at.len())
}

#[cfg(test)]
mod tests;
