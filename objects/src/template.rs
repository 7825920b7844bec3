//! Facts from pod templates.

use k8s_openapi::api::core::v1::NodeSelectorTerm;

use crate::engine_args::{ENGINE_RELEASE, engine_arguments};
use crate::hardware::{Gpus, NodeRequirement, derive_accelerator, partition_accelerator};
use crate::metrics_ports::{MetricsPort, metrics_ports};
use crate::pod::{Container, PodSpec};
use crate::replica_template::{ReplicaTemplate, Workers};
use crate::servers::{PodGroup, ServerKind, ServingPods};

/// A server has some hundreds of bytes; a script can have any number.
const MAX_ARGUMENT_BYTES: usize = 16 * 1024;
/// No process argument can contain it.
const SEPARATOR: char = '\0';
/// Selects vLLM's engine.
const ENGINE_SWITCH: &str = "VLLM_USE_V1";

/// What wva reads of a pod template.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Template {
    /// Card that the template requires of the node.
    card: Option<Box<str>>,
    /// Resource of MIG slices or shares of the card, if these are its only GPUs.
    partition: Option<Box<str>>,
    /// Requests of extended resources.
    pub gpus: u32,
    /// Claims that each pod gets.
    pub claims: Box<[TemplateClaim]>,
    /// Ports with metrics. Pods of an older template may have others.
    pub metrics_ports: Box<[MetricsPort]>,
    /// One string saves memory.
    arguments: Option<Box<str>>,
}

/// A ResourceClaimTemplate that a template names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateClaim {
    /// Name of the ResourceClaimTemplate.
    pub template: Box<str>,
    /// Claims of one replica.
    pub count: u32,
}

impl Template {
    /// Reads the pods of a template.
    #[must_use]
    pub fn new(pod: &PodSpec) -> Self {
        let gpus = Gpus::for_pod(pod);
        let serves =
            gpus.total() > 0 || pod.resource_claims.is_some() || pod.containers.iter().any(may_serve);
        let arguments = if serves { find_server(&pod.containers).and_then(arguments) } else { None };
        let claims = pod.resource_claims.iter().flatten();
        let claims = claims.filter_map(|claim| claim.resource_claim_template_name.as_deref());
        Self {
            card: required_card(pod).map(Into::into),
            partition: gpus.partition().map(Into::into),
            gpus: gpus.total(),
            claims: claims.map(|template| TemplateClaim { template: template.into(), count: 1 }).collect(),
            metrics_ports: metrics_ports(&pod.containers).into(),
            arguments,
        }
    }

    /// Reads the pods of a replica: the leader's template, with the GPUs and claims of its workers.
    #[must_use]
    pub fn for_replica(replica: &ReplicaTemplate) -> Self {
        let mut all = Self::new(&replica.leader);
        if let Some(Workers { pod, count }) = &replica.workers {
            all.add_workers(&Self::new(pod), *count);
        }
        all
    }

    /// Accelerator of the pods. `label`: of the VariantAutoscaling. It takes precedence, but a card becomes the part of it that the pods request.
    #[must_use]
    pub fn accelerator(&self, label: Option<&str>) -> Option<String> {
        let card = label.or(self.card.as_deref())?;
        Some(match &self.partition {
            Some(resource) => partition_accelerator(resource, card),
            None => card.to_owned(),
        })
    }

    /// Adds the GPUs of `count` workers to those of a leader.
    fn add_workers(&mut self, worker: &Self, count: u64) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.gpus = self.gpus.saturating_add(worker.gpus.saturating_mul(count));
        let own = std::mem::take(&mut self.claims).into_iter();
        let more = worker.claims.iter().filter(|_| count > 0);
        let more = more.map(|claim| TemplateClaim { count, ..claim.clone() });
        self.claims = own.chain(more).collect();
    }

    /// Arguments of the engine that affect capacity. Empty for a template without GPUs that does not look like a model server.
    #[must_use]
    pub fn engine_args(&self) -> Vec<String> {
        self.arguments.iter().flat_map(|all| all.split(SEPARATOR)).map(str::to_owned).collect()
    }
}

/// The first container whose command line runs a model server, else whose image names one, else the first.
pub(crate) fn find_server(containers: &[Container]) -> Option<&Container> {
    let by_image = || containers.iter().find(|c| c.image.as_deref().is_some_and(names_server));
    server_containers(containers).next().or_else(by_image).or_else(|| containers.first())
}

