//! What is judged: the texts behind the paths of the command line, with the lines that positions are counted in.
//! Sizes and numbers are bounded.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::files;
use super::located::Problem;
use crate::input::{self, STDIN, is_stdin};

/// The most bytes of one file. etcd takes 1.5 MiB an object, so this is a bundle of many.
const FILE: u64 = 16 << 20;
/// The most bytes of all files together.
const ALL: usize = 128 << 20;
/// The most files.
pub(super) const FILES: usize = 10_000;
/// A text and where it came from.
#[derive(Debug)]
pub(super) struct Source {
    /// The path as given, or found below a path as given.
    pub(super) name: String,
    pub(super) text: String,
    /// Why the text cannot be read at all.
    pub(super) problem: Option<Problem>,
    /// Where each line starts, in bytes.
    lines: Vec<usize>,
    /// Characters are bytes: JSON of many megabytes on one line is not counted through for every finding.
    ascii: bool,
}

/// Why there is nothing to judge.
#[derive(Debug, thiserror::Error)]
pub(super) enum InputError {
    #[error("{path}: no such file or directory")]
    Missing { path: String },
    #[error("{path}: cannot be read: {source}")]
    Unreadable { path: String, source: std::io::Error },
    #[error("{pattern}: no file matches this pattern")]
    NoMatch { pattern: String },
    #[error("{pattern}: not a pattern: {source}")]
    NoPattern { pattern: String, source: glob::PatternError },
    #[error("{path}: no file below it ends in .yaml, .yml or .json")]
    NoYaml { path: String },
    #[error("{STDIN}: empty: the command before it has probably failed")]
    EmptyStdin,
    #[error("{path}: longer than {} MiB: split it", FILE >> 20)]
    TooLong { path: String },
    #[error("more than {FILES} files or {} MiB in all: validate parts of it", ALL >> 20)]
    TooMuch,
    #[error("{path}: too many files and directories to look at, or too deep: name what is to be judged")]
    TooFar { path: String },
}

impl Source {
    pub(super) fn new(name: String, bytes: Vec<u8>) -> Self {
        // Editors do not count a byte order mark as a column.
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").map(<[u8]>::to_vec).unwrap_or(bytes);
        let (text, problem) = match String::from_utf8(bytes) {
            Ok(text) => (text, None),
            Err(e) => {
                let at = e.utf8_error().valid_up_to();
                let message = "the text is no UTF-8 from here on: save the file as UTF-8".to_owned();
                (String::from_utf8_lossy(e.as_bytes()).into_owned(), Some(Problem { message, at: at..at }))
            }
        };
        let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(n, _)| n + 1)).collect();
        Self { name, ascii: text.is_ascii(), text, problem, lines }
    }

    /// Line and column of a byte, both counted from 1, columns in characters.
    pub(super) fn position(&self, offset: usize) -> (usize, usize) {
        let line = self.lines.partition_point(|&start| start <= offset);
        let start = self.lines.get(line.saturating_sub(1)).copied().unwrap_or_default();
        let before = self.text.get(start..offset).unwrap_or_default();
        (line, if self.ascii { before.len() } else { before.chars().count() } + 1)
    }

    /// The line in which a byte stands, without its end, and where it starts.
    pub(super) fn line_of(&self, offset: usize) -> (&str, usize) {
        let line = self.lines.partition_point(|&start| start <= offset).saturating_sub(1);
        let start = self.lines.get(line).copied().unwrap_or_default();
        let text = self.text[start..].split('\n').next().unwrap_or_default();
        (text.trim_end_matches('\r'), start)
    }
}

/// Reads everything that the paths stand for, each file once, in the order of the paths and sorted below each.
///
/// # Errors
/// When a path stands for nothing, cannot be read, or holds more than is read.
pub(super) fn read(paths: &[PathBuf]) -> Result<Vec<Source>, InputError> {
    let mut found = Vec::new();
    for path in paths {
        let before = found.len();
        if is_stdin(path) {
            found.push(path.clone());
        } else {
            files::expand(path, &mut found)?;
        }
        if found.len() == before {
            return Err(InputError::NoYaml { path: shown(path) });
        }
    }
    load(&found)
}

/// Reads all YAML and JSON below a directory, which may hold none, or one file.
///
/// # Errors
/// As [`read`].
pub(super) fn read_old(path: &Path) -> Result<Vec<Source>, InputError> {
    let mut found = Vec::new();
    files::named(path, &mut found)?;
    load(&found)
}

fn load(files: &[PathBuf]) -> Result<Vec<Source>, InputError> {
    let (mut sources, mut known, mut total) = (Vec::new(), BTreeSet::new(), 0);
    for path in files {
        // GitHub knows a file by its path without this.
        let path = path.strip_prefix(".").ok().filter(|p| !is_stdin(p)).unwrap_or(path);
        if !known.insert(path) {
            continue;
        }
        let source = load_one(path)?;
        total += source.text.len();
        if total > ALL || sources.len() == FILES {
            return Err(InputError::TooMuch);
        }
        sources.push(source);
    }
    Ok(sources)
}

fn load_one(path: &Path) -> Result<Source, InputError> {
    let name = if is_stdin(path) { STDIN.to_owned() } else { shown(path) };
    match input::read(path, FILE) {
        Ok(Some(bytes)) if is_stdin(path) && bytes.trim_ascii().is_empty() => Err(InputError::EmptyStdin),
        Ok(Some(bytes)) => Ok(Source::new(name, bytes)),
        Ok(None) => Err(InputError::TooLong { path: name }),
        Err(source) => Err(InputError::Unreadable { path: name, source }),
    }
}

pub(super) fn shown(path: &Path) -> String {
    printable(&path.to_string_lossy())
}

/// A text with nothing in it that a terminal or a log would act on: control characters and those that turn the
/// direction of writing are replaced, one for one, so that columns stay.
pub(super) fn printable(text: &str) -> String {
    let harmful = |c: char| {
        (c.is_control() && c != '\t')
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{61c}')
    };
    text.chars().map(|c| if harmful(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_are_counted_from_one_in_characters() {
        let source = Source::new("a".to_owned(), "\u{feff}é: 1\r\nü😀: 2\n".into());
        assert_eq!(source.position(0), (1, 1));
        assert_eq!(source.position("é: ".len()), (1, 4));
        let second = source.text.find('2').unwrap();
        assert_eq!(source.position(second), (2, 5));
        assert_eq!(source.line_of(second), ("ü😀: 2", 7));
        assert_eq!(source.position(source.text.len()), (3, 1));
    }

    #[test]
    fn bytes_that_are_no_text_are_a_problem_at_their_place() {
        let source = Source::new("a".to_owned(), b"a: 1\nb: \xff\n".to_vec());
        assert_eq!(source.position(source.problem.as_ref().unwrap().at.start), (2, 4));
    }
}
