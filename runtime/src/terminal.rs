//! Text for people on standard output and standard error. Text of others, such as names in objects, cannot control the
//! terminal.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, Write as _};

/// Writes text with our own cursor movements to standard output. Text of others in it must be [`harmless`]. Returns false if
/// the reader closed the pipe.
///
/// # Errors
/// Standard output cannot be written.
pub fn print_unchecked(text: &str) -> io::Result<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true),
    }
}

/// Prints an error with its causes on one line.
#[expect(clippy::print_stderr, reason = "the process ends here, perhaps before a logger exists")]
pub fn print_error(error: &impl Display) {
    eprintln!("wva: {}", harmless(&format!("{error:#}"), false));
}

/// Replaces control characters and bidirectional marks in a part of a line; columns stay the same.
#[must_use]
pub fn printable(text: &str) -> String {
    let is_harmful = |c: char| {
        (c.is_control() && c != '\t')
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{61c}')
    };
    text.chars().map(|c| if is_harmful(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// Replaces control characters except line ends, tabs and, if wanted, colours. JSON and YAML have none, so they stay as they
/// are.
#[must_use]
pub fn harmless(text: &str, with_colours: bool) -> Cow<'_, str> {
    let is_harmful = |c: char| c.is_control() && c != '\n' && c != '\t';
    if !text.chars().any(is_harmful) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let end = if with_colours && c == '\x1b' { colour_length(rest) } else { None };
        let (kept, after) = rest.split_at(end.unwrap_or(c.len_utf8()));
        out.push_str(if end.is_none() && is_harmful(c) { "\u{fffd}" } else { kept });
        rest = after;
    }
    out.into()
}

/// Bytes of the sequence that sets a colour, at the beginning of the text.
fn colour_length(text: &str) -> Option<usize> {
    let parameters = text.strip_prefix("\x1b[")?;
    let end = parameters.find(|c: char| !c.is_ascii_digit() && c != ';')?;
    parameters[end..].starts_with('m').then_some("\x1b[m".len() + end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_does_not_control_the_terminal() {
        let text = "a\x1b[2Jb\x1b]0;title\x07\r\n\x1b[1;31mred\x1b[0m\t\u{9b}31m\x1b[31\x1b";
        assert_eq!(
            harmless(text, true),
            "a\u{fffd}[2Jb\u{fffd}]0;title\u{fffd}\u{fffd}\n\x1b[1;31mred\x1b[0m\t\u{fffd}31m\u{fffd}[31\u{fffd}"
        );
        assert_eq!(printable("a\n\tb\u{202e}\x1b[31m"), "a\u{fffd}\tb\u{fffd}\u{fffd}[31m");
        assert!(!harmless(text, false).contains('\x1b'));
        assert!(matches!(harmless("plain: é\n", false), Cow::Borrowed(_)));
    }
}
