//! Error messages of YAML and JSON parsers, without Rust type names and advice to programmers.

use std::borrow::Cow;

use serde_saphyr::{Error, MessageFormatter, UserMessageFormatter};

/// Describes a YAML error and its position.
#[must_use]
pub fn describe_yaml_error(error: &Error) -> String {
    replace_rust_types(&error.render_with_formatter(&UserFormatter))
}

/// Message about a null where text is expected.
const NULL_TEXT: &str = "found null, expected text in quotes";
/// The parser's own message for a null. It also appears inside errors of typed readers.
const NULL_INTO_STRING: &str = "cannot deserialize null into string; use Option<String>";

/// The parser's advice to programmers. It also appears inside errors of typed readers.
const DUPLICATE_KEY_ADVICE: &str = ", set DuplicateKeyPolicy in Options if acceptable";

struct UserFormatter;

impl MessageFormatter for UserFormatter {
    fn format_message<'a>(&self, error: &'a Error) -> Cow<'a, str> {
        match error {
            Error::NullIntoString { .. } => Cow::Borrowed(NULL_TEXT),
            Error::Budget { .. } => Cow::Borrowed("the text is too large or nested too deeply"),
            other => UserMessageFormatter.format_message(other),
        }
    }
}

const TYPE_KINDS: [(&str, &str); 4] = [
    ("newtype struct ", "a value"),
    ("tuple struct ", "a list"),
    ("struct ", "a map"),
    ("enum ", "one of its values"),
];
const TYPES: [(&str, &str); 13] = [
    ("unit value", "null"),
    ("unit", "null"),
    ("sequence", "a list"),
    ("f32", "a number"),
    ("f64", "a number"),
    ("u8", "a whole number"),
    ("u16", "a whole number"),
    ("u32", "a whole number"),
    ("u64", "a whole number"),
    ("usize", "a whole number"),
    ("i32", "a whole number"),
    ("i64", "a whole number"),
    ("i128", "a whole number"),
];

/// The found value stays unchanged, because it may be text of the user.
#[must_use]
pub fn replace_rust_types(message: &str) -> String {
    let message =
        &message.replace(NULL_INTO_STRING, NULL_TEXT).replace(DUPLICATE_KEY_ADVICE, " not allowed here");
    let Some((found, expected)) = message.rsplit_once("expected ") else { return message.to_owned() };
    let found = found.replacen("invalid type: unit value", "invalid type: null", 1);
    let found = found.replacen("invalid type: sequence", "invalid type: list", 1);
    let plain = TYPE_KINDS
        .iter()
        .find_map(|(start, plain)| Some((after_name(expected.strip_prefix(start)?), plain)))
        .or_else(|| TYPES.iter().find_map(|(word, plain)| Some((after_word(expected, word)?, plain))));
    match plain {
        Some((rest, plain)) => format!("{found}expected {plain}{rest}"),
        None => format!("{found}expected {expected}"),
    }
}

fn after_name(text: &str) -> &str {
    text.trim_start_matches(|c: char| c.is_alphanumeric() || matches!(c, '_' | ':' | '<' | '>'))
}

fn after_word<'t>(text: &'t str, word: &str) -> Option<&'t str> {
    text.strip_prefix(word).filter(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn replaces_rust_types() {
        for (message, want) in [
            ("invalid type: integer `3`, expected struct Spec", "invalid type: integer `3`, expected a map"),
            ("invalid type: null, expected f64 at line 1", "invalid type: null, expected a number at line 1"),
            ("invalid type: unit value, expected a string", "invalid type: null, expected a string"),
            (
                "invalid value: integer `-1`, expected u32",
                "invalid value: integer `-1`, expected a whole number",
            ),
            ("invalid type: map, expected a sequence", "invalid type: map, expected a sequence"),
            ("unknown field `a`, expected one of `b`", "unknown field `a`, expected one of `b`"),
            ("unclosed bracket", "unclosed bracket"),
            (NULL_INTO_STRING, NULL_TEXT),
            (
                "config.?: duplicate mapping key: a, set DuplicateKeyPolicy in Options if acceptable at line 9",
                "config.?: duplicate mapping key: a not allowed here at line 9",
            ),
        ] {
            assert_eq!(replace_rust_types(message), want);
        }
    }

    #[test]
    fn yaml_errors_have_no_advice_to_programmers() {
        let problem = |text: &str| {
            let options = serde_saphyr::options! { with_snippet: false, budget: serde_saphyr::budget! { max_depth: 4 } };
            let read: Result<BTreeMap<String, serde_json::Value>, _> =
                serde_saphyr::from_str_with_options(text, options);
            describe_yaml_error(&read.unwrap_err())
        };
        for (text, want) in [
            ("~: 1", "found null, expected text in quotes at line 1, column 1"),
            ("a: [[[[[[]]]]]]", "the text is too large or nested too deeply"),
            ("a: 1\na: 2", "duplicate mapping key: a not allowed here"),
        ] {
            assert!(problem(text).starts_with(want), "{}", problem(text));
        }
    }
}
