//! Accelerator and number of GPUs of a replica.

use serde_json::Value;
use wva_crds::names::ACCELERATOR_LABEL;
use wva_objects::hardware::{accelerator_key, normalize_accelerator, product_labels};
use wva_objects::pod::PodSpec;
use wva_objects::template::NodeRequirements;

use super::command_line::flag_value;
use super::guess::Guess;
use super::server::runs_sglang;
use super::workload::Workload;

const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
/// Beginnings of instance types of AWS and Google Cloud.
const INSTANCE_TYPES: [(&str, &str); 14] = [
    ("p4d.", "A100"),
    ("p4de.", "A100"),
    ("p5.", "H100"),
    ("p5e.", "H200"),
    ("p5en.", "H200"),
    ("p6-b200.", "B200"),
    ("g5.", "A10G"),
    ("g6.", "L4"),
    ("g6e.", "L40S"),
    ("a2-", "A100"),
    ("a3-ultragpu-", "H200"),
    ("a3-", "H100"),
    ("a4-highgpu-", "B200"),
    ("g2-", "L4"),
];
/// Parts of instance types of Azure, such as `Standard_ND96isr_H100_v5`.
const CARDS: [&str; 7] = ["A10", "A100", "T4", "H100", "H200", "GB200", "MI300X"];

/// A node label that the pods require, or that their nodes have.
struct NodeLabel<'a> {
    key: &'a str,
    value: &'a str,
}

/// Accelerator and notes about it.
pub(super) fn find_accelerator(workload: &Workload) -> (Option<Guess>, Vec<String>) {
    if let Some(name) = workload.label(ACCELERATOR_LABEL).filter(|name| name.len() >= 2) {
        let source = format!("from the label {ACCELERATOR_LABEL} of the workload");
        return (Some(Guess::new(name.to_owned(), source)), Vec::new());
    }
    let required = required_labels(&workload.replica.leader);
    let nodes: Vec<NodeLabel<'_>> = workload.nodes.iter().flat_map(labels_of_node).collect();
    let products: Vec<&str> = product_labels().collect();
    for keys in [&products[..], &[INSTANCE_TYPE]] {
        for (labels, of) in [(&required, "that the pods require"), (&nodes, "of the nodes of the pods")] {
            if let Some((guess, note)) = choose(labels, keys, of) {
                return (Some(guess), note.into_iter().collect());
            }
        }
    }
    let note = "no accelerator found: neither the pods nor the workload name one; set --accelerator, such as H100, so \
                that the limiter and the metrics know it";
    (None, vec![note.to_owned()])
}

/// Whether the pod template names the accelerator.
pub(super) fn is_in_template(workload: &Workload) -> bool {
    workload.label(ACCELERATOR_LABEL).is_some()
        || choose(&required_labels(&workload.replica.leader), &product_labels().collect::<Vec<_>>(), "")
            .is_some()
}

/// Accelerator by the first key with a value, and a note if there are several.
fn choose(labels: &[NodeLabel<'_>], keys: &[&str], of: &str) -> Option<(Guess, Option<String>)> {
    for key in keys {
        let with_key = labels.iter().filter(|label| label.key == *key && !label.value.is_empty());
        let mut names: Vec<String> = with_key.filter_map(accelerator_name).collect();
        names.dedup_by_key(|name| accelerator_key(name));
        let Some((first, others)) = names.split_first() else { continue };
        let kind = if *key == INSTANCE_TYPE { "guess from" } else { "from" };
        let note = (!others.is_empty())
            .then(|| format!("the pods may run on {first} and {}; {first} is the first", others.join(", ")));
        return Some((Guess::new(first.clone(), format!("{kind} the label {key} {of}")), note));
    }
    None
}

fn accelerator_name(label: &NodeLabel<'_>) -> Option<String> {
    let NodeLabel { key, value } = label;
    if *key != INSTANCE_TYPE {
        return Some(short_name(normalize_accelerator(value)));
    }
    let by_begin = INSTANCE_TYPES.iter().find(|(begin, _)| value.starts_with(begin)).map(|(_, name)| *name);
    let by_part = || value.split('_').find_map(|part| CARDS.into_iter().find(|card| *card == part));
    by_begin.or_else(by_part).map(str::to_owned)
}

/// `L4` for `l4`, as the labels of Google Cloud have it. Comparisons ignore the case.
fn short_name(name: String) -> String {
    if name.contains('-') || name.contains(|c: char| c.is_ascii_uppercase()) {
        name
    } else {
        name.to_ascii_uppercase()
    }
}

/// Node labels that the node selector and the required node affinity name.
fn required_labels(pod: &PodSpec) -> Vec<NodeLabel<'_>> {
    let NodeRequirements { selector, alternatives } = NodeRequirements::new(pod);
    let all = selector.into_iter().chain(alternatives.into_iter().flatten());
    all.flat_map(|required| {
        required.values.into_iter().map(move |value| NodeLabel { key: required.label, value })
    })
    .collect()
}

fn labels_of_node(labels: &Value) -> impl Iterator<Item = NodeLabel<'_>> {
    let labels = labels.as_object().into_iter().flatten();
    labels.filter_map(|(key, value)| Some(NodeLabel { key, value: value.as_str()? }))
}

/// Note if vLLM's parallelism and the GPUs of a replica differ.
pub(super) fn check_parallelism(words: &[String], gpus: u64) -> Option<String> {
    let size = |names: &[&str]| flag_value(words, names).map_or(Some(1), |value| value.parse::<u64>().ok());
    let tensor = size(&["tensor-parallel-size", "tp"])?;
    let pipeline = size(&["pipeline-parallel-size", "pp"])?;
    let data = size(&["data-parallel-size", "dp"])?;
    let used = tensor.saturating_mul(pipeline).saturating_mul(data);
    // SGLang's ranks of data-parallel attention share GPUs.
    let is_sglang = words.iter().any(|word| runs_sglang(word));
    (gpus > 0 && !words.is_empty() && !is_sglang && used != gpus).then(|| {
        format!(
            "vLLM uses {used} GPUs (tensor parallel {tensor}, pipeline {pipeline}, data {data}), but a replica requests \
             {gpus}"
        )
    })
}
