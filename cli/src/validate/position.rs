//! From the field of a finding, as kubectl prints it, to the place in the text: the value itself, or the key of the
//! nearest thing around it that stands there. Follows a field into a ConfigMap entry that is YAML of its own.

use std::ops::Range;

use granit_parser::ScalarStyle;

use super::located::{Content, Node, documents};

/// What of a field is pointed at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Its value.
    Value,
    /// Its key, where that is what is wrong.
    Key,
}

/// The place of `field` within `object`, at most one line long.
pub(super) fn of(text: &str, object: &Node, field: &str, part: Part) -> Range<usize> {
    // What lacks everything is pointed out by its kind.
    let start = object.entry("kind").map_or_else(|| object.span.clone(), |kind| kind.at.clone());
    first_line(text, find(text, object, &steps(field), start, part, true))
}

/// A range cut off at the end of its first line.
pub(super) fn first_line(text: &str, at: Range<usize>) -> Range<usize> {
    let line = text.get(at.clone()).and_then(|t| t.split('\n').next()).unwrap_or_default();
    at.start..at.start + line.trim_end_matches('\r').len()
}

/// The steps of a path: `data[config.yaml].a`, `spec.metrics[0].x`.
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

/// The last node on the way along some steps.
struct PathEnd<'a, 'f> {
    node: &'a Node,
    /// The nearest key.
    key_at: Range<usize>,
    value_at: Option<Range<usize>>,
    /// Steps that are left, where the node is a scalar.
    rest: &'f [&'f str],
}

/// Goes along the steps through maps and lists. `Err` with the nearest key, where the next step is missing.
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
                // A key with dots may stand in the path as it is.
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

/// Goes as far along the steps as the text does. `nearest` is the place of the nearest key so far; `entries` says
/// that a text on the way may be YAML of its own.
fn find(
    text: &str,
    root: &Node,
    steps: &[&str],
    nearest: Range<usize>,
    part: Part,
    entries: bool,
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
        // A block begins with its first key, which is not what is meant; brackets and an alias are one thing.
        let whole = |at: &Range<usize>| text.get(at.clone()).is_some_and(|t| t.starts_with(['{', '[', '*']));
        return value_at.filter(|at| rest.is_empty() && whole(at)).unwrap_or(key_at);
    };
    let block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
    if let (Some(inner), true) = (scalar.as_str(), entries && (block || !rest.is_empty())) {
        if *style == ScalarStyle::Literal
            && let Some(at) = find_within(inner, rest, part)
            && let Some(at) = through_literal(text, node, inner, &first_line(inner, at))
        {
            return at;
        }
        if let [key] = rest
            && let Some(at) = line_of_key(text, node.span.clone(), key)
        {
            return at;
        }
    }
    // The `|` of a block says less than its key; a value that is not there has no place.
    value_at.filter(|at| !block && !at.is_empty()).unwrap_or(key_at)
}

/// The place in an entry that is YAML of its own, if it has one.
fn find_within(entry: &str, steps: &[&str], part: Part) -> Option<Range<usize>> {
    match documents(entry).into_iter().next()? {
        // Where the entry as a whole is wrong, a key that stands in it twice is why.
        Ok(root) if steps.is_empty() => root.repeated_keys().first().map(|e| e.key_at.clone()),
        // Where the entry has nothing of it, the entry's own key is nearest.
        Ok(root) => Some(find(entry, &root, steps, 0..0, part, false)).filter(|at| !at.is_empty()),
        // What this reader refuses, such as `.inf`, may be right there.
        Err(_) if !steps.is_empty() => None,
        Err(problem) => Some(problem.at),
    }
}

/// The line of a key in an entry that is read as a text on several lines, folded or in quotes, or that holds what
/// this reader refuses. `None` where no line or more than one begins with the key.
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

/// The place in the text of a place in a literal block scalar, whose lines stand there as they are but for their
/// indentation. `None` for a place in its leading empty lines.
fn through_literal(text: &str, scalar: &Node, inner: &str, at: &Range<usize>) -> Option<Range<usize>> {
    let before = inner.get(..at.start)?;
    let line_start = before.rfind('\n').map_or(0, |n| n + 1);
    let inner_line = inner[line_start..].split('\n').next()?;
    // The parser has the block begin at its first line that is not empty.
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
