//! The workloads behind the variants and the pods behind the workloads, read from the watch caches: replicas, bounds
//! of the HPA, and which pod belongs to whom by owner references. A pod whose name merely looks alike never counts.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{NodeSelectorTerm, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use wva_crds::ScaleTargetRef;
use wva_scaling::snapshot::HpaTolerance;
use wva_scaling::units::Amount;
use wva_scaling::{Demand, derive_accelerator};

use crate::watches::kept::Owner;
use crate::watches::{Watches, Workload};

/// Kinds of workloads that are watched, and so can be scaled.
pub(crate) const WATCHED_KINDS: [&str; 2] = ["Deployment", "StatefulSet"];

/// Kind and name of a workload within its namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WorkloadKey {
    /// Namespace.
    pub namespace: String,
    /// `Deployment` or `StatefulSet`; a kind of a group other than `apps` carries its group, `Deployment.example.com`.
    pub kind: String,
    /// Name.
    pub name: String,
}

impl WorkloadKey {
    /// The workload a reference names.
    #[must_use]
    pub(crate) fn new(namespace: &str, target: &ScaleTargetRef) -> Self {
        Self {
            namespace: namespace.to_owned(),
            kind: qualified(Some(&target.api_version), &target.kind),
            name: target.name.clone(),
        }
    }
}

/// Replicas of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Replicas {
    /// `spec.replicas`.
    pub current: u32,
    /// Ready ones.
    pub ready: u32,
}

/// What is kept of a workload; `None` where it does not exist, and for kinds that are not watched.
fn workload(watches: &Watches, namespace: &str, kind: &str, name: &str) -> Option<Workload> {
    match kind {
        "Deployment" => watches.deployments.get(namespace, name),
        "StatefulSet" => watches.stateful_sets.get(namespace, name),
        _ => None,
    }
}

/// The replicas of a workload; `None` where it does not exist, or is being deleted.
#[must_use]
pub(crate) fn replicas(watches: &Watches, key: &WorkloadKey) -> Option<Replicas> {
    let kept = workload(watches, &key.namespace, &key.kind, &key.name)?;
    (!kept.leaving).then_some(kept.replicas)
}

/// Whether a workload exists; `None` for kinds that are not watched.
#[must_use]
pub fn exists(watches: &Watches, namespace: &str, api_version: &str, kind: &str, name: &str) -> Option<bool> {
    let kind = qualified(Some(api_version), kind);
    let present = || workload(watches, namespace, &kind, name).is_some_and(|kept| !kept.leaving);
    WATCHED_KINDS.contains(&kind.as_str()).then(present)
}

/// The accelerator that the pods of a workload can only run on, as its template says; `None` where it says none, and
/// for a workload that is not known.
#[must_use]
pub fn accelerator(
    watches: &Watches,
    namespace: &str,
    api_version: &str,
    kind: &str,
    name: &str,
) -> Option<String> {
    let kind = qualified(Some(api_version), kind);
    workload(watches, namespace, &kind, name)?.accelerator.map(Into::into)
}

/// What a pod's node selector says, else its required node affinity.
pub(crate) fn demanded(pod: &PodSpec) -> Option<String> {
    let selector: Vec<Demand> =
        pod.node_selector.iter().flatten().map(|(key, value)| (key.as_str(), vec![value.as_str()])).collect();
    derive_accelerator(&[selector]).or_else(|| {
        let affinity = pod.affinity.as_ref()?.node_affinity.as_ref()?;
        let terms =
            &affinity.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms;
        // A term without expressions or fields matches no node.
        let any = |term: &&NodeSelectorTerm| term.match_expressions.is_some() || term.match_fields.is_some();
        derive_accelerator(&terms.iter().filter(any).map(demands).collect::<Vec<_>>())
    })
}

fn demands(term: &NodeSelectorTerm) -> Vec<Demand<'_>> {
    let listed = term.match_expressions.iter().flatten().filter(|e| e.operator == "In");
    listed.map(|e| (e.key.as_str(), e.values.iter().flatten().map(String::as_str).collect())).collect()
}

/// A kind as kubectl writes it: with its group, where that is not `apps`. What names no version is of `apps`.
pub(crate) fn qualified(api_version: Option<&str>, kind: &str) -> String {
    match api_version.map(|v| v.split_once('/').map_or("core", |(group, _)| group)) {
        None | Some("apps") => kind.to_owned(),
        Some(group) => format!("{kind}.{group}"),
    }
}

/// What the HPA on a workload allows and what it ignores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct HpaLimits {
    /// `minReplicas`, 1 where left out.
    pub min: u32,
    /// `maxReplicas`.
    pub max: u32,
    /// Change that it ignores.
    pub tolerance: HpaTolerance,
}

/// The HPAs by the workload they scale. Of several on one workload the narrowest bounds and the greatest tolerance
/// count: nothing else would be carried out.
#[must_use]
pub(crate) fn hpa_limits(watches: &Watches) -> BTreeMap<WorkloadKey, HpaLimits> {
    let mut all: BTreeMap<WorkloadKey, HpaLimits> = BTreeMap::new();
    watches.autoscalers.each(|namespace, _, hpa| {
        let own = hpa.limits;
        let key = WorkloadKey {
            namespace: namespace.to_owned(),
            kind: hpa.kind.to_string(),
            name: hpa.name.to_string(),
        };
        all.entry(key).and_modify(|limits| *limits = limits.narrowed(own)).or_insert(own);
    });
    all
}

