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
    let (mut node, mut nearest, mut value, mut steps) = (root, nearest, None, steps);
    while let Some((step, rest)) = steps.split_first() {
        match &node.content {
            Content::Map(_) => {
                // A key with dots may stand in the path as it is.
                let found = (1..=steps.len()).find_map(|n| Some((n, node.entry(&steps[..n].join("."))?)));
                let Some((taken, entry)) = found else { return nearest };
                nearest = entry.key_at.clone();
                value = Some(entry.at.clone());
                (node, steps) = (&entry.node, &steps[taken..]);
            }
            Content::List(items) => {
                let Some(item) = step.parse().ok().and_then(|n: usize| items.get(n)) else { return nearest };
                nearest = item.at.clone();
                value = Some(item.at.clone());
                (node, steps) = (&item.node, rest);
            }
            Content::Scalar { .. } => break,
        }
    }
    if part == Part::Key && steps.is_empty() {
        return nearest;
    }
    let Content::Scalar { value: scalar, style } = &node.content else {
        // A block begins with its first key, which is not what is meant; brackets and an alias are one thing.
        let whole = |at: &Range<usize>| text.get(at.clone()).is_some_and(|t| t.starts_with(['{', '[', '*']));
        return value.filter(|at| steps.is_empty() && whole(at)).unwrap_or(nearest);
    };
    let block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
    if let (Some(inner), true) = (scalar.as_str(), entries && (block || !steps.is_empty())) {
        let within = match documents(inner).into_iter().next() {
            // Where the entry as a whole is wrong, a key that stands in it twice is why.
            Some(Ok(root)) if steps.is_empty() => root.repeated_keys().first().map(|e| e.key_at.clone()),
            // Where the entry has nothing of it, the entry's own key is nearest.
            Some(Ok(root)) => Some(find(inner, &root, steps, 0..0, part, false)).filter(|at| !at.is_empty()),
            // What this reader refuses, such as `.inf`, may be right there.
            Some(Err(_)) if !steps.is_empty() => None,
            Some(Err(problem)) => Some(problem.at),
            None => None,
        };
        if *style == ScalarStyle::Literal
            && let Some(at) = within.and_then(|at| through_literal(text, node, inner, &first_line(inner, at)))
        {
            return at;
        }
        if let [key] = steps
            && let Some(at) = line_of_key(text, node.span.clone(), key)
        {
            return at;
        }
    }
    // The `|` of a block says less than its key; a value that is not there has no place.
    value.filter(|at| !block && !at.is_empty()).unwrap_or(nearest)
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
