//! Texts of the input paths, with line and column positions.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::files;
use super::yaml::Problem;
use crate::input::{self, STDIN, is_stdin};
use crate::output::printable;

const MAX_FILE: u64 = 16 << 20;
const MAX_TOTAL: usize = 128 << 20;
pub(super) const MAX_FILES: usize = 10_000;

#[derive(Debug)]
pub(super) struct Source {
    /// Relative if the argument was relative.
    pub(super) name: String,
    pub(super) text: String,
    /// The text is not valid UTF-8.
    pub(super) problem: Option<Problem>,
    /// Start of each line, in bytes.
    lines: Vec<usize>,
    /// Saves counting characters in JSON of many megabytes on one line.
    is_ascii: bool,
}

/// Line and column, both from 1. Columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) line: usize,
    pub(super) column: usize,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum InputError {
    #[error("{path}: no such file or directory")]
    Missing { path: String },
    #[error("{path}: cannot read the file: {source}")]
    Unreadable { path: String, source: std::io::Error },
    #[error("{pattern}: no file matches this pattern")]
    NoMatch { pattern: String },
    #[error("{pattern}: not a valid pattern: {source}")]
    InvalidPattern { pattern: String, source: glob::PatternError },
    #[error("{path}: no .yaml, .yml or .json file in this directory")]
    NoYaml { path: String },
    #[error("{STDIN}: empty; the command before the pipe probably failed")]
    EmptyStdin,
    #[error("{path}: longer than {} MiB: split the file", MAX_FILE >> 20)]
    TooLong { path: String },
    #[error("more than {MAX_FILES} files or {} MiB in total: validate them in parts", MAX_TOTAL >> 20)]
    TooMuch,
    #[error("{path}: too many or too deeply nested directories: pass the manifests as paths")]
    TooDeep { path: String },
}

impl Source {
    pub(super) fn new(name: String, bytes: Vec<u8>) -> Self {
        // Editors do not count a byte order mark as a column.
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").map(<[u8]>::to_vec).unwrap_or(bytes);
        let (text, problem) = match String::from_utf8(bytes) {
            Ok(text) => (text, None),
            Err(e) => {
                let at = e.utf8_error().valid_up_to();
                let message = "not UTF-8 from here on: save the file as UTF-8".to_owned();
                (String::from_utf8_lossy(e.as_bytes()).into_owned(), Some(Problem { message, at: at..at }))
            }
        };
        let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(n, _)| n + 1)).collect();
        Self { name, is_ascii: text.is_ascii(), text, problem, lines }
    }

    pub(super) fn position(&self, offset: usize) -> Position {
        let line = self.lines.partition_point(|&start| start <= offset);
        let start = self.lines.get(line.saturating_sub(1)).copied().unwrap_or_default();
        let before = self.text.get(start..offset).unwrap_or_default();
        Position { line, column: if self.is_ascii { before.len() } else { before.chars().count() } + 1 }
    }

    /// Line without its end, and the byte offset of its start.
    pub(super) fn line_of(&self, offset: usize) -> (&str, usize) {
        let line = self.lines.partition_point(|&start| start <= offset).saturating_sub(1);
        let start = self.lines.get(line).copied().unwrap_or_default();
        let text = self.text[start..].split('\n').next().unwrap_or_default();
        (text.trim_end_matches('\r'), start)
    }
}

/// Reads each matching file once, in the order of the paths.
///
/// # Errors
/// A path matches no file or cannot be read, or the input is too large.
pub(super) fn read(paths: &[PathBuf]) -> Result<Vec<Source>, InputError> {
    let mut files = Vec::new();
    for path in paths {
        let before = files.len();
        if is_stdin(path) {
            files.push(path.clone());
        } else {
            files::expand_path(path, &mut files)?;
        }
        if files.len() == before {
            return Err(InputError::NoYaml { path: display_path(path) });
        }
    }
    load(&files)
}

/// Reads like [`read`], and a directory may contain no manifest.
///
/// # Errors
/// As [`read`].
pub(super) fn read_old(path: &Path) -> Result<Vec<Source>, InputError> {
    let mut files = Vec::new();
    files::add_path(path, &mut files)?;
    load(&files)
}

fn load(files: &[PathBuf]) -> Result<Vec<Source>, InputError> {
    let (mut sources, mut loaded, mut total) = (Vec::new(), BTreeSet::new(), 0);
    for path in files {
        // GitHub annotations need paths without a leading `./`.
        let path = path.strip_prefix(".").ok().filter(|p| !is_stdin(p)).unwrap_or(path);
        if !loaded.insert(path) {
            continue;
        }
        let source = load_file(path)?;
        total += source.text.len();
        if total > MAX_TOTAL || sources.len() == MAX_FILES {
            return Err(InputError::TooMuch);
        }
        sources.push(source);
    }
    Ok(sources)
}

fn load_file(path: &Path) -> Result<Source, InputError> {
    let name = if is_stdin(path) { STDIN.to_owned() } else { display_path(path) };
    match input::read(path, MAX_FILE) {
        Ok(Some(bytes)) if is_stdin(path) && bytes.trim_ascii().is_empty() => Err(InputError::EmptyStdin),
        Ok(Some(bytes)) => Ok(Source::new(name, bytes)),
        Ok(None) => Err(InputError::TooLong { path: name }),
        Err(source) => Err(InputError::Unreadable { path: name, source }),
    }
}

pub(super) fn display_path(path: &Path) -> String {
    printable(&path.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_lines_and_columns_from_one_in_characters() {
        let source = Source::new("a".to_owned(), "\u{feff}é: 1\r\nü😀: 2\n".into());
        assert_eq!(source.position(0), Position { line: 1, column: 1 });
        assert_eq!(source.position("é: ".len()), Position { line: 1, column: 4 });
        let second = source.text.find('2').unwrap();
        assert_eq!(source.position(second), Position { line: 2, column: 5 });
        assert_eq!(source.line_of(second), ("ü😀: 2", 7));
        assert_eq!(source.position(source.text.len()), Position { line: 3, column: 1 });
    }

    #[test]
    fn locates_bytes_that_are_not_utf8() {
        let source = Source::new("a".to_owned(), b"a: 1\nb: \xff\n".to_vec());
        let problem = source.problem.as_ref().unwrap();
        assert_eq!(source.position(problem.at.start), Position { line: 2, column: 4 });
    }
}
