//! Output of commands: text, YAML, tables and errors.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use serde::Serialize;
use wva_crds::envelope::{Envelope, FileKind, WVA_VERSION};
use wva_crds::names::GROUP;
use wva_runtime::client::ClientError;
use wva_runtime::terminal::{harmless, print_error};

pub(crate) use wva_runtime::terminal::printable;

use crate::cluster::ListError;

/// Prints to standard output. Text of others cannot control the terminal: of control characters, only line ends and tabs
/// pass. Returns false if the reader closed the pipe.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn print(text: &str) -> anyhow::Result<bool> {
    print_unchecked(&harmless(text, false))
}

/// Prints like [`print()`], for text with our own cursor movements. Text of others in it must be [`harmless`].
pub(crate) fn print_unchecked(text: &str) -> anyhow::Result<bool> {
    wva_runtime::terminal::print_unchecked(text).context("cannot write to standard output")
}

/// Prints like [`print()`], for text with our own colours.
pub(crate) fn print_coloured(text: &str) -> anyhow::Result<bool> {
    print_unchecked(&harmless(text, true))
}

/// An object as a YAML document, without the leading `---`.
pub(crate) fn yaml(object: &impl Serialize) -> anyhow::Result<String> {
    Ok(format!("{}\n", serde_saphyr::to_string(object)?.trim_end()))
}

/// An output of wva, as one line of JSON or YAML.
pub(crate) fn report(kind: FileKind, content: impl Serialize, format: &str) -> anyhow::Result<String> {
    structured(&Envelope::new(kind, content), format)
}

/// One line of JSON, or YAML.
pub(crate) fn structured(value: &impl Serialize, format: &str) -> anyhow::Result<String> {
    if format == "yaml" { yaml(value) } else { Ok(serde_json::to_string(value)? + "\n") }
}

/// A VariantAutoscaling as `kubectl -o name` prints it.
pub(crate) fn object_name(name: &str) -> String {
    format!("variantautoscaling.{GROUP}/{name}\n")
}

/// Whether standard output is a terminal that shows colours, and `NO_COLOR` is not set.
#[must_use]
pub fn use_colours() -> bool {
    let is_set = |key| std::env::var_os(key).is_some_and(|value| !value.is_empty());
    can_redraw() && !is_set("NO_COLOR")
}

/// Whether standard output is a terminal that understands cursor movements.
pub(crate) fn can_redraw() -> bool {
    io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Size of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalSize {
    /// Characters of a line, at least 1.
    pub columns: u16,
    /// Lines, at least 1.
    pub rows: u16,
}

/// Size of the terminal on standard output; `None` without one, or if it does not know its size.
#[must_use]
pub fn terminal_size() -> Option<TerminalSize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    let size = TerminalSize { columns: size.ws_col, rows: size.ws_row };
    (size.columns > 0 && size.rows > 0).then_some(size)
}

/// Each column is as wide as its widest cell.
pub(super) fn table<const N: usize>(heading: [&str; N], rows: &[[String; N]]) -> String {
    columns(heading, rows, "   ")
}

