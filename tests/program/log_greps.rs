//! Searches in logs that pages print, and those of the guides of llm-d WVA, find texts that the program logs.

use std::process::Command;

use crate::docs_blocks::blocks_of;
use crate::finish;
use crate::literals::of_sources;

/// Of the configuration guide and the chart's README of llm-d WVA.
const OF_LLM_D_WVA: [&str; 5] = [
    r#"grep "Attempted to change immutable parameters""#,
    r#"grep -i "config\|validation\|error""#,
    r#"grep "Updated.*config""#,
    r#"grep "Safety net activated""#,
    "grep error",
];
/// Crates of the controller.
const FOLDERS: [&str; 7] =
    ["src", "certs/src", "controller/src", "crds/src", "runtime/src", "webhook/src", "webhook/rules/src"];

#[test]
fn searches_in_logs_find_a_line() {
    let lines = of_sources(&FOLDERS).join("\n");
    let joined = |(path, block): (&'static str, String)| (path, block.replace("\\\n", " "));
    let blocks: Vec<_> = blocks_of("sh").into_iter().map(joined).collect();
    let on_pages = blocks.iter().flat_map(|(path, block)| searches(block).map(move |search| (*path, search)));
    let all: Vec<_> = on_pages.chain(OF_LLM_D_WVA.map(|search| ("llm-d WVA", search))).collect();
    let mut without = Vec::new();
    for (page, search) in &all {
        let found = finish(Command::new("bash").args(["-c", search]), &lines);
        if found.code != Some(0) {
            without.push(format!("{page}: {search}"));
        }
    }
    assert!(all.len() > OF_LLM_D_WVA.len() + 6, "{} searches", all.len());
    assert!(without.is_empty(), "they find nothing:\n{}", without.join("\n"));
}

/// `grep` behind a pipe from `kubectl logs`, unless it searches for a name that the reader puts in.
fn searches(block: &str) -> impl Iterator<Item = &str> {
    let of_logs = block.lines().filter(|line| line.contains(" logs "));
    let greps = of_logs.filter_map(|line| Some(line[line.find("| grep ")? + 2..].trim()));
    greps.filter(|search| !search.trim_start_matches("grep ").chars().all(char::is_uppercase))
}
