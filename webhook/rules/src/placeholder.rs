//! Placeholders of Kustomize, Flux, Helm, Argo CD and shells that were not replaced. Such a name is valid text, so the
//! object is admitted and its metrics are never found.

use std::ops::Range;

use crate::findings::Findings;
use crate::maps::WARN as WARN_MAP;
use crate::maps::facts::MapFacts;
use crate::maps::main_map::entry_field;
use crate::rule::{Check, Rule, WARN};
use crate::strings::{entry_strings, main_map_values, variant_strings};
use crate::text::quote;

const MESSAGE: &str = "{found} looks like a placeholder that nothing replaced; render the manifest first";

pub(crate) const VARIANT: Rule = Rule {
    code: "WVA-VA-066",
    field: "spec.modelID",
    message: MESSAGE,
    docs: "A text of the object, such as `spec.modelID`, contains `${...}`, `$(...)`, `{{ ... }}`, `#{...}`, `<...>` or `$NAME`. \
           No model has such a name, so wva finds no metrics. Render the manifest first, or check the substitution of Flux, \
           Kustomize, Helm or Argo CD.",
    check: Check::Variant(|facts, out| {
        for (field, text) in variant_strings(facts) {
            if let Some(found) = find_placeholder(text) {
                out.add_at(field, quote(found), "");
            }
        }
    }),
    ..WARN
};

pub(crate) const MAP: Rule = Rule {
    code: "WVA-CM-067",
    message: MESSAGE,
    docs: "A value of a ConfigMap, such as `model_id` of an entry or `PROMETHEUS_BASE_URL` of the main map, contains `${...}`, \
           `$(...)`, `{{ ... }}`, `#{...}`, `<...>` or `$NAME`. Render the manifest first, or check the substitution of Flux, \
           Kustomize, Helm or Argo CD.",
    check: Check::ConfigMap(|facts, out| {
        report_entries(facts, out);
        report_main_map(facts, out);
    }),
    ..WARN_MAP
};

fn report_entries(facts: &MapFacts<'_>, out: &mut Findings) {
    let entries = facts.has_entries().then(|| &facts.entries().all);
    for entry in entries.into_iter().flatten() {
        for (field, text) in entry_strings(entry) {
            if let Some(found) = find_placeholder(text) {
                out.add_at(field, quote(found), "");
            }
        }
        // `model_id: {{ .Values.model }}` is not YAML.
        let unread = facts.data().and_then(|data| data.get(&entry.key)?.as_str());
        let lines = unread.filter(|_| entry.value().is_none()).into_iter().flat_map(str::lines);
        let mut lines = lines.filter(|line| !line.trim_start().starts_with('#'));
        if let Some(found) = lines.find_map(find_placeholder) {
            out.add_at(entry_field(&entry.key), quote(found), "");
        }
    }
}

fn report_main_map(facts: &MapFacts<'_>, out: &mut Findings) {
    for (field, setting, text) in main_map_values(facts) {
        // An unknown key may be a misspelt secret.
        let Some(setting) = setting else { continue };
        if setting.secret {
            // It may contain such characters, but does not consist of them.
            if find_placeholder(text) == Some(text) {
                out.add_at(field, "the secret", "");
            }
        } else if let Some(found) = find_placeholder(&setting.redact(text)) {
            out.add_at(field, quote(found), "");
        }
    }
}

/// Begin and end of placeholders, whose name has no line break.
const PAIRS: [(&str, &str); 5] = [("${", "}"), ("$(", ")"), ("{{", "}}"), ("#{", "}"), ("<", ">")];

/// First placeholder of a text.
pub(crate) fn find_placeholder(text: &str) -> Option<&str> {
    let pairs = PAIRS.into_iter().filter_map(|(begin, end)| find_pair(text, begin, end));
    let first = pairs.chain(find_variable(text)).min_by_key(|found| found.start)?;
    text.get(first)
}

fn find_pair(text: &str, begin: &str, end: &str) -> Option<Range<usize>> {
    text.match_indices(begin).find_map(|(start, _)| {
        let inside = &text[start + begin.len()..];
        let length = inside.find(end)?;
        let is_named = match begin {
            // `<path:secret/data/models#qwen>`, `<MODEL_ID>`; a comparison has digits or more than one side.
            "<" => is_argo_name(&inside[..length]),
            _ => !inside[..length].trim().is_empty() && !inside[..length].contains('\n'),
        };
        is_named.then(|| start..start + begin.len() + length + end.len())
    })
}

fn is_argo_name(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_-.:/#@| ".contains(c);
    name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(is_part)
}

/// `$MODEL_ID` in capitals, or as the whole text. `a$b` may be meant.
fn find_variable(text: &str) -> Option<Range<usize>> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices('$').find_map(|(start, _)| {
        let rest = &text[start + 1..];
        let name = &rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())];
        let is_variable = name.len() > 1 && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        let is_whole = start == 0 && name.len() == rest.len();
        let is_capital =
            !name.contains(|c: char| c.is_ascii_lowercase()) && !text[..start].ends_with(is_name);
        (is_variable && (is_whole || is_capital)).then(|| start..start + 1 + name.len())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_placeholders_of_common_tools() {
        for (text, want) in [
            ("${MODEL_ID}", "${MODEL_ID}"),
            ("${NAME:=qwen}", "${NAME:=qwen}"),
            ("org/${model}-fp8", "${model}"),
            ("$(MODEL_ID)", "$(MODEL_ID)"),
            ("{{ .Values.modelID }}", "{{ .Values.modelID }}"),
            ("{{.Values.org}}/{{.Values.model}}", "{{.Values.org}}"),
            ("${{ inputs.model }}", "${{ inputs.model }"),
            ("#{Model}#", "#{Model}"),
            ("<path:secret/data/models#qwen>", "<path:secret/data/models#qwen>"),
            (
                "<path:secret/data/models#qwen | base64decode>",
                "<path:secret/data/models#qwen | base64decode>",
            ),
            ("<MODEL_ID>", "<MODEL_ID>"),
            ("https://<prometheus>:9090", "<prometheus>"),
            ("$MODEL_ID", "$MODEL_ID"),
            ("$ORG/$MODEL", "$ORG"),
            ("$model", "$model"),
        ] {
            assert_eq!(find_placeholder(text), Some(want), "{text}");
        }
    }

    #[test]
    fn accepts_names_and_values_that_are_meant() {
        for text in [
            "", "meta-llama/Llama-3.1-8B-Instruct", "qwen/qwen3-8b", "/models/llama", "s3://bucket/model@v1",
            "Qwen/Qwen2.5-7B-Instruct:lora-1", "hf.co/org/model+int4", "模型/qwen", "a b",
            "openai/gpt-oss-120b", "gs://b/m?generation=1", "model#main", "a$b", "cost$", "$5", "$$", "$",
            "${}", "$()", "{{}}", "{a}", "{\"a\": {\"b\": 1}}", "a<b", "a<3,b>2", "a > b < c", "<>",
            "namespace=~\"a|b$\"", "zone in (a, b)", "https://prometheus.monitoring.svc:9090", "x{2}",
            "(a)$", "50%",
        ] {
            assert_eq!(find_placeholder(text), None, "{text}");
        }
    }
}