pub(super) fn columns<const N: usize>(heading: [&str; N], rows: &[[String; N]], gap: &str) -> String {
    let mut widths = heading.map(|cell| cell.chars().count());
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in std::iter::once(&heading.map(str::to_owned)).chain(rows) {
        let mut line = String::new();
        for (width, cell) in widths.iter().zip(row) {
            let _ = write!(line, "{cell:<width$}{gap}");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A line as lines of at most `width` characters, broken between words. The next lines begin after `indent` spaces, or after
/// 4 if that leaves too little room.
pub(crate) fn wrap(line: &str, width: usize, indent: usize) -> Vec<String> {
    /// Least characters after the indent.
    const MIN_ROOM: usize = 24;
    let indent = if indent + MIN_ROOM <= width { indent } else { 4.min(width / 2) };
    let mut lines = Vec::new();
    let mut rest: Vec<char> = line.chars().collect();
    let mut begin = 0;
    while rest.len() > width {
        // Without a space, a word is cut.
        let end = (begin + 1..=width).rev().find(|at| rest[*at] == ' ').unwrap_or(width.max(begin + 1));
        let tail: String = rest[end..].iter().collect();
        lines.push(rest[..end].iter().collect::<String>().trim_end().to_owned());
        begin = indent;
        rest = format!("{:indent$}{}", "", tail.trim_start()).chars().collect();
    }
    lines.push(rest.into_iter().collect());
    lines
}

/// `1 variant`, `2 variants`.
pub(super) fn count(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// Three names, and how many more there are.
pub(super) fn first_names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    const SHOWN: usize = 3;
    let all: Vec<&str> = names.collect();
    match all.get(..SHOWN).filter(|_| all.len() > SHOWN) {
        Some(first) => format!("{} and {} more", first.join(", "), all.len() - SHOWN),
        None => all.join(", "),
    }
}

/// Prints the error; the exit code is 2.
#[must_use]
pub(crate) fn wrong_usage(error: impl Into<anyhow::Error>) -> ExitCode {
    print_error(&error.into());
    ExitCode::from(crate::WRONG_USAGE)
}

/// A file of the command line that cannot be read; the exit code is 2.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {path}")]
pub(crate) struct UnreadableFile {
    path: String,
    source: io::Error,
}

impl UnreadableFile {
    pub(crate) fn new(path: &Path, source: io::Error) -> Self {
        Self { path: path.display().to_string(), source }
    }
}

/// An option that cannot be used; the exit code is 2.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) struct WrongOption(pub(crate) anyhow::Error);

/// What a command looks at does not answer; the exit code is 3.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NoAnswer(pub(crate) String);

/// Prints the error of a command. The exit code is 2 for an option that cannot be used and for an unreadable file, kubeconfig or
/// selector, 3 for a cluster or server that does not answer, and otherwise 1.
#[must_use]
pub fn fail(error: &anyhow::Error) -> ExitCode {
    print_error(error);
    let is_wrong_usage = |cause: &(dyn std::error::Error + 'static)| {
        cause.is::<WrongOption>()
            || cause.is::<UnreadableFile>()
            || cause.is::<ClientError>()
            || matches!(cause.downcast_ref(), Some(ListError::Selector { .. }))
    };
    if error.chain().any(is_wrong_usage) {
        ExitCode::from(crate::WRONG_USAGE)
    } else if is_no_answer(error) {
        ExitCode::from(crate::NOT_SEEN)
    } else {
        ExitCode::FAILURE
    }
}

/// Whether the cluster or a server did not answer, so that nothing was looked at.
pub(crate) fn is_no_answer(error: &anyhow::Error) -> bool {
    let is_list = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<ListError>().is_some_and(|error| !matches!(error, ListError::Selector { .. }))
    };
    error.is::<NoAnswer>() || error.chain().any(|cause| is_list(cause) || cause.is::<kube::Error>())
}

/// Prints a line to standard error.
#[expect(clippy::print_stderr, reason = "warnings are not part of the output")]
pub(crate) fn print_warning(text: &str) {
    eprintln!("warning: {}", printable(text));
}

/// Warning about what a newer wva wrote.
pub(crate) fn newer_writer_note(source: &str, verb: &str, writer: &str) -> String {
    format!(
        "{source} {verb} {writer}, newer than this wva {WVA_VERSION}, which ignores fields it does not know: update wva"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_wrap_between_words() {
        assert_eq!(wrap("one two", 7, 0), ["one two"]);
        assert_eq!(wrap("one two", 6, 0), ["one", "   two"]);
        assert_eq!(wrap("onetwo three", 4, 9), ["onet", "  wo", "  th", "  re", "  e"]);
        let line = format!("a    {}", "word ".repeat(8));
        let wrapped = wrap(line.trim_end(), 30, 5);
        assert_eq!(wrapped, ["a    word word word word word", "     word word word"]);
        assert_eq!(wrap("", 1, 0), [""]);
        for width in 1..9 {
            let lines = wrap("a bb ccccccccccc", width, 2);
            assert!(lines.iter().all(|line| line.chars().count() <= width), "{width}: {lines:?}");
        }
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["a", "1"], ["longer", "-"]].map(|row| row.map(str::to_owned));
        assert_eq!(table(["NAME", "N"], &rows), "NAME     N\na        1\nlonger   -\n");
        assert_eq!(table(["NAME", "N"], &[]), "NAME   N\n");
    }
}
