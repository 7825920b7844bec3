//! What a review knows of the cluster. It comes from watch caches alone: a review makes no API call, so no slow
//! apiserver can hold up an answer that the apiserver itself waits for.

mod index;

use serde_json::Value;
use wva_rules::{MapRole, MetricReader, NamespaceState, OtherVariant, Target};

pub use index::{Index, Key, autoscaler_index, scaled_object_index, variant_index};

/// The facts of the cluster that the rules may ask for. What nobody watches has a default that no rule acts on.
pub trait ClusterFacts: Send + Sync {
    /// The caches hold everything the other answers need.
    fn synced(&self) -> bool;
    /// The variants of a namespace, of every instance, that have this target.
    fn others(&self, namespace: &str, target: &Target) -> Vec<OtherVariant>;
    /// What is known of the workload; `None` where its kind is not watched.
    fn target(&self, namespace: &str, target: &Target) -> Option<TargetState>;
    /// Whether the namespace is this instance's own: it carries the instance's label, or it is the one namespace that
    /// is watched.
    fn namespace_owned(&self, namespace: &str) -> bool;
    /// What the controller does with the variants of the namespace.
    fn namespace(&self, _namespace: &str) -> NamespaceState {
        NamespaceState::Managed
    }
    /// The namespace of the controller itself, where it is known.
    fn controller_namespace(&self) -> Option<&str> {
        None
    }
    /// Whether namespace-local config maps of the namespace are read; `None` where nobody can tell.
    fn config_tracked(&self, _namespace: &str) -> Option<bool> {
        None
    }
    /// The global map of this role, from whose entries those of namespaces inherit; `None` where it is not seen.
    fn global_map(&self, _role: MapRole) -> Option<Value> {
        None
    }
    /// A variant of the model in the namespace, other than `name`, whose cost somebody chose.
    fn cost_set_by(&self, _namespace: &str, _model: &str, _name: &str) -> Option<String> {
        None
    }
    /// What scales the workload by this program's metric.
    fn readers(&self, _namespace: &str, _target: &Target) -> TargetReaders {
        TargetReaders::default()
    }
}

/// What scales one workload by this program's metric.
#[derive(Clone, Debug, Default)]
pub struct TargetReaders {
    /// Autoscalers.
    pub readers: Vec<MetricReader>,
    /// There are no others.
    pub are_complete: bool,
}

/// What is known of a workload of a kind that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetState {
    /// It does not exist, or is being deleted.
    Absent,
    /// It exists.
    Present {
        /// Its pods can only run on one accelerator, and it says which.
        accelerator_derivable: bool,
    },
}
