//! What parsers say, for people who write YAML and JSON. Parsers' own texts name types of Rust and give advice about them.

use std::borrow::Cow;

use serde_saphyr::{Error, MessageFormatter, UserMessageFormatter};

/// What is wrong with a YAML text, and where.
#[must_use]
pub fn yaml_problem(error: &Error) -> String {
    plain_words(&error.render_with_formatter(&YamlWords))
}

/// What is said where a text is null.
const NULL_TEXT: &str = "null stands where a text belongs: write it in quotes";
/// The parser's own words for it, which also come inside the errors of typed readers.
const NULL_INTO_STRING: &str = "cannot deserialize null into string; use Option<String>";

/// The parser's advice to programmers, which also comes inside the errors of typed readers.
const DUPLICATE_KEY_ADVICE: &str = ", set DuplicateKeyPolicy in Options if acceptable";

struct YamlWords;

impl MessageFormatter for YamlWords {
    fn format_message<'a>(&self, error: &'a Error) -> Cow<'a, str> {
        match error {
            Error::NullIntoString { .. } => Cow::Borrowed(NULL_TEXT),
            Error::Budget { .. } => Cow::Borrowed("it is too large, or nested too deep"),
            other => UserMessageFormatter.format_message(other),
        }
    }
}

/// Kinds of types, which stand before a type's name.
const NAMED: [(&str, &str); 4] = [
    ("newtype struct ", "a value"),
    ("tuple struct ", "a list"),
    ("struct ", "a map"),
    ("enum ", "one of its words"),
];
/// Words for values.
const WORDS: [(&str, &str); 13] = [
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

/// The message of a reader of typed values, with what it expected in plain words. What was found stays as it is: it may
/// be a text of the user.
#[must_use]
pub fn plain_words(message: &str) -> String {
    let message =
        &message.replace(NULL_INTO_STRING, NULL_TEXT).replace(DUPLICATE_KEY_ADVICE, " not allowed here");
    let Some((found, expected)) = message.rsplit_once("expected ") else { return message.to_owned() };
    let found = found.replacen("invalid type: unit value", "invalid type: null", 1);
    let found = found.replacen("invalid type: sequence", "invalid type: list", 1);
    let plain = NAMED
        .iter()
        .find_map(|(start, plain)| Some((after_name(expected.strip_prefix(start)?), plain)))
        .or_else(|| WORDS.iter().find_map(|(word, plain)| Some((whole_word(expected, word)?, plain))));
    match plain {
        Some((rest, plain)) => format!("{found}expected {plain}{rest}"),
        None => format!("{found}expected {expected}"),
    }
}

/// What follows the name of a type.
fn after_name(text: &str) -> &str {
    text.trim_start_matches(|c: char| c.is_alphanumeric() || matches!(c, '_' | ':' | '<' | '>'))
}

/// What follows a word, where the text begins with it.
fn whole_word<'t>(text: &'t str, word: &str) -> Option<&'t str> {
    text.strip_prefix(word).filter(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn typed_readers_speak_of_maps_lists_and_numbers() {
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
            assert_eq!(plain_words(message), want);
        }
    }

    #[test]
    fn yaml_problems_carry_no_advice_about_rust() {
        let problem = |text: &str| {
            let options = serde_saphyr::options! { with_snippet: false, budget: serde_saphyr::budget! { max_depth: 4 } };
            let read: Result<BTreeMap<String, serde_json::Value>, _> =
                serde_saphyr::from_str_with_options(text, options);
            yaml_problem(&read.unwrap_err())
        };
        for (text, want) in [
            ("~: 1", "null stands where a text belongs: write it in quotes at line 1, column 1"),
            ("a: [[[[[[]]]]]]", "it is too large, or nested too deep"),
            ("a: 1\na: 2", "duplicate mapping key: a not allowed here"),
        ] {
            assert!(problem(text).starts_with(want), "{}", problem(text));
        }
    }
}
