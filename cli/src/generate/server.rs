//! The container of a pod that serves the model.

use wva_objects::hardware::Gpus;
use wva_objects::pod::{Container, PodSpec};

use super::command_line::{Variables, base_name, command_line, flag_value, variables};

/// Images of model servers whose command line may not name the server.
const IMAGES: [&str; 4] = ["vllm", "huggingfaceserver", "llm-d-inference-sim", "sglang"];
/// Flags that name a model: of vLLM, of SGLang, of KServe's server and of others.
const MODEL_FLAGS: [&str; 5] = ["model", "served-model-name", "model-path", "model-name", "model-id"];
/// Variables that name a model, the name in requests first. Start scripts read them; vLLM does not.
pub(super) const MODEL_VARIABLES: [&str; 6] =
    ["SERVED_MODEL_NAME", "MODEL", "MODEL_ID", "VLLM_MODEL", "HF_MODEL_ID", "MODEL_NAME"];

pub(super) struct Server<'a> {
    pub(super) container: &'a Container,
    pub(super) variables: Variables,
    pub(super) words: Vec<String>,
    /// Names of other containers that seem to serve a model.
    pub(super) others: Vec<&'a str>,
}

/// Why a container seems to serve a model, the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Evidence {
    Command,
    Image,
    Flag,
    /// A container with GPUs; a client of a model server may have the same variable.
    Variable,
}

impl<'a> Server<'a> {
    pub(super) fn find(pod: &'a PodSpec) -> Option<Self> {
        let mut all: Vec<(Evidence, Self)> = pod.containers.iter().filter_map(Self::examine).collect();
        all.sort_by_key(|(evidence, _)| *evidence);
        let others = all.iter().skip(1).filter(|(evidence, _)| *evidence != Evidence::Variable);
        let others = others.map(|(_, server)| server.container.name.as_str()).collect();
        let (_, first) = all.into_iter().next()?;
        Some(Self { others, ..first })
    }

    fn examine(container: &'a Container) -> Option<(Evidence, Self)> {
        let variables = variables(container);
        let words = command_line(container, &variables);
        let image = container.image.as_deref().unwrap_or_default().to_ascii_lowercase();
        let evidence = if words.iter().any(|word| runs_vllm(word) || runs_sglang(word)) {
            Evidence::Command
        } else if IMAGES.iter().any(|name| image.contains(name)) {
            Evidence::Image
        } else if flag_value(&words, &MODEL_FLAGS).is_some() {
            Evidence::Flag
        } else if Gpus::for_container(container).total() > 0
            && MODEL_VARIABLES.iter().any(|name| variables.contains_key(*name))
        {
            Evidence::Variable
        } else {
            return None;
        };
        Some((evidence, Self { container, variables, words, others: Vec::new() }))
    }
}

pub(super) fn runs_sglang(word: &str) -> bool {
    base_name(word) == "sglang" || word.starts_with("sglang.launch_server")
}

/// Whether a word runs vLLM. An argument such as `--vllm-port=8200` of a proxy does not.
fn runs_vllm(word: &str) -> bool {
    base_name(word) == "vllm" || word.starts_with("vllm.entrypoints")
}
