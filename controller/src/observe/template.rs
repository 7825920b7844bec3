//! Facts from pod templates.

use k8s_openapi::api::core::v1::{Container, NodeSelectorTerm, PodSpec};
use wva_scaling::servers::ServerKind;
use wva_scaling::{NodeRequirement, derive_accelerator, engine_arguments};

use crate::model::gpus::Gpus;
use crate::observe::metrics_ports::{MetricsPort, metrics_ports};

/// A server has some hundreds of bytes; a script can have any number.
const MAX_ARGUMENT_BYTES: usize = 16 * 1024;
/// No process argument can contain it.
const SEPARATOR: char = '\0';
/// Selects vLLM's engine.
const ENGINE_SWITCH: &str = "VLLM_USE_V1";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Template {
    pub(crate) accelerator: Option<Box<str>>,
    pub(crate) gpus: u32,
    /// Pods of an older template may have others.
    pub(crate) metrics_ports: Box<[MetricsPort]>,
    /// One string saves memory.
    arguments: Option<Box<str>>,
}

impl Template {
    pub(crate) fn new(pod: &PodSpec) -> Self {
        let gpus = Gpus::for_template(pod);
        let serves = gpus > 0 || pod.containers.iter().any(may_serve);
        let arguments = if serves { find_server(&pod.containers).and_then(arguments) } else { None };
        let (accelerator, ports) = (required_accelerator(pod), metrics_ports(&pod.containers));
        Self { accelerator: accelerator.map(Into::into), gpus, metrics_ports: ports.into(), arguments }
    }

    /// That affect capacity. Empty for a template without GPUs that does not look like a model server.
    pub(crate) fn engine_args(&self) -> Vec<String> {
        self.arguments.iter().flat_map(|all| all.split(SEPARATOR)).map(str::to_owned).collect()
    }
}

/// The first container that names a model server, else the first.
pub(crate) fn find_server(containers: &[Container]) -> Option<&Container> {
    server_containers(containers).next().or_else(|| containers.first())
}

/// Containers whose command line names a model server.
pub(crate) fn server_containers(containers: &[Container]) -> impl Iterator<Item = &Container> {
    containers.iter().filter(|c| command_line(c).any(names_server))
}

/// By its command line, else by its image.
pub(crate) fn server_kind(container: &Container) -> ServerKind {
    let mut words = command_line(container).chain(container.image.as_deref());
    words.find_map(ServerKind::named_in).unwrap_or_default()
}

pub(crate) fn command_line(container: &Container) -> impl Iterator<Item = &str> {
    container.command.iter().chain(&container.args).flatten().map(String::as_str)
}

fn names_server(text: &str) -> bool {
    ServerKind::named_in(text).is_some()
}

/// It may request no GPUs: emulations and CPU builds do not.
fn may_serve(container: &Container) -> bool {
    let model = |word: &str| word.starts_with("--model") || word.starts_with("--served-model-name");
    container.image.as_deref().is_some_and(names_server)
        || command_line(container).any(|w| names_server(w) || model(w))
}

/// From the first [`MAX_ARGUMENT_BYTES`] of whole words.
fn arguments(container: &Container) -> Option<Box<str>> {
    let switch = container.env.iter().flatten().find(|e| e.name == ENGINE_SWITCH);
    let switch = switch.and_then(|e| e.value.as_ref()).map(|value| format!("{ENGINE_SWITCH}={value}"));
    let mut room = MAX_ARGUMENT_BYTES;
    let fits = |word: &&str| {
        room = room.saturating_sub(word.len() + 1);
        room > 0
    };
    let read: Vec<String> =
        command_line(container).take_while(fits).map(str::to_owned).chain(switch).collect();
    let used = engine_arguments(&read);
    (!used.is_empty()).then(|| used.join(&SEPARATOR.to_string()).into())
}

/// Accelerator by node selector, else by required node affinity.
#[must_use]
pub fn required_accelerator(pod: &PodSpec) -> Option<String> {
    let selector = pod.node_selector.iter().flatten();
    let selector: Vec<NodeRequirement> =
        selector.map(|(label, value)| NodeRequirement { label, values: vec![value] }).collect();
    derive_accelerator(&[selector]).or_else(|| {
        let affinity = pod.affinity.as_ref()?.node_affinity.as_ref()?;
        let terms =
            &affinity.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms;
        // A term without expressions or fields matches no node.
        let any = |term: &&NodeSelectorTerm| term.match_expressions.is_some() || term.match_fields.is_some();
        derive_accelerator(&terms.iter().filter(any).map(node_requirements).collect::<Vec<_>>())
    })
}

