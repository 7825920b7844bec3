//! Watch caches, and the facts read from them.

pub(crate) mod annotations;
pub(crate) mod autoscaler_index;
pub(crate) mod bounds;
pub(crate) mod claims;
pub(crate) mod crd;
pub(crate) mod deletion_cost;
pub(crate) mod legacy;
pub(crate) mod metrics_api;
pub(crate) mod pods;
pub(crate) mod pools;
pub(crate) mod variants;
pub(crate) mod watches;
pub(crate) mod workloads;
