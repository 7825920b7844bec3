//! What the cluster holds: watch caches, and what variants, workloads, pods and autoscalers in them say.

pub(crate) mod bounds;
pub(crate) mod crd;
pub mod guard;
pub(crate) mod legacy;
pub(crate) mod pods;
pub(crate) mod pools;
pub(crate) mod template;
pub(crate) mod variants;
pub(crate) mod watches;
pub(crate) mod workloads;
