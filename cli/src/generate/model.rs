//! Name of the served model, as vLLM reports it in the metric label `model_name`.

use wva_crds::text::quote;

use super::command_line::{base_name, flag_value, flag_values};
use super::guess::Guess;
use super::server::{MODEL_VARIABLES, Server};
use super::workload::Workload;

/// Pod labels with a name of the model, of the charts of llm-d and of this project's examples.
const LABELS: [&str; 2] = ["llm-d.ai/model", "model"];
/// First words of flags of `vllm serve` that take no value.
const SWITCHES: [&str; 7] =
    ["--enable-", "--disable-", "--no-", "--enforce-eager", "--trust-remote-code", "--headless", "--async-"];

struct Candidate {
    /// `None`: the template does not have the value.
    value: Option<String>,
    source: String,
    note: Option<String>,
}

/// Model and notes about it.
///
/// # Errors
/// No place has a name. The text lists the places.
pub(super) fn find_model(
    workload: &Workload,
    server: Option<&Server<'_>>,
) -> Result<(Guess, Vec<String>), String> {
    let mut candidates = server.map(flag_candidates).unwrap_or_default();
    // vLLM reports this name and no other one, so no later place can replace it.
    if let Some(Candidate { value, source, .. }) = candidates.first()
        && value.as_deref().is_none_or(has_variable)
    {
        return Err(not_found(server, std::slice::from_ref(source)));
    }
    if let Some((name, field)) = &workload.declared_model {
        candidates.push(Candidate::new(name, field.clone()));
    }
    candidates.extend(server.map(model_candidates).unwrap_or_default());
    candidates.extend(label_candidates(workload));
    let mut unresolved = Vec::new();
    for Candidate { value, source, note } in candidates {
        match value.filter(|value| !has_variable(value)) {
            Some(value) => return Ok((Guess::new(value, source), note.into_iter().collect())),
            None => unresolved.push(source),
        }
    }
    Err(not_found(server, &unresolved))
}

impl Candidate {
    fn new(value: &str, source: impl Into<String>) -> Self {
        Self { value: Some(value.to_owned()), source: source.into(), note: None }
    }
}

/// The names of requests, of which vLLM reports the first.
fn flag_candidates(server: &Server<'_>) -> Vec<Candidate> {
    let mut candidates = Vec::new();
    // `--model-name` belongs to KServe's server.
    for flag in ["served-model-name", "model-name"] {
        let names = flag_values(&server.words, &[flag]);
        if let Some((first, others)) = names.split_first().filter(|(first, _)| !first.is_empty()) {
            let mut candidate = Candidate::new(first, source_of_flag(server, flag));
            let others: Vec<&str> = others.iter().copied().filter(|name| !has_variable(name)).collect();
            if flag == "served-model-name" && !others.is_empty() {
                candidate.note = Some(format!(
                    "the model is also served as {}; vLLM reports the first name in its metrics",
                    others.join(", ")
                ));
            }
            candidates.push(candidate);
        }
    }
    candidates
}

fn model_candidates(server: &Server<'_>) -> Vec<Candidate> {
    let mut candidates = Vec::new();
    for flag in ["model", "model-path", "model-id"] {
        if let Some(value) = flag_value(&server.words, &[flag]) {
            candidates.push(Candidate::new(value, source_of_flag(server, flag)));
        }
    }
    let container = &server.container.name;
    if let Some(value) = positional_model(server) {
        candidates.push(Candidate::new(value, format!("from `vllm serve` in container {container}")));
    }
    for name in MODEL_VARIABLES {
        if let Some(value) = server.variables.get(name).filter(|value| value.as_deref() != Some("")) {
            let source = format!("from the environment variable {name} of container {container}");
            candidates.push(Candidate { value: value.clone(), source, note: None });
        }
    }
    for candidate in &mut candidates {
        if candidate.value.as_deref().is_some_and(|value| value.starts_with(['/', '.'])) {
            let note = "the model is a path, which the server reports as its name; --served-model-name gives it another one";
            candidate.note = Some(note.to_owned());
        }
    }
    candidates
}

fn source_of_flag(server: &Server<'_>, flag: &str) -> String {
    format!("from --{flag} of container {}", server.container.name)
}

/// `MODEL` of `vllm serve MODEL`, or of the arguments alone: the image runs `vllm serve`.
fn positional_model<'a>(server: &'a Server<'_>) -> Option<&'a str> {
    let words = &server.words;
    let is_serve = |pair: &[String]| pair[1] == "serve" && base_name(&pair[0]) == "vllm";
    let has_command = server.container.command.as_ref().is_some_and(|command| !command.is_empty());
    let begin = match words.windows(2).position(is_serve) {
        Some(at) => at + 2,
        None if !has_command && server.container.image.as_deref()?.contains("vllm") => {
            usize::from(words.first().is_some_and(|word| word == "serve"))
        }
        None => return None,
    };
    let mut takes_value = false;
    for word in &words[begin..] {
        if word.starts_with('-') {
            takes_value = !word.contains('=') && !SWITCHES.iter().any(|switch| word.starts_with(switch));
        } else if takes_value {
            takes_value = false;
        } else {
            return Some(word);
        }
    }
    None
}

fn label_candidates(workload: &Workload) -> impl Iterator<Item = Candidate> {
    LABELS.into_iter().filter_map(|key| {
        let value = workload.label(key).filter(|value| !value.is_empty())?;
        let source = format!("guess from the label {key}, which cannot have the slash of a model name");
        Some(Candidate::new(value, source))
    })
}

/// Reference that neither Kubernetes nor the template resolves. No model name has one.
fn has_variable(value: &str) -> bool {
    value.contains('$') || value.contains("{{")
}

fn not_found(server: Option<&Server<'_>>, unresolved: &[String]) -> String {
    let place = match server {
        Some(server) => format!(
            "container {} has no --served-model-name, --model or `vllm serve MODEL`, and no variable {}",
            quote(&server.container.name),
            MODEL_VARIABLES.join(", ")
        ),
        None => "no container serves a model".to_owned(),
    };
    let unknown = if unresolved.is_empty() {
        String::new()
    } else {
        format!("; the template does not have the value {}", unresolved.join(", nor "))
    };
    format!(
        "no model found: {place}{unknown}; the pods have no label {}; set --model-id",
        LABELS.join(" or ")
    )
}
