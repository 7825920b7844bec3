//! What a review knows of the cluster. It comes from watch caches alone: a review makes no API call, so no slow
//! apiserver can hold up an answer that the apiserver itself waits for.

mod index;

use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use wva_rules::{MapRole, MetricReader, NamespaceState, OtherVariant, Target};

use index::Key;
pub use index::{Index, Observer, autoscaler_index, scaled_object_index, variant_index};

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
    /// What scales the workload by this program's metric, and whether that is all there is.
    fn readers(&self, _namespace: &str, _target: &Target) -> (Vec<MetricReader>, bool) {
        (Vec::new(), false)
    }
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

/// Answers [`ClusterFacts::target`] from whatever caches of workloads the caller keeps.
pub type TargetLookup = Arc<dyn Fn(&str, &Target) -> Option<TargetState> + Send + Sync>;
/// Answers [`ClusterFacts::namespace_owned`] for a namespace.
pub type OwnedLookup = Arc<dyn Fn(&str) -> bool + Send + Sync>;
/// Answers [`ClusterFacts::namespace`] for a namespace.
pub type NamespaceLookup = Arc<dyn Fn(&str) -> NamespaceState + Send + Sync>;
/// Whether a namespace is opted in to config maps of its own by label; `None` where namespaces are not seen.
pub type OptedInLookup = Arc<dyn Fn(&str) -> Option<bool> + Send + Sync>;
/// Answers [`ClusterFacts::global_map`] from what the caller keeps of config maps.
pub type GlobalMapLookup = Arc<dyn Fn(MapRole) -> Option<Value> + Send + Sync>;
/// Whether something holds now.
pub type Check = Arc<dyn Fn() -> bool + Send + Sync>;

/// What follows the metric, from the watches of HPAs and ScaledObjects.
#[derive(Clone)]
pub struct Readers {
    /// HPAs.
    pub autoscalers: Index<MetricReader>,
    /// ScaledObjects.
    pub scaled_objects: Index<MetricReader>,
    /// All ScaledObjects are seen, or their kind is known to be absent.
    pub scaled_objects_seen: Check,
}

/// Facts from watch caches, indexed.
#[derive(Clone)]
pub struct StoreFacts {
    /// All caches behind these facts have seen their first list.
    pub synced: Check,
    /// All `VariantAutoscaling`s this process watches.
    pub variants: Index<OtherVariant>,
    /// What follows the metric; `None` where no HPAs are watched.
    pub readers: Option<Readers>,
    /// What workloads there are; `None` where none are watched.
    pub targets: Option<TargetLookup>,
    /// Which namespaces are the instance's own.
    pub owned: OwnedLookup,
    /// Which namespaces are managed.
    pub namespaces: NamespaceLookup,
    /// Which namespaces are opted in to config maps of their own.
    pub opted_in: OptedInLookup,
    /// The config maps for all namespaces; `None` where none are watched.
    pub global_maps: Option<GlobalMapLookup>,
    /// The namespace of the controller itself.
    pub controller_namespace: String,
}

impl fmt::Debug for StoreFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreFacts").field("variants", &self.variants).finish_non_exhaustive()
    }
}

impl ClusterFacts for StoreFacts {
    fn synced(&self) -> bool {
        (self.synced)()
    }

    fn others(&self, namespace: &str, target: &Target) -> Vec<OtherVariant> {
        self.variants.get(&Key::target(namespace, target))
    }

    fn target(&self, namespace: &str, target: &Target) -> Option<TargetState> {
        self.targets.as_ref().and_then(|state| state(namespace, target))
    }

    fn namespace_owned(&self, namespace: &str) -> bool {
        (self.owned)(namespace)
    }

    fn namespace(&self, namespace: &str) -> NamespaceState {
        (self.namespaces)(namespace)
    }

    fn controller_namespace(&self) -> Option<&str> {
        Some(&self.controller_namespace)
    }

    fn config_tracked(&self, namespace: &str) -> Option<bool> {
        match (self.namespaces)(namespace) {
            NamespaceState::Managed if self.variants.any_in(namespace) => Some(true),
            NamespaceState::Managed => (self.opted_in)(namespace),
            NamespaceState::Excluded | NamespaceState::Unwatched => Some(false),
        }
    }

    fn global_map(&self, role: MapRole) -> Option<Value> {
        self.global_maps.as_ref().and_then(|maps| maps(role))
    }

    fn cost_set_by(&self, namespace: &str, model: &str, name: &str) -> Option<String> {
        self.variants.other_than(&Key::cost_of(namespace, model), name)
    }

    fn readers(&self, namespace: &str, target: &Target) -> (Vec<MetricReader>, bool) {
        let Some(readers) = &self.readers else { return (Vec::new(), false) };
        // Asked first, as `synced` is: what was complete before the rest is looked up is in it.
        let complete = (readers.scaled_objects_seen)();
        let key = Key::target(namespace, target);
        let mut all = readers.autoscalers.get(&key);
        all.extend(readers.scaled_objects.get(&key));
        (all, complete)
    }
}
