//! Scenarios that the program contains.

use std::fmt::Write as _;
use std::path::Path;

use crate::arguments::similar_names;

macro_rules! scenarios {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../../tests/scenarios/", $name, ".yaml")))),*]
    };
}

static SCENARIOS: [(&str, &str); 8] = scenarios![
    "bursts", "cold-morning", "diurnal-week", "ladder", "prefill-heavy", "ramp", "stock-out", "two-classes",
];

/// Names with the first sentence of each.
pub(super) fn list() -> String {
    let mut out = String::new();
    for (name, text) in &SCENARIOS {
        let comment: Vec<&str> = text.lines().map_while(|line| line.strip_prefix("# ")).collect();
        let comment = comment.join(" ");
        let sentence = comment.split_inclusive(". ").next().unwrap_or_default().trim_end();
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{name:<14} {sentence}");
    }
    out
}

pub(super) fn find(name: &str) -> Option<&'static str> {
    SCENARIOS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// The error about a name that is neither a file nor included.
pub(super) fn unknown(name: &str) -> anyhow::Error {
    let similar = similar_names(name, SCENARIOS.iter().map(|(known, _)| *known));
    anyhow::anyhow!("no included scenario {name}{similar}. `wva simulate --list` lists them")
}

/// Whether it can only be the name of an included scenario: no such file, and no folder in it.
pub(super) fn is_unknown_name(path: &Path) -> bool {
    let is_name = path.file_name() == Some(path.as_os_str()) && path.extension().is_none();
    is_name && !path.exists() && find_unless_file(path).is_none()
}

/// A file of the same name comes first.
pub(super) fn find_unless_file(path: &Path) -> Option<&'static str> {
    path.to_str().and_then(find).filter(|_| !path.exists())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn all_scenarios_without_a_trace_are_included_and_described() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/scenarios");
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let yaml = files.filter(|path| path.extension().is_some_and(|extension| extension == "yaml"));
        let names: BTreeSet<String> =
            yaml.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
        assert_eq!(names, SCENARIOS.iter().map(|(name, _)| (*name).to_owned()).collect());
        for line in list().lines() {
            assert!(line.len() > 20 && line.ends_with('.') && line.chars().count() <= 120, "{line}");
        }
    }
}
