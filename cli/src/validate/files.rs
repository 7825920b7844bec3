//! Which files the paths of the command line stand for. A directory is walked as kubectl walks it; patterns are
//! expanded here, since a CI file's quoted pattern passes no shell. How far it looks is bounded, links or not.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use glob::{MatchOptions, Pattern};

use super::input::{FILES, InputError, printable, shown};

/// The most directories within each other.
const DEPTH: usize = 64;
/// The most entries that one path has looked at, of any kind.
const ENTRIES: usize = 500_000;
const META: [char; 3] = ['*', '?', '['];

/// Adds what a path stands for; what exists under its very name is no pattern.
pub(super) fn expand(path: &Path, files: &mut Vec<PathBuf>) -> Result<(), InputError> {
    let pattern = path.to_str().filter(|p| p.contains(META) && path.symlink_metadata().is_err());
    let Some(pattern) = pattern else { return named(path, files) };
    let matcher = Pattern::new(pattern)
        .map_err(|source| InputError::NoPattern { pattern: printable(pattern), source })?;
    // What stands before the first wildcard is a directory to start from.
    let literal = pattern.find(META).and_then(|n| pattern[..n].rfind('/')).map_or(0, |n| n + 1);
    let (base, rest) = pattern.split_at(literal);
    let depth = if rest.contains("**") { DEPTH } else { rest.matches('/').count() + 1 };
    let mut search = Search {
        matcher,
        hidden: rest.starts_with('.') || rest.contains("/."),
        found: Vec::new(),
        left: ENTRIES,
    };
    search.below(base, depth)?;
    if search.found.is_empty() {
        return Err(InputError::NoMatch { pattern: printable(pattern) });
    }
    search.found.iter().try_for_each(|path| named(path, files))
}

/// Adds a path that somebody named: whatever file it is, or all manifests below it.
pub(super) fn named(path: &Path, files: &mut Vec<PathBuf>) -> Result<(), InputError> {
    let metadata = path.metadata().map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => InputError::Missing { path: shown(path) },
        _ => InputError::Unreadable { path: shown(path), source },
    })?;
    if metadata.is_dir() {
        return walk(path, DEPTH, &mut ENTRIES.clone(), files);
    }
    files.push(path.to_owned());
    Ok(())
}

/// Manifests below a directory, sorted by path. Hidden entries are left out; links to directories are not followed,
/// so there is no loop; links to files are, since mounted config maps consist of them.
fn walk(
    directory: &Path,
    depth: usize,
    left: &mut usize,
    files: &mut Vec<PathBuf>,
) -> Result<(), InputError> {
    for (name, is_link) in entries(directory, depth, left)? {
        let path = directory.join(&name);
        let manifest = path.extension().is_some_and(|e| e == "yaml" || e == "yml" || e == "json");
        if name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        if path.is_dir() {
            if !is_link {
                walk(&path, depth - 1, left, files)?;
            }
        } else if manifest && path.is_file() {
            if files.len() == FILES {
                return Err(InputError::TooMuch);
            }
            files.push(path);
        }
    }
    Ok(())
}

/// The names in a directory, sorted, and whether each is a link.
fn entries(
    directory: &Path,
    depth: usize,
    left: &mut usize,
) -> Result<BTreeSet<(std::ffi::OsString, bool)>, InputError> {
    let unreadable = |source| InputError::Unreadable { path: shown(directory), source };
    let mut found = BTreeSet::new();
    for entry in directory.read_dir().map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        *left = left.saturating_sub(1);
        if *left == 0 || depth == 0 {
            return Err(InputError::TooFar { path: shown(directory) });
        }
        let is_link = entry.file_type().is_ok_and(|t| t.is_symlink());
        found.insert((entry.file_name(), is_link));
    }
    Ok(found)
}

/// What a pattern matches.
struct Search {
    matcher: Pattern,
    /// The pattern names hidden entries.
    hidden: bool,
    found: Vec<PathBuf>,
    left: usize,
}

impl Search {
    /// `base` is empty or ends in a slash. Looks `depth` directories down, through no links.
    fn below(&mut self, base: &str, depth: usize) -> Result<(), InputError> {
        let options = MatchOptions {
            case_sensitive: true,
            require_literal_separator: true,
            require_literal_leading_dot: true,
        };
        let directory = if base.is_empty() { Path::new(".") } else { Path::new(base) };
        if !directory.is_dir() {
            return Ok(());
        }
        for (name, is_link) in entries(directory, depth, &mut self.left)? {
            // A name that is no UTF-8 matches no pattern.
            let Some(name) = name.to_str() else { continue };
            let path = format!("{base}{name}");
            if self.matcher.matches_with(&path, options) {
                self.found.push(PathBuf::from(&path));
            } else if depth > 1
                && !is_link
                && (self.hidden || !name.starts_with('.'))
                && Path::new(&path).is_dir()
            {
                self.below(&format!("{path}/"), depth - 1)?;
            }
        }
        Ok(())
    }
}
