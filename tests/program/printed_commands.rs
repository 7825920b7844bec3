//! Commands that wva prints, in messages, refusals, help, pages of rules and notes of the chart. The list of those that
//! change objects is complete: `tests/e2e/install/commands.rs` runs them, and upgrades the release after each.

use std::collections::BTreeSet;

use crate::literals::{files, literals, of_sources};
use crate::printed_list::{PRINTED, Treatment};

/// Crates of the program.
const FOLDERS: [&str; 9] = [
    "src", "certs/src", "cli/src", "controller/src", "crds/src", "objects/src", "runtime/src", "webhook/src",
    "webhook/rules/src",
];
/// The texts of the chart are printed too.
const TEMPLATES: &str = "charts/workload-variant-autoscaler/templates";
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
    let mut texts = of_sources(&FOLDERS);
    let policies = include_str!("../../charts/workload-variant-autoscaler/files/admission-policy.yaml");
    for (path, content) in files(&[TEMPLATES]) {
        if path.extension().is_some_and(|extension| extension == "txt" || extension == "tpl") {
            texts.extend(without_actions(&content));
        }
    }
    // Texts of the admission policies are literals of CEL.
    texts.extend(policies.split('\'').map(str::to_owned));
    texts.iter().flat_map(|text| commands(text)).collect()
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
