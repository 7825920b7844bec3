//! Cluster state that reviews use. It comes from watch caches only: a review makes no API call, because the API server
//! is waiting for its answer.

mod index;

use serde_json::Value;
use wva_rules::{MapRole, MetricReader, NamespaceState, OtherVariant, Target};

pub use index::{Index, Key, autoscaler_index, scaled_object_index, variant_index};

/// Cluster state for the rules. The defaults stand for unwatched objects; no rule acts on them.
pub trait ClusterFacts: Send + Sync {
    /// Whether all caches are complete.
    fn is_synced(&self) -> bool;
    /// Variants of the namespace with this target, of every instance.
    fn variants_with_target(&self, namespace: &str, target: &Target) -> Vec<OtherVariant>;
    /// State of the workload; `None` if its kind is not watched.
    fn target(&self, namespace: &str, target: &Target) -> Option<TargetState>;
    /// Whether the namespace belongs to this instance: it has the instance's label, or is the only watched namespace.
    fn is_namespace_owned(&self, namespace: &str) -> bool;
    /// Whether the controller manages the variants of the namespace.
    fn namespace_state(&self, _namespace: &str) -> NamespaceState {
        NamespaceState::Managed
    }
    /// Namespace of the controller, if known.
    fn controller_namespace(&self) -> Option<&str> {
        None
    }
    /// Whether the controller reads namespace-local ConfigMaps of the namespace; `None` if unknown.
    fn reads_local_maps(&self, _namespace: &str) -> Option<bool> {
        None
    }
    /// Global map of this role, from which namespace-local entries inherit; `None` if unknown.
    fn global_map(&self, _role: MapRole) -> Option<Value> {
        None
    }
    /// Name of a variant of the model in the namespace, other than `name`, with a cost that differs from the default.
    fn variant_with_own_cost(&self, _namespace: &str, _model: &str, _name: &str) -> Option<String> {
        None
    }
    /// Autoscalers that scale the workload by wva's metric.
    fn metric_readers(&self, _namespace: &str, _target: &Target) -> TargetReaders {
        TargetReaders::default()
    }
}

/// Autoscalers that scale one workload by wva's metric.
#[derive(Clone, Debug, Default)]
pub struct TargetReaders {
    /// The known autoscalers.
    pub readers: Vec<MetricReader>,
    /// Whether `readers` contains all of them.
    pub is_complete: bool,
}

/// State of a workload of a watched kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetState {
    /// It does not exist, or is being deleted.
    Absent,
    /// It exists.
    Present {
        /// Whether its pod template determines the accelerator.
        is_accelerator_known: bool,
    },
}
