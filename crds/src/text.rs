//! Texts of messages: short, on one line and without terminal control characters.

use std::fmt::Write as _;

use serde_json::Value;

/// Maximum characters of a user value in a message.
pub const FOUND_CHARS: usize = 64;

/// Text quoted and escaped, maps and lists by their size.
#[must_use]
pub fn show(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(b) => format!("{b} (a boolean)"),
        Value::Number(n) => format!("{n} (a number)"),
        Value::String(s) => quote(s),
        Value::Array(list) => format!("a list of {}", list.len()),
        Value::Object(map) => format!("a map of {}", map.len()),
    }
}

/// Escaped.
#[must_use]
pub fn quote(text: &str) -> String {
    format!("\"{}\"", escape(text, true))
}

/// Escapes control and invisible characters and bidirectional marks. Reads at most 4 * [`FOUND_CHARS`] + 1 characters.
#[must_use]
pub fn escape(text: &str, quoted: bool) -> String {
    let mut out = String::new();
    for (n, c) in text.chars().enumerate() {
        if n > FOUND_CHARS * 4 {
            break;
        }
        match c {
            '"' | '\\' if quoted => {
                out.push('\\');
                out.push(c);
            }
            ' '..='~' => out.push(c),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if c.is_alphanumeric() => out.push(c),
            c => drop(write!(out, "\\u{{{:x}}}", u32::from(c))),
        }
    }
    out
}

/// Format of kubectl: a key with dots is in brackets.
#[must_use]
pub fn join_field(outer: &str, key: &str) -> String {
    let key = escape(key, false);
    if key.contains(['.', '/', '[']) { format!("{outer}[{key}]") } else { format!("{outer}.{key}") }
}

/// `...` marks a cut.
#[must_use]
pub fn shorten(text: &str, limit: usize) -> String {
    if text.chars().count() <= limit {
        return text.to_owned();
    }
    let kept: String = text.chars().take(limit.saturating_sub(3)).collect();
    format!("{kept}...").chars().take(limit).collect()
}

/// Known key with the fewest typos, at most two. `None` for a known key.
#[must_use]
pub fn nearest<'k>(key: &str, known: &[&'k str]) -> Option<&'k str> {
    if known.contains(&key) {
        return None;
    }
    known.iter().filter_map(|k| Some((typo_count(key, k)?, *k))).min().map(|(_, k)| k)
}

const MAX_TYPOS: usize = 2;

/// Letters that are missing, extra, wrong or swapped (optimal string alignment distance). `None` for more than two.
#[must_use]
pub fn typo_count(a: &str, b: &str) -> Option<usize> {
    // Avoids the quadratic comparison of long texts.
    if a.chars().count().abs_diff(b.chars().count()) > MAX_TYPOS {
        return None;
    }
    Some(strsim::osa_distance(a, b)).filter(|typos| *typos <= MAX_TYPOS)
}

/// Value of a flag of a Go program in its command line: one or two dashes, and `=` or the next word. `None` without it.
pub fn go_flag<'w>(mut words: impl Iterator<Item = &'w str>, name: &str) -> Option<&'w str> {
    while let Some(word) = words.next() {
        let flag = word.strip_prefix("--").or_else(|| word.strip_prefix('-'));
        let Some(rest) = flag.and_then(|flag| flag.strip_prefix(name)) else { continue };
        if rest.is_empty() {
            return words.next();
        }
        if let Some(value) = rest.strip_prefix('=') {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_on_one_line_and_escaped() {
        for (value, want) in [
            (json!("abc"), "\"abc\""),
            (json!("a\"b\\"), r#""a\"b\\""#),
            (json!("a\nb\u{1b}[31m\u{7f}"), r#""a\nb\u{1b}[31m\u{7f}""#),
            (json!("x\u{202e}y"), r#""x\u{202e}y""#),
            (json!("größe"), "\"größe\""),
            (json!(10), "10 (a number)"),
            (json!({"a": 1}), "a map of 1"),
        ] {
            assert_eq!(show(&value), want);
        }
    }

    #[test]
    fn shortening_counts_characters() {
        assert_eq!(shorten("größer", 6), "größer");
        assert_eq!(shorten("größerer", 6), "grö...");
        assert_eq!(shorten("abcdef", 2), "..");
    }

    #[test]
    fn finds_keys_with_at_most_two_typos() {
        let known = ["wva.llmd.ai/mode", "wva.llmd.ai/controller-instance"];
        for (key, want) in [
            ("wva.llmd.ai/mode", None),
            ("wva.llmd.ai/mdoe", Some(known[0])),
            ("wva.llmd.ai/modes", Some(known[0])),
            ("wva.llmd.ai/mo", Some(known[0])),
            ("wva.llmd.ai/m", None),
            ("wva.llmd.ai/controler-instances", Some(known[1])),
            ("app", None),
        ] {
            assert_eq!(nearest(key, &known), want, "{key}");
        }
    }
}