impl HpaLimits {
    /// What two HPAs on one workload allow together.
    fn narrowed(self, other: Self) -> Self {
        let wider = |a: Amount, b: Amount| if a.get() >= b.get() { a } else { b };
        Self {
            min: self.min.max(other.min),
            max: self.max.min(other.max),
            tolerance: HpaTolerance {
                up: wider(self.tolerance.up, other.tolerance.up),
                down: wider(self.tolerance.down, other.tolerance.down),
            },
        }
    }
}

/// What one HPA allows and ignores.
pub(crate) fn limits(hpa: &HorizontalPodAutoscaler) -> HpaLimits {
    let spec = &hpa.spec;
    let behavior = spec.behavior.as_ref();
    let default = HpaTolerance::default();
    let up = behavior.and_then(|b| b.scale_up.as_ref()).and_then(|r| r.tolerance.as_ref()).and_then(share);
    let down =
        behavior.and_then(|b| b.scale_down.as_ref()).and_then(|r| r.tolerance.as_ref()).and_then(share);
    HpaLimits {
        min: spec.min_replicas.map_or(1, |m| u32::try_from(m).unwrap_or(0)),
        max: u32::try_from(spec.max_replicas).unwrap_or(0),
        tolerance: HpaTolerance { up: up.unwrap_or(default.up), down: down.unwrap_or(default.down) },
    }
}

/// A tolerance such as `0.05` or `50m`. The API server admits no negative one; other suffixes make no sense for a
/// share, and the default counts for them.
fn share(quantity: &Quantity) -> Option<Amount> {
    let text = quantity.0.as_str();
    let value = match text.strip_suffix('m') {
        Some(milli) => milli.parse::<f64>().ok()? / 1000.0,
        None => text.parse().ok()?,
    };
    Amount::try_from(value).ok()
}

/// A pod of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodOf {
    /// Whose it is.
    pub workload: WorkloadKey,
    /// Its creation; `None` only for objects no API server wrote.
    pub created: Option<Timestamp>,
    /// It is going away: it gets no new requests, and is neither ready nor pending.
    pub leaving: bool,
}

/// Every pod that belongs to a workload, by namespace and name.
#[must_use]
pub(crate) fn pods(watches: &Watches) -> BTreeMap<(String, String), PodOf> {
    let mut all = BTreeMap::new();
    watches.pods.each(|namespace, name, pod| {
        if let Some(workload) = workload_of(watches, namespace, pod.owner.as_ref()) {
            let of = PodOf { workload, created: pod.created, leaving: pod.leaving };
            all.insert((namespace.to_owned(), name.to_owned()), of);
        }
    });
    all
}

/// pod -> ReplicaSet -> Deployment, or pod -> StatefulSet.
fn workload_of(watches: &Watches, namespace: &str, owner: Option<&Owner>) -> Option<WorkloadKey> {
    let key = |owner: &Owner| WorkloadKey {
        namespace: namespace.to_owned(),
        kind: owner.kind.to_string(),
        name: owner.name.to_string(),
    };
    let owner = owner?;
    if &*owner.kind != "ReplicaSet" {
        return Some(key(owner));
    }
    let set = watches.replica_sets.get(namespace, &owner.name)?;
    set.owner.as_ref().filter(|_| set.uid == owner.uid).map(key)
}

/// The pod a metric's label names: KServe adds a rank suffix, which is tried without when no pod has the full name.
#[must_use]
pub(crate) fn pod_named<'a>(
    pods: &'a BTreeMap<(String, String), PodOf>,
    namespace: &str,
    label: &str,
) -> Option<(&'a str, &'a PodOf)> {
    let find = |name: &str| {
        pods.get_key_value(&(namespace.to_owned(), name.to_owned())).map(|(k, v)| (k.1.as_str(), v))
    };
    find(label).or_else(|| {
        let (name, rank) = label.rsplit_once("-rank-")?;
        rank.bytes().all(|b| b.is_ascii_digit()).then(|| find(name))?
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixture::Cluster;

    #[test]
    fn tolerances_are_read_as_shares() {
        for (text, value) in [("0", 0.0), ("0.05", 0.05), ("50m", 0.05), ("1", 1.0)] {
            assert!((share(&Quantity(text.into())).unwrap().get() - value).abs() < 1e-12, "{text}");
        }
        assert_eq!(share(&Quantity("5k".into())), None);
    }

    #[test]
    fn a_rank_suffix_is_tried_only_when_no_pod_has_the_full_name() {
        let workload = WorkloadKey { namespace: "ns".into(), kind: "Deployment".into(), name: "d".into() };
        let pod = PodOf { workload, created: None, leaving: false };
        let pods: BTreeMap<_, _> =
            ["a", "b-rank-0"].map(|n| (("ns".to_owned(), n.to_owned()), pod.clone())).into();
        assert_eq!(pod_named(&pods, "ns", "a-rank-0").map(|(n, _)| n), Some("a"));
        assert_eq!(pod_named(&pods, "ns", "b-rank-0").map(|(n, _)| n), Some("b-rank-0"));
        assert_eq!(pod_named(&pods, "ns", "a-rank-x"), None);
        assert_eq!(pod_named(&pods, "other", "a"), None);
    }

    #[test]
    fn the_template_tells_the_accelerator() {
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
            let mut cluster = Cluster::new();
            cluster.template("d", &pod);
            let found = accelerator(&cluster.watches(), "ns", "apps/v1", "Deployment", "d");
            assert_eq!(found.as_deref(), want, "{pod}");
            assert_eq!(accelerator(&cluster.watches(), "ns", "apps/v1", "StatefulSet", "d"), None);
        }
    }
}
