//! Cluster state for reviews, from watch caches only: the API server is waiting for the answer.

mod index;

use serde_json::Value;
use wva_objects::{MetricReader, Target};
use wva_rules::{MapRole, NamespaceState, OtherVariant};

pub use index::{Index, Key, autoscaler_index, scaled_object_index, variant_index};

/// The defaults stand for unwatched objects; no rule acts on them.
pub trait ClusterFacts: Send + Sync {
    /// Whether all caches are complete.
    fn is_synced(&self) -> bool;
    /// Includes variants of every instance.
    fn variants_with_target(&self, namespace: &str, target: &Target) -> Vec<OtherVariant>;
    /// `None` if the kind is not watched.
    fn target(&self, namespace: &str, target: &Target) -> Option<TargetState>;
    /// Whether the namespace has the instance's label, or is the only watched one.
    fn is_namespace_owned(&self, namespace: &str) -> bool;
    /// Whether the controller manages the variants of the namespace.
    fn namespace_state(&self, _namespace: &str) -> NamespaceState {
        NamespaceState::Managed
    }
    /// Namespace of the controller, if known.
    fn controller_namespace(&self) -> Option<&str> {
        None
    }
    /// `None` if unknown.
    fn reads_local_maps(&self, _namespace: &str) -> Option<bool> {
        None
    }
    /// Local entries inherit from it; `None` if unknown.
    fn global_map(&self, _role: MapRole) -> Option<Value> {
        None
    }
    /// A variant of the model, other than `name`, with a cost that differs from the default.
    fn variant_with_own_cost(&self, _namespace: &str, _model: &str, _name: &str) -> Option<String> {
        None
    }
    /// Autoscalers that scale the workload by wva's metric.
    fn metric_readers(&self, _namespace: &str, _target: &Target) -> TargetReaders {
        TargetReaders::default()
    }
}

/// Autoscalers of one workload.
#[derive(Clone, Debug, Default)]
pub struct TargetReaders {
    /// The known autoscalers.
    pub readers: Vec<MetricReader>,
    /// `readers` contains all of them.
    pub is_complete: bool,
}

/// State of a workload of a watched kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetState {
    /// The target does not exist, or is being deleted.
    Absent,
    /// The target exists.
    Present {
        /// The pod template names the accelerator.
        is_accelerator_known: bool,
    },
}
