//! Keys of pods, and replica counts.

use std::collections::BTreeMap;

use wva_crds::entries::EndpointPicker;
use wva_scaling::ModelKey;

/// Namespace and name of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PodKey {
    pub namespace: String,
    pub name: String,
}

impl PodKey {
    #[must_use]
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

/// Endpoint pickers that entries name. Other models have those of their InferencePools.
pub(crate) type NamedPickers = BTreeMap<ModelKey, EndpointPicker>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Replicas {
    pub current: u32,
    /// `status.replicas`.
    pub created: u32,
    pub ready: u32,
}
