//! Characters that look like nothing, a space, a line break, a quote or a colon, but that YAML reads as text. Copies from
//! web pages and chats have them, and the messages of YAML parsers do not name them.

use std::fmt;

/// Characters of a broken text that are tried as the cause, because each trial parses the text again.
const MAX_TRIALS: usize = 8;

/// A character, its line from 1, and its byte offset in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookAlike {
    character: char,
    /// Line, from 1.
    pub line: usize,
    /// Byte offset.
    pub offset: usize,
}

impl fmt::Display for LookAlike {
    /// `U+00A0 (no-break space)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "U+{:04X} ({})", u32::from(self.character), describe(self.character).0)
    }
}

impl LookAlike {
    /// What to type instead.
    #[must_use]
    pub fn advice(self) -> &'static str {
        match describe(self.character).1 {
            ' ' => "type a normal space instead",
            '\n' => "type a line break instead",
            '"' => "type \" instead",
            '\'' => "type ' instead",
            ':' => "type a normal colon instead",
            _ => "delete it",
        }
    }

    /// Bytes of the character.
    #[must_use]
    pub const fn length(self) -> usize {
        self.character.len_utf8()
    }
}

/// Name, and the ASCII character that it looks like. `\0` for a character that is not visible.
const fn describe(character: char) -> (&'static str, char) {
    match character {
        '\u{a0}' => ("no-break space", ' '),
        '\u{ad}' => ("soft hyphen", '\0'),
        '\u{200b}' => ("zero-width space", '\0'),
        '\u{200c}' => ("zero-width non-joiner", '\0'),
        '\u{200d}' => ("zero-width joiner", '\0'),
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            ("direction mark", '\0')
        }
        '\u{85}' => ("next line", '\n'),
        '\u{2028}' => ("line separator", '\n'),
        '\u{2029}' => ("paragraph separator", '\n'),
        '\u{202f}' => ("narrow no-break space", ' '),
        '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{205f}' | '\u{3000}' => ("wide space", ' '),
        '\u{2060}'..='\u{2064}' => ("word joiner", '\0'),
        '\u{feff}' => ("byte order mark", '\0'),
        '\u{2018}' | '\u{2019}' => ("curly single quote", '\''),
        '\u{201c}' | '\u{201d}' | '\u{201e}' => ("curly double quote", '"'),
        '\u{ff1a}' => ("fullwidth colon", ':'),
        _ => ("", '\0'),
    }
}

const fn is_look_alike(character: char) -> bool {
    !describe(character).0.is_empty()
}

/// First look-alike of a text.
#[must_use]
pub fn first(text: &str) -> Option<LookAlike> {
    if text.is_ascii() {
        return None;
    }
    all(text).next()
}

fn all(text: &str) -> impl Iterator<Item = LookAlike> {
    let mut line = 1;
    text.char_indices().filter_map(move |(offset, character)| {
        line += usize::from(character == '\n');
        is_look_alike(character).then_some(LookAlike { character, line, offset })
    })
}

/// Look-alike that causes an error of a parser: without it, the error goes away or changes. `parse` returns the error of
/// a text, in which no other byte has moved.
#[must_use]
pub fn cause_of_error<E: PartialEq>(
    text: &str,
    error: &E,
    parse: impl Fn(&str) -> Option<E>,
) -> Option<LookAlike> {
    if text.is_ascii() {
        return None;
    }
    let candidates = all(text).filter(|found| !is_commented_out(text, found.offset));
    let mut end = 0;
    // A run is replaced as a whole: an indentation has several.
    let runs = candidates.filter(move |found| {
        let starts_run = found.offset != end || end == 0;
        end = found.offset + found.length();
        starts_run
    });
    let mut trials = runs.take(MAX_TRIALS);
    trials.find(|found| parse(&without_run(text, found.offset)).as_ref() != Some(error))
}

/// A comment begins with `#` at the start of a line or after white space.
fn is_commented_out(text: &str, offset: usize) -> bool {
    let line = text[..offset].rsplit('\n').next().unwrap_or_default();
    line.starts_with('#') || line.contains(" #") || line.contains("\t#")
}

/// Replaces the look-alikes that begin at `start` by what they look like, padded to their length.
fn without_run(text: &str, start: usize) -> String {
    let mut out = text[..start].to_owned();
    let mut rest = text[start..].chars();
    let mut next = rest.next();
    while let Some(character) = next.filter(|c| is_look_alike(*c)) {
        let padding = " ".repeat(character.len_utf8() - 1);
        match describe(character).1 {
            '\0' => out.extend([" ", &padding]),
            ':' => out.extend([":", &padding]),
            seen => {
                out.push_str(&padding);
                out.push(seen);
            }
        }
        next = rest.next();
    }
    out.extend(next);
    out.push_str(rest.as_str());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(text: &str) -> Option<String> {
        let parse = |text: &str| crate::entries::yaml_value(text).err().map(|error| error.to_string());
        let error = parse(text)?;
        cause_of_error(text, &error, parse).map(|found| format!("{found} {}", found.line))
    }

    #[test]
    fn names_the_character_that_breaks_yaml() {
        for (text, want) in [
            ("a:\u{a0}0.8\nb: 5\n", Some("U+00A0 (no-break space) 1")),
            ("# \u{a0}\nc: \"\u{a0}\"\na:\u{a0}0.8\nb: 5\n", Some("U+00A0 (no-break space) 3")),
            ("a: 1\n\u{feff}---\nb\u{ff1a}2\nc: 1\n", Some("U+FEFF (byte order mark) 2")),
            ("a: {b\u{ff1a} 1]}", None),
            ("a: \u{201c}x: y\u{201d}\n", Some("U+201C (curly double quote) 1")),
            ("a: 1\u{2028}b: 2\n", Some("U+2028 (line separator) 1")),
            ("# \u{a0}\na: [\n", None),
            ("a: [\n", None),
        ] {
            assert_eq!(cause(text).as_deref(), want, "{text:?}");
        }
    }

    #[test]
    fn replaces_runs_without_moving_other_bytes() {
        for text in ["a\u{a0}\u{2003}b", "\u{201c}x\u{201d}", "\u{ff1a}", "a\u{feff}"] {
            let found = first(text).unwrap();
            assert_eq!(without_run(text, found.offset).len(), text.len(), "{text:?}");
        }
        assert_eq!(without_run("a\u{a0}\u{2003}b", 1), "a     b");
        assert_eq!(first("größe \u{1f600} 模型/qwen-2.5"), None);
    }
}
