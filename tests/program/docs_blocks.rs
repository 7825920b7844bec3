//! Code blocks of the pages: shell blocks parse and use commands and flags that exist; manifests, entries of ConfigMaps
//! and values of the chart are valid. `--nocapture` prints the counts. `tests/e2e/front_door.rs` runs the README and the
//! quick start on a real control plane.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

use super::docs::{pages, root};
use super::{finish, run};

/// YAML blocks of other programs, by a key of the first or second level that only they have: they are parsed, no more.
const FOREIGN_KEYS: [&str; 9] = [
    "dependencies", "jobs", "repos", "script", "rules", "scrape_configs", "scrapeConfigs", "prometheusSpec",
    "extraScrapeConfigs",
];

#[test]
fn shell_blocks_use_commands_that_exist() {
    let mut invalid = Vec::new();
    let (mut blocks, mut commands) = (0, 0);
    for (path, block) in blocks_of("sh") {
        blocks += 1;
        let parsed = finish(Command::new("bash").arg("-n"), &block);
        if parsed.code != Some(0) {
            invalid.push(format!("{path}: {}", parsed.stderr));
        }
        for command in wva_commands(&block) {
            commands += 1;
            let mut arguments: Vec<&str> = command.iter().map(String::as_str).collect();
            // clap reads every flag before it prints the help.
            arguments.push("--help");
            let answer = run(&arguments, "");
            if answer.code != Some(0) {
                invalid.push(format!("{path}: wva {}: {}", command.join(" "), answer.stderr));
            }
        }
    }
    println!("{blocks} shell blocks parsed, {commands} wva commands checked");
    assert!(commands > 30, "{commands}");
    assert!(invalid.is_empty(), "{}", invalid.join("\n"));
}

#[test]
fn yaml_blocks_are_valid() {
    let chart = root().join("charts/workload-variant-autoscaler");
    let schema = std::fs::read(chart.join("values.schema.json")).unwrap();
    let schema: Value = serde_json::from_slice(&schema).unwrap();
    let defaults = std::fs::read_to_string(chart.join("values.yaml")).unwrap();
    let defaults: Value = serde_saphyr::from_str(&defaults).unwrap();
    let values = jsonschema::validator_for(&schema).unwrap();
    let mut invalid = Vec::new();
    let mut counts = BTreeMap::<&str, u32>::new();
    for (path, block) in blocks_of("yaml") {
        let documents = match serde_saphyr::from_multiple::<Value>(&block) {
            Ok(documents) => documents,
            Err(error) => {
                invalid.push(format!("{path}: {error}\n{block}"));
                continue;
            }
        };
        let kind = classify(&documents, &schema);
        *counts.entry(kind).or_default() += 1;
        let problem = match kind {
            "manifests" => validate(&block),
            "entries" => validate(&entries_map(&documents[0])),
            "values" => {
                let merged = merge(defaults.clone(), &documents[0]);
                values.iter_errors(&merged).map(|error| format!("{}: {error}", error.instance_path())).next()
            }
            _ => None,
        };
        invalid.extend(problem.map(|problem| format!("{path}: {kind}: {problem}\n{block}")));
    }
    println!("{counts:?}");
    assert!(counts["manifests"] > 3 && counts["entries"] > 0 && counts["values"] > 3, "{counts:?}");
    assert!(invalid.is_empty(), "{}", invalid.join("\n"));
}

/// Blocks of a language with their page. Pages of rules show invalid objects, and have tests of their own.
pub(super) fn blocks_of(language: &str) -> Vec<(&'static str, String)> {
    let mut blocks = Vec::new();
    for (path, text) in pages().filter(|(path, _)| !path.starts_with("docs/reference/rules/")) {
        let mut open: Option<(String, bool)> = None;
        // A block in a list is indented.
        let mut indent = 0;
        for line in text.lines() {
            match (&mut open, line.trim_start().strip_prefix("```")) {
                (None, Some(info)) => {
                    indent = line.len() - line.trim_start().len();
                    open = Some((String::new(), info == language));
                }
                (Some(_), Some(_)) => {
                    let closed = open.take().filter(|(_, wanted)| *wanted);
                    blocks.extend(closed.map(|(block, _)| (path.as_str(), block)));
                }
                (Some((block, _)), None) => {
                    block.push_str(line.get(indent..).unwrap_or_default());
                    block.push('\n');
                }
                (None, None) => {}
            }
        }
    }
    blocks
}

/// Arguments of the `wva` commands of a block.
fn wva_commands(block: &str) -> Vec<Vec<String>> {
    let joined = block.replace("\\\n", " ");
    let mut commands = Vec::new();
    for line in joined.lines() {
        let line = line.split(" #").next().unwrap_or_default();
        for part in line.split(" | ") {
            let words = part.split_whitespace();
            let words: Vec<&str> = words.take_while(|word| !is_operator(word)).collect();
            let (["wva", arguments @ ..] | ["cargo", "run", "--release", "--", arguments @ ..]) =
                words.as_slice()
            else {
                continue;
            };
            let unquoted = |word: &&str| filled_in(word.trim_matches(['\'', '"']));
            commands.push(arguments.iter().map(unquoted).collect());
        }
    }
    commands
}

/// Placeholders and variables of a shell are names in small letters.
fn filled_in(word: &str) -> String {
    let name = word.trim_start_matches('$');
    let is_placeholder = name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
    if is_placeholder { name.to_lowercase().replace('_', "-") } else { word.to_owned() }
}

fn is_operator(word: &str) -> bool {
    ["&&", "||", ";", "&", "<<"].contains(&word) || word.starts_with(['>', '<']) || word.starts_with("2>")
}

fn classify(documents: &[Value], schema: &Value) -> &'static str {
    if documents.iter().all(|document| document["apiVersion"].is_string() && document["kind"].is_string()) {
        return "manifests";
    }
    let Some(map) = documents[0].as_object() else { return "parsed only" };
    let has = |key: &str| map.contains_key(key) || map.values().any(|value| !value[key].is_null());
    if FOREIGN_KEYS.into_iter().any(has) {
        "parsed only"
    } else if map.values().all(Value::is_string) {
        "entries"
    } else if map.keys().all(|key| !schema["properties"][key].is_null()) {
        "values"
    } else {
        "parsed only"
    }
}

/// Values over the defaults, as Helm merges them.
fn merge(mut under: Value, over: &Value) -> Value {
    match (&mut under, over) {
        (Value::Object(under_map), Value::Object(over_map)) => {
            for (key, value) in over_map {
                let merged = merge(under_map.remove(key).unwrap_or_default(), value);
                under_map.insert(key.clone(), merged);
            }
            under
        }
        _ => over.clone(),
    }
}

/// The entries in the ConfigMap of their kind.
fn entries_map(entries: &Value) -> String {
    let text = entries.to_string();
    let name = if text.contains("enable_scale_to_zero") || text.contains("retention_period") {
        "wva-model-scale-to-zero-config"
    } else if text.contains("itlSlo") && text.contains("priority") {
        "serviceclass"
    } else {
        "wva-saturation-scaling-config"
    };
    serde_json::json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "prod"},
        "data": entries,
    })
    .to_string()
}

/// The findings of `wva validate`, if there are any.
fn validate(manifests: &str) -> Option<String> {
    let answer = run(&["validate", "-"], manifests);
    (answer.code != Some(0)).then(|| format!("{}{}", answer.stdout, answer.stderr))
}