/// Containers whose command line runs a model server.
pub(crate) fn server_containers(containers: &[Container]) -> impl Iterator<Item = &Container> {
    containers.iter().filter(|c| words(c).any(names_server))
}

/// Server of a container by its command line, else by its image.
pub(crate) fn server_kind(container: &Container) -> ServerKind {
    words(container).chain(container.image.as_deref()).find_map(ServerKind::named_in).unwrap_or_default()
}

/// Pods of a replica. `None`: it is one pod.
#[must_use]
pub fn pod_group(replica: &ReplicaTemplate) -> Option<PodGroup> {
    let Workers { pod, count } = replica.workers.as_ref()?;
    let server = find_server(&pod.containers);
    let serving = server.map(|s| ServingPods::of_worker(server_kind(s), command_line(s))).unwrap_or_default();
    Some(PodGroup { pods: u32::try_from(count.saturating_add(1)).unwrap_or(u32::MAX), serving })
}

/// Command and arguments of a container.
pub fn command_line(container: &Container) -> impl Iterator<Item = &str> {
    container.command.iter().chain(&container.args).flatten().map(String::as_str)
}

/// Words of the command line without flags: `--vllm-port=8200` of a proxy runs no server.
fn words(container: &Container) -> impl Iterator<Item = &str> {
    command_line(container).filter(|word| !word.starts_with('-'))
}

fn names_server(text: &str) -> bool {
    ServerKind::named_in(text).is_some()
}

/// Whether a container may serve a model. It need not request GPUs: emulations and CPU builds do not.
fn may_serve(container: &Container) -> bool {
    let model = |word: &str| word.starts_with("--model") || word.starts_with("--served-model-name");
    words(container).chain(container.image.as_deref()).any(names_server) || command_line(container).any(model)
}

/// Arguments of a container, from the first [`MAX_ARGUMENT_BYTES`] of whole words.
fn arguments(container: &Container) -> Option<Box<str>> {
    let switch = container.env.iter().flatten().find(|e| e.name == ENGINE_SWITCH);
    let switch = switch.and_then(|e| e.value.as_ref()).map(|value| format!("{ENGINE_SWITCH}={value}"));
    let release = container.image.as_deref().and_then(vllm_release);
    let release = release.map(|release| format!("{ENGINE_RELEASE}{release}"));
    let mut room = MAX_ARGUMENT_BYTES;
    let fits = |word: &&str| {
        room = room.saturating_sub(word.len() + 1);
        room > 0
    };
    let read: Vec<String> =
        command_line(container).take_while(fits).map(str::to_owned).chain(switch).chain(release).collect();
    let used = engine_arguments(&read);
    (!used.is_empty()).then(|| used.join(&SEPARATOR.to_string()).into())
}

/// Such as `0.32` of `vllm/vllm-openai:v0.32.0`. Other projects have versions of their own in the tag.
fn vllm_release(image: &str) -> Option<String> {
    let (image, tag) = image.rsplit('/').next()?.split('@').next()?.split_once(':')?;
    let mut numbers = tag.strip_prefix('v').unwrap_or(tag).split(['.', '-']);
    let release = format!("{}.{}", numbers.next()?, numbers.next()?);
    image.starts_with("vllm-openai").then_some(release)
}

/// Card that the node selector requires, else the required node affinity.
fn required_card(pod: &PodSpec) -> Option<String> {
    let NodeRequirements { selector, alternatives } = NodeRequirements::new(pod);
    derive_accelerator(&[selector]).or_else(|| derive_accelerator(&alternatives))
}

/// Node labels that a pod requires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRequirements<'a> {
    /// Requirements of the node selector.
    pub selector: Vec<NodeRequirement<'a>>,
    /// Alternatives of the required node affinity, of which one holds.
    pub alternatives: Vec<Vec<NodeRequirement<'a>>>,
}

impl<'a> NodeRequirements<'a> {
    /// Reads a pod.
    #[must_use]
    pub fn new(pod: &'a PodSpec) -> Self {
        let selector = pod.node_selector.iter().flatten();
        let affinity = pod.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let required = affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
        let terms = required.into_iter().flat_map(|required| &required.node_selector_terms);
        // A term without expressions or fields matches no node.
        let any = |term: &&NodeSelectorTerm| term.match_expressions.is_some() || term.match_fields.is_some();
        Self {
            selector: selector.map(|(label, value)| NodeRequirement { label, values: vec![value] }).collect(),
            alternatives: terms.filter(any).map(node_requirements).collect(),
        }
    }
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