fn node_requirements(term: &NodeSelectorTerm) -> Vec<NodeRequirement<'_>> {
    let listed = term.match_expressions.iter().flatten().filter(|e| e.operator == "In");
    listed
        .map(|e| NodeRequirement {
            label: &e.key,
            values: e.values.iter().flatten().map(String::as_str).collect(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "tests hand it over as they write it")]
    fn template(pod: Value) -> Template {
        let mut spec = json!({"containers": [{"name": "vllm", "image": "vllm/vllm-openai"}]});
        for (key, value) in pod.as_object().unwrap() {
            spec[key] = value.clone();
        }
        Template::new(&serde_json::from_value(spec).unwrap())
    }

    #[expect(clippy::needless_pass_by_value, reason = "tests hand it over as they write it")]
    fn args(containers: Value) -> Vec<String> {
        template(json!({"containers": containers})).engine_args()
    }

    #[test]
    fn server_is_container_that_names_vllm_else_first() {
        let proxy = json!({"name": "proxy", "image": "envoy", "args": ["--listen", ":80"]});
        let server = json!({"name": "s", "image": "own", "command": ["vllm", "serve", "m"], "args": ["--max-num-seqs=64"]});
        let want = ["--max-num-seqs=64"];
        assert_eq!(args(json!([proxy, server])), want);
        assert_eq!(args(json!([server, proxy])), want);
        let shell = json!({"name": "s", "image": "own",
            "command": ["sh", "-c", "exec python -m VLLM.entrypoints --api-key secret --max-num-seqs 32"]});
        assert_eq!(args(json!([proxy, shell])), ["--max-num-seqs=32"]);
        // Only the image names vLLM: the first container counts.
        let image = json!({"name": "s", "image": "vllm/vllm-openai", "args": ["--max-model-len", "4096"]});
        assert_eq!(args(json!([image, proxy])), ["--max-model-len=4096"]);
    }

    #[test]
    fn reads_engine_switch_from_environment() {
        let container = |value: &Value| json!([{"name": "s", "image": "vllm", "args": ["m"], "env": [{"name": "A", "value": "b"}, value]}]);
        assert_eq!(args(container(&json!({"name": "VLLM_USE_V1", "value": "0"}))), ["VLLM_USE_V1=0"]);
        let from = json!({"name": "VLLM_USE_V1", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}});
        assert_eq!(args(container(&from)), [""; 0], "the value is not in the template");
    }

    #[test]
    fn keeps_arguments_of_model_servers_only() {
        let web = json!({"name": "web", "image": "nginx", "args": ["--block-size", "4"]});
        assert_eq!(args(json!([web])), Vec::<String>::new());
        let mut on_gpus = web.clone();
        on_gpus["resources"] = json!({"limits": {"nvidia.com/gpu": "1"}});
        assert_eq!(args(json!([on_gpus])), ["--block-size=4"]);
        let emulated =
            json!({"name": "sim", "image": "inference-sim", "args": ["--model=m", "--max-num-seqs=5"]});
        assert_eq!(args(json!([emulated])), ["--max-num-seqs=5"]);
    }

    #[test]
    fn bounds_argument_bytes() {
        let container = json!([{"name": "s", "image": "vllm", "command": ["sh", "-c", "x".repeat(20_000)],
            "args": ["--max-num-seqs=5"], "env": [{"name": "VLLM_USE_V1", "value": "0"}]}]);
        assert_eq!(args(container), ["VLLM_USE_V1=0"]);
    }

    #[test]
    fn derives_accelerator_from_selector_or_affinity() {
        let term = |value: &str| {
            json!({"matchExpressions": [
            {"key": "nvidia.com/gpu.product", "operator": "In", "values": [value]}]})
        };
        let affinity = |terms: serde_json::Value| {
            json!({"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
        };
        let selector = json!({"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}});
        let not = json!({"matchExpressions": [
            {"key": "nvidia.com/gpu.product", "operator": "NotIn", "values": ["NVIDIA-L4"]}]});
        for (pod, want) in [
            (selector, Some("H100")),
            (affinity(json!([term("NVIDIA-L40S"), {}])), Some("L40S")),
            (affinity(json!([term("NVIDIA-L40S"), term("NVIDIA-L4")])), None),
            (affinity(json!([not])), None),
            (
                json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "preference": term("NVIDIA-L4")}]}}}),
                None,
            ),
            (json!({}), None),
        ] {
            assert_eq!(template(pod.clone()).accelerator.as_deref(), want, "{pod}");
        }
    }
}
