//! How values from users are shown in messages: short, on one line, and with nothing in them that a terminal would
//! act on. How near a misspelt key is to a known one, and what an error came of.

use std::fmt::Write as _;

use serde_json::Value;

/// The most characters of a user's value that a message repeats.
pub const FOUND_CHARS: usize = 64;

/// A value as a message shows it: texts quoted and escaped, maps and lists by their size.
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

/// A text in double quotes, escaped.
#[must_use]
pub fn quote(text: &str) -> String {
    format!("\"{}\"", escape(text, true))
}

/// A text from a user without control characters, marks that turn the direction of writing, or characters that do
/// not show. Reads at most as much of it as a message can hold.
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
            // Writing to a String cannot fail.
            c => drop(write!(out, "\\u{{{:x}}}", u32::from(c))),
        }
    }
    out
}

/// A key of the map `outer` as kubectl prints it: one with dots stands in brackets.
#[must_use]
pub fn inside(outer: &str, key: &str) -> String {
    let key = escape(key, false);
    if key.contains(['.', '/', '[']) { format!("{outer}[{key}]") } else { format!("{outer}.{key}") }
}

/// At most `limit` characters of `text`, with the end marked where something was cut off.
#[must_use]
pub fn shorten(text: &str, limit: usize) -> String {
    if text.chars().count() <= limit {
        return text.to_owned();
    }
    let kept: String = text.chars().take(limit.saturating_sub(3)).collect();
    format!("{kept}...").chars().take(limit).collect()
}

/// The known key that `key` is probably meant to be: one or two letters off, counting letters that are missing, too
/// many, wrong, or swapped with their neighbour. `None` for a known key.
#[must_use]
pub fn nearest<'k>(key: &str, known: &[&'k str]) -> Option<&'k str> {
    if known.contains(&key) {
        return None;
    }
    known.iter().filter_map(|k| Some((misspelt(key, k)?, *k))).min().map(|(_, k)| k)
}

/// Letters that may be wrong in a word that is still known.
const WRONG: usize = 2;

/// How many letters of `a` are missing, too many, wrong, or swapped with their neighbour, where it is meant to be `b`
/// (optimal string alignment distance). `None` where those are more than two.
#[must_use]
pub fn misspelt(a: &str, b: &str) -> Option<usize> {
    // The distance takes a time of both lengths: where they differ by more, nothing has to be compared.
    if a.chars().count().abs_diff(b.chars().count()) > WRONG {
        return None;
    }
    Some(strsim::osa_distance(a, b)).filter(|wrong| *wrong <= WRONG)
}

/// An error and what caused it, in one line: "error sending request" alone helps nobody.
#[must_use]
pub fn causes(error: &dyn std::error::Error) -> String {
    let chain = std::iter::successors(Some(error), |e| e.source());
    chain.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_shown_on_one_line_and_harmless() {
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
    fn near_keys_are_found_and_far_ones_are_not() {
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