    /// `wva generate` always found the server here; the controller read the proxy.
    #[test]
    fn proxy_in_front_of_a_server_is_not_the_server() {
        let server = json!({"name": "s", "image": "vllm/vllm-openai", "args": ["m", "--max-num-seqs=64"]});
        for proxy in [
            json!({"name": "proxy", "image": "envoy"}),
            json!({"name": "proxy", "image": "llm-d-routing-sidecar", "args": ["--port=8000", "--vllm-port=8200"]}),
        ] {
            assert_eq!(args(json!([proxy, server])), ["--max-num-seqs=64"], "{proxy}");
        }
    }

    #[test]
    fn reads_engine_switch_from_environment() {
        let container = |value: &Value| json!([{"name": "s", "image": "vllm", "args": ["m"], "env": [{"name": "A", "value": "b"}, value]}]);
        assert_eq!(args(container(&json!({"name": "VLLM_USE_V1", "value": "0"}))), ["VLLM_USE_V1=0"]);
        let from = json!({"name": "VLLM_USE_V1", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}});
        assert_eq!(args(container(&from)), [""; 0], "the value is not in the template");
    }

    #[test]
    fn reads_the_release_from_the_image() {
        let of = |image: &str| args(json!([{"name": "s", "image": image, "args": ["vllm"]}]));
        let since = ["VLLM_RELEASE=0.32"];
        assert_eq!(of("vllm/vllm-openai:v0.32.0"), since);
        assert_eq!(of("registry:5000/vllm/vllm-openai-rocm:v0.40.1-x@sha256:00"), since);
        for image in
            ["vllm/vllm-openai:v0.31.0", "vllm/vllm-openai", "nvidia/vllm:25.09-py3", "vllm-openai:latest"]
        {
            assert_eq!(of(image), [""; 0], "{image}");
        }
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
            assert_eq!(template(pod.clone()).accelerator(None).as_deref(), want, "{pod}");
        }
    }

    #[test]
    fn accelerator_of_a_part_of_a_card_names_the_part() {
        let pod = |limits: Value| {
            let container = json!({"name": "s", "image": "vllm", "resources": {"limits": limits}});
            let card = json!({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB"});
            template(json!({"nodeSelector": card, "containers": [container]}))
        };
        let slice = pod(json!({"nvidia.com/mig-1g.5gb": "1"}));
        assert_eq!((slice.gpus, slice.accelerator(None).as_deref()), (1, Some("A100-MIG-1g.5gb")));
        assert_eq!(
            slice.accelerator(Some("H100")).as_deref(),
            Some("H100-MIG-1g.5gb"),
            "the label names the card"
        );
        assert_eq!(slice.accelerator(Some("H100-MIG-2g.20gb")).as_deref(), Some("H100-MIG-2g.20gb"));
        let shared = pod(json!({"nvidia.com/gpu.shared": "1"}));
        assert_eq!((shared.gpus, shared.accelerator(None).as_deref()), (1, Some("A100-SHARED")));
        let card = pod(json!({"nvidia.com/gpu": "1"}));
        assert_eq!(card.accelerator(None).as_deref(), Some("A100"));
        assert_eq!(card.accelerator(Some("any name")).as_deref(), Some("any name"));
    }

    #[test]
    fn reads_claim_templates() {
        let claims =
            json!([{"name": "a", "resourceClaimTemplateName": "t"}, {"name": "b", "resourceClaimName": "s"}]);
        let mut group = template(json!({"resourceClaims": claims}));
        let claim = |template: &str, count| TemplateClaim { template: template.into(), count };
        assert_eq!((group.gpus, &*group.claims), (0, &[claim("t", 1)][..]));
        let worker = template(json!({"resourceClaims": [{"name": "a", "resourceClaimTemplateName": "w"}]}));
        group.add_workers(&worker, 3);
        assert_eq!(&*group.claims, [claim("t", 1), claim("w", 3)]);
        group.add_workers(&worker, 0);
        assert_eq!(group.claims.len(), 2);
    }
}
