//! Commands that wva prints, in messages, refusals, help, pages of rules and notes of the chart. The list of those that
//! change objects is complete: `tests/e2e/install/commands.rs` runs them, and upgrades the release after each.

use std::collections::BTreeSet;
use std::path::Path;

use crate::docs::root;
use crate::printed_list::{PRINTED, Treatment};

/// Crates of the program, and the folders of the chart and of scripts whose texts are printed.
const FOLDERS: [&str; 10] = [
    "src",
    "certs/src",
    "cli/src",
    "controller/src",
    "crds/src",
    "objects/src",
    "runtime/src",
    "webhook/src",
    "webhook/rules/src",
    "charts/workload-variant-autoscaler/templates",
];
/// Commands of kubectl, Helm and oc that change objects.
const CHANGES: [&str; 16] = [
    "adm", "annotate", "apply", "create", "delete", "edit", "install", "label", "patch", "replace",
    "restart", "rollback", "scale", "set", "uninstall", "upgrade",
];

#[test]
fn printed_commands_that_change_objects_are_listed() {
    let printed = printed_commands();
    let listed: BTreeSet<String> = PRINTED.iter().map(|row| row.text.to_owned()).collect();
    let missing: Vec<_> = printed.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&printed).collect();
    assert!(missing.is_empty(), "add them to tests/fixtures/printed_commands.rs:\n{missing:#?}");
    assert!(gone.is_empty(), "nothing prints them any longer:\n{gone:#?}");
    assert_eq!(listed.len(), PRINTED.len(), "a command is listed twice");
}

#[test]
fn listed_commands_are_run_or_say_why_not() {
    for row in PRINTED {
        match row.treatment {
            Treatment::Apart(reason) => assert!(reason.len() > 20, "{}: {reason}", row.text),
            Treatment::Runs(names) => {
                let unused = names.iter().find(|(placeholder, _)| !row.text.contains(placeholder));
                assert!(unused.is_none(), "{}: {unused:?}", row.text);
                let script = row.script(names);
                assert!(!script.contains('{') || script.contains("{\""), "{script} has a placeholder");
            }
        }
    }
}

#[test]
fn commands_are_found_in_texts() {
    let text = r#"// kubectl delete -f x
        let name = '"'; f("a: kubectl  label va {} --overwrite x=y; or kubectl edit", 'a');
        g("run `wva crd | kubectl apply \
           -f -`, then kubectl get va -A", r"helm upgrade x y, z");
        #[cfg(test)] mod tests { fn t() { h("kubectl delete ns x"); } }"#;
    let found: Vec<String> = literals(text).iter().flat_map(|text| commands(text)).collect();
    assert_eq!(
        found,
        ["kubectl label va {} --overwrite x=y", "wva crd | kubectl apply -f -", "helm upgrade x y"]
    );
}

fn printed_commands() -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    for folder in FOLDERS {
        collect(&root().join(folder), &mut out);
    }
    out
}

fn collect(folder: &Path, out: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.file_stem().is_some_and(|stem| stem == "tests") {
            continue;
        }
        if path.is_dir() {
            collect(&path, out);
            continue;
        }
        let read = || std::fs::read_to_string(&path).unwrap();
        let texts = match path.extension().and_then(|extension| extension.to_str()) {
            Some("rs") => literals(&read()),
            Some("txt" | "tpl") => without_actions(&read()),
            _ => Vec::new(),
        };
        out.extend(texts.iter().flat_map(|text| commands(text)));
    }
}

/// String literals of Rust source, without those of a module `tests`.
fn literals(source: &str) -> Vec<String> {
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

/// Lines and quoted texts of a template; actions become `{}`.
fn without_actions(template: &str) -> Vec<String> {
    let mut out = Vec::new();
    for line in template.lines() {
        let mut text = String::new();
        let mut rest = line;
        while let Some((before, action)) = rest.split_once("{{") {
            let (action, after) = action.split_once("}}").unwrap_or((action, ""));
            text.extend([before, "{}"]);
            out.extend(action.split('"').skip(1).step_by(2).map(|quoted| quoted.replace("%s", "{}")));
            rest = after;
        }
        out.push(text + rest);
    }
    out
}

/// Commands of a text that change objects, with one space between words.
fn commands(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(at) = find_program(rest) {
        let from = &rest[at..];
        let ends = ["\n", "`", "; ", ", ", " (", ". ", " || "];
        let end = ends.iter().filter_map(|end| from.find(end)).min();
        let (command, after) = from.split_at(end.unwrap_or(from.len()));
        let words: Vec<&str> =
            command.trim_end_matches(['.', ';', ',', ')', ':']).split_whitespace().collect();
        let is_one = words.len() > 2 && changes(&words);
        rest = if is_one { after } else { &from[words.first().map_or(1, |word| word.len())..] };
        out.extend(is_one.then(|| words.join(" ")));
    }
    out
}

fn find_program(text: &str) -> Option<usize> {
    let starts = |at: &usize| {
        let is_first = !text[..*at].ends_with(|c: char| c.is_alphanumeric() || "-_./{".contains(c));
        is_first && ["kubectl ", "helm ", "oc ", "wva "].iter().any(|name| text[*at..].starts_with(name))
    };
    text.char_indices().map(|(at, _)| at).find(starts)
}

/// The verb follows the program, or its flag `-n NAMESPACE`, or `rollout`. Of wva only what is piped into kubectl changes
/// objects.
fn changes(words: &[&str]) -> bool {
    words.split(|word| *word == "|" || *word == "&&").any(|part| {
        let mut words = part.iter().copied();
        let is_program = words.next().is_some_and(|word| ["kubectl", "helm", "oc"].contains(&word));
        let mut verb = words.next();
        while let Some("-n" | "rollout") = verb {
            verb = if verb == Some("-n") { words.nth(1) } else { words.next() };
        }
        is_program && verb.is_some_and(|verb| CHANGES.contains(&verb))
    })
}
