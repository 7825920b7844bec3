//! Expands paths to files. Directories are walked like kubectl does; patterns are expanded here,
//! because a quoted pattern in a CI file reaches no shell.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use glob::{MatchOptions, Pattern};

use super::input::{InputError, MAX_FILES, display_path};
use crate::output::printable;

const MAX_DEPTH: usize = 64;
const MAX_ENTRIES: usize = 500_000;
const WILDCARDS: [char; 3] = ['*', '?', '['];

/// A path that exists is not a pattern.
pub(super) fn expand_path(path: &Path, files: &mut Vec<PathBuf>) -> Result<(), InputError> {
    let pattern = path.to_str().filter(|p| p.contains(WILDCARDS) && path.symlink_metadata().is_err());
    let Some(pattern) = pattern else { return add_path(path, files) };
    let matcher = Pattern::new(pattern)
        .map_err(|source| InputError::InvalidPattern { pattern: printable(pattern), source })?;
    let literal = pattern.find(WILDCARDS).and_then(|n| pattern[..n].rfind('/')).map_or(0, |n| n + 1);
    let (base, rest) = pattern.split_at(literal);
    let depth = if rest.contains("**") { MAX_DEPTH } else { rest.matches('/').count() + 1 };
    let mut search = PatternSearch {
        matcher,
        visits_hidden: rest.starts_with('.') || rest.contains("/."),
        matches: Vec::new(),
        budget: MAX_ENTRIES,
    };
    search.visit(base, depth)?;
    if search.matches.is_empty() {
        return Err(InputError::NoMatch { pattern: printable(pattern) });
    }
    search.matches.iter().try_for_each(|path| add_path(path, files))
}

pub(super) fn add_path(path: &Path, files: &mut Vec<PathBuf>) -> Result<(), InputError> {
    let metadata = path.metadata().map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => InputError::Missing { path: display_path(path) },
        _ => InputError::Unreadable { path: display_path(path), source },
    })?;
    if metadata.is_dir() {
        return walk(path, MAX_DEPTH, &mut MAX_ENTRIES.clone(), files);
    }
    files.push(path.to_owned());
    Ok(())
}

/// Skips hidden entries and links to directories, which may form loops. It follows links to files, which mounted
/// ConfigMaps consist of.
fn walk(
    directory: &Path,
    depth: usize,
    budget: &mut usize,
    files: &mut Vec<PathBuf>,
) -> Result<(), InputError> {
    for (name, is_link) in entries(directory, depth, budget)? {
        let path = directory.join(&name);
        let is_manifest = path.extension().is_some_and(|e| e == "yaml" || e == "yml" || e == "json");
        if name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        if path.is_dir() {
            if !is_link {
                walk(&path, depth - 1, budget, files)?;
            }
        } else if is_manifest && path.is_file() {
            if files.len() == MAX_FILES {
                return Err(InputError::TooMuch);
            }
            files.push(path);
        }
    }
    Ok(())
}

/// Sorted names, each with whether it is a link.
fn entries(
    directory: &Path,
    depth: usize,
    budget: &mut usize,
) -> Result<BTreeSet<(std::ffi::OsString, bool)>, InputError> {
    let unreadable = |source| InputError::Unreadable { path: display_path(directory), source };
    let mut names = BTreeSet::new();
    for entry in directory.read_dir().map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        *budget = budget.saturating_sub(1);
        if *budget == 0 || depth == 0 {
            return Err(InputError::TooDeep { path: display_path(directory) });
        }
        let is_link = entry.file_type().is_ok_and(|t| t.is_symlink());
        names.insert((entry.file_name(), is_link));
    }
    Ok(names)
}

struct PatternSearch {
    matcher: Pattern,
    visits_hidden: bool,
    matches: Vec<PathBuf>,
    /// Directory entries that it may still visit.
    budget: usize,
}

impl PatternSearch {
    /// `base` is empty or ends in a slash. Follows no links.
    fn visit(&mut self, base: &str, depth: usize) -> Result<(), InputError> {
        let options = MatchOptions {
            case_sensitive: true,
            require_literal_separator: true,
            require_literal_leading_dot: true,
        };
        let directory = if base.is_empty() { Path::new(".") } else { Path::new(base) };
        if !directory.is_dir() {
            return Ok(());
        }
        for (name, is_link) in entries(directory, depth, &mut self.budget)? {
            // Names that are not UTF-8 match no pattern.
            let Some(name) = name.to_str() else { continue };
            let path = format!("{base}{name}");
            if self.matcher.matches_with(&path, options) {
                self.matches.push(PathBuf::from(&path));
            } else if depth > 1
                && !is_link
                && (self.visits_hidden || !name.starts_with('.'))
                && Path::new(&path).is_dir()
            {
                self.visit(&format!("{path}/"), depth - 1)?;
            }
        }
        Ok(())
    }
}
