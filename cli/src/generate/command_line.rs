//! Command line of a container, as its process receives it: Kubernetes and the shell expand variables, and a script of
//! `sh -c` becomes words.

use std::collections::BTreeMap;

use wva_objects::pod::Container;
use wva_objects::split_shell_words;

const SHELLS: [&str; 5] = ["sh", "bash", "dash", "ash", "zsh"];

/// Environment of a container. `None`: the template does not have the value.
pub(super) type Variables = BTreeMap<String, Option<String>>;

/// Value of the reference at the start of a text after a `$`, and the rest of the text.
type Lookup = for<'a> fn(&'a str, &'a Variables) -> Option<(&'a str, &'a str)>;

pub(super) fn variables(container: &Container) -> Variables {
    let mut all = Variables::new();
    for variable in container.env.iter().flatten() {
        let text = variable.value.as_deref().unwrap_or_default();
        let value = variable.value_from.is_none().then(|| expand(text, &all, find_reference));
        all.insert(variable.name.clone(), value);
    }
    all
}

pub(super) fn command_line(container: &Container, variables: &Variables) -> Vec<String> {
    let words = container.command.iter().chain(&container.args).flatten();
    let words: Vec<String> = words.map(|word| expand(word, variables, find_reference)).collect();
    match find_script(&words) {
        Some(script) => script_words(script, variables),
        None => words,
    }
}

/// Values of the last occurrence of a flag, in any spelling: `--a-b v`, `--a_b=v`, `-a v`.
pub(super) fn flag_values<'a>(words: &'a [String], names: &[&str]) -> Vec<&'a str> {
    let is_named = |word: &String| flag_name(word).is_some_and(|name| names.contains(&name.as_str()));
    let Some(at) = words.iter().rposition(is_named) else { return Vec::new() };
    if let Some((_, value)) = words[at].split_once('=') {
        return vec![value];
    }
    words[at + 1..].iter().map(String::as_str).take_while(|word| !word.starts_with('-')).collect()
}

pub(super) fn flag_value<'a>(words: &'a [String], names: &[&str]) -> Option<&'a str> {
    flag_values(words, names).first().copied().filter(|value| !value.is_empty())
}

pub(super) fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn flag_name(word: &str) -> Option<String> {
    let flag = word.strip_prefix("--").or_else(|| word.strip_prefix('-'))?;
    Some(flag.split('=').next().unwrap_or_default().replace('_', "-"))
}

/// `SCRIPT` of `sh -c SCRIPT`.
fn find_script(words: &[String]) -> Option<&str> {
    words.first().filter(|shell| SHELLS.contains(&base_name(shell)))?;
    let is_option = |word: &String| word.starts_with('-') && !word.starts_with("--") && word.ends_with('c');
    let option = words.iter().position(is_option)?;
    words.get(option + 1).map(String::as_str)
}

fn script_words(script: &str, variables: &Variables) -> Vec<String> {
    let mut variables = variables.clone();
    for word in split_shell_words(script) {
        if let Some((name, value)) = word.split_once('=').filter(|(name, _)| is_variable_name(name)) {
            let value = expand(value, &variables, find_shell_reference);
            variables.insert(name.to_owned(), Some(value));
        }
    }
    let mut words: Vec<String> = Vec::new();
    for word in split_shell_words(&expand(script, &variables, find_shell_reference)) {
        // The argument of `eval` and of a nested `sh -c` is a script.
        if words.last().is_some_and(|before| before == "eval" || before == "-c") {
            words.extend(split_shell_words(&word));
        } else {
            words.push(word);
        }
    }
    words
}

fn is_variable_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// A reference without a known value stays.
fn expand(text: &str, variables: &Variables, lookup: Lookup) -> String {
    let (mut expanded, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once('$') {
        expanded.push_str(before);
        let (value, after) = lookup(after, variables).unwrap_or(("$", after));
        expanded.push_str(value);
        rest = after;
    }
    expanded.push_str(rest);
    expanded
}

/// `$(NAME)` of Kubernetes; `$$` stands for a dollar sign.
fn find_reference<'a>(text: &'a str, variables: &'a Variables) -> Option<(&'a str, &'a str)> {
    if let Some(after) = text.strip_prefix('$') {
        return Some(("$", after));
    }
    let (name, after) = text.strip_prefix('(')?.split_once(')')?;
    Some((variables.get(name)?.as_deref()?, after))
}

/// `$NAME`, `${NAME}` and `${NAME:-default}`.
fn find_shell_reference<'a>(text: &'a str, variables: &'a Variables) -> Option<(&'a str, &'a str)> {
    let Some(braced) = text.strip_prefix('{') else {
        let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
        let (name, after) = text.split_at(end);
        return Some((variables.get(name)?.as_deref()?, after));
    };
    let (reference, after) = braced.split_once('}')?;
    let (name, default) = reference.split_once(":-").map_or((reference, None), |(n, d)| (n, Some(d)));
    let value = match variables.get(name) {
        Some(None) => None,
        Some(Some(value)) if !value.is_empty() || default.is_none() => Some(value.as_str()),
        Some(Some(_)) | None => default,
    };
    Some((value?, after))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(container: &serde_json::Value, want: &[&str]) {
        let container: Container = serde_json::from_value(container.clone()).unwrap();
        assert_eq!(command_line(&container, &variables(&container)), want);
    }

    #[test]
    fn expands_references_like_kubernetes() {
        let env = json!([{"name": "A", "value": "a"}, {"name": "B", "value": "$(A)b"},
            {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]);
        check(
            &json!({"name": "c", "command": ["$(B)"], "args": ["$$(A)", "$(NONE)", "$(S)", "x$", "$A"], "env": env}),
            &["ab", "$(A)", "$(NONE)", "$(S)", "x$", "$A"],
        );
    }

    #[test]
    fn splits_scripts_and_expands_their_variables() {
        let shell = |script: &str| {
            json!({"name": "c", "command": ["/bin/bash", "-ec"], "args": [script],
                "env": [{"name": "M", "value": "org/m"}, {"name": "EMPTY", "value": ""}]})
        };
        check(&shell("exec vllm serve $M --port 1"), &["exec", "vllm", "serve", "org/m", "--port", "1"]);
        check(&shell("N=n; vllm serve \"${M}-$N\""), &["N=n", "vllm", "serve", "org/m-n"]);
        check(&shell("vllm serve ${EMPTY:-a} ${X:-b} ${Y}"), &["vllm", "serve", "a", "b", "${Y}"]);
        check(
            &shell("eval \"vllm serve \\\n  $M --port 1\""),
            &["eval", "vllm", "serve", "org/m", "--port", "1"],
        );
        check(&json!({"name": "c", "command": ["sh", "run.sh", "a b"]}), &["sh", "run.sh", "a b"]);
    }

    #[test]
    fn finds_flags_in_every_spelling() {
        let words = ["--a_b=1", "--a-b", "2", "3", "-tp", "4", "--c="].map(str::to_owned);
        assert_eq!(flag_values(&words, &["a-b"]), ["2", "3"]);
        assert_eq!(flag_value(&words, &["tensor-parallel-size", "tp"]), Some("4"));
        assert_eq!((flag_value(&words, &["c"]), flag_value(&words, &["d"])), (None, None));
    }
}
