//! String literals of the product's sources: what it prints and logs.

use std::path::PathBuf;

use crate::docs::root;

/// String literals of the Rust sources in these folders, as printed.
pub(super) fn of_sources(folders: &[&str]) -> Vec<String> {
    let is_rust = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "rs");
    files(folders).iter().filter(|(path, _)| is_rust(path)).flat_map(|(_, text)| literals(text)).collect()
}

/// Files in these folders and below, without those of tests, each with its text.
pub(super) fn files(folders: &[&str]) -> Vec<(PathBuf, String)> {
    let mut out = Vec::new();
    let mut left: Vec<PathBuf> = folders.iter().map(|folder| root().join(folder)).collect();
    while let Some(path) = left.pop() {
        if path.file_stem().is_some_and(|stem| stem == "tests") {
            continue;
        }
        if path.is_dir() {
            left.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if let Ok(text) = std::fs::read_to_string(&path) {
            out.push((path, text));
        }
    }
    out
}

/// String literals of Rust source, without those of a module `tests`.
pub(super) fn literals(source: &str) -> Vec<String> {
    let source = source.split("#[cfg(test)]").next().unwrap_or_default();
    let mut out = Vec::new();
    let mut rest = source;
    while let Some(at) = rest.find(['"', '\'', '/']) {
        let (before, from) = rest.split_at(at);
        rest = if from.starts_with("//") {
            from.find('\n').map_or("", |end| &from[end..])
        } else if let Some(escaped) = from.strip_prefix("'\\") {
            escaped.find('\'').map_or("", |end| &escaped[end + 1..])
        } else if let Some(text) = from.strip_prefix('"') {
            let is_raw = before.ends_with('r') || before.ends_with('#');
            let end = if is_raw { text.find('"').map(|end| end + 1) } else { closing_quote(from) };
            let end = end.unwrap_or(from.len() - 1);
            out.push(if is_raw { from[1..end].to_owned() } else { unescape(&from[1..end]) });
            &from[end + 1..]
        } else {
            // A character, a lifetime, or a slash.
            let width = from.chars().nth(1).map_or(1, char::len_utf8);
            let is_char = from.starts_with('\'') && from[1..].chars().nth(1) == Some('\'');
            if is_char { &from[width + 2..] } else { &from[1..] }
        };
    }
    out
}

fn closing_quote(from: &str) -> Option<usize> {
    let mut is_escaped = false;
    from.char_indices().skip(1).find_map(|(at, c)| {
        let ends = c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        ends.then_some(at)
    })
}

/// As printed: escapes, continued lines and doubled braces.
fn unescape(literal: &str) -> String {
    let lines: Vec<&str> = literal.split("\\\n").collect();
    let joined = lines.iter().enumerate().map(|(n, line)| if n == 0 { line } else { line.trim_start() });
    let text: String = joined.collect();
    text.replace("\\n", "\n").replace("\\\"", "\"").replace("{{", "{").replace("}}", "}")
}
