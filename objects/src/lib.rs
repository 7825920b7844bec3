//! What the objects of a cluster say. Controller, rules and commands ask this crate, so that they agree. The crate has no
//! clock, no I/O and no Kubernetes client.
#![warn(clippy::disallowed_methods)]

mod annotations;
pub mod autoscaler;
pub mod engine_args;
pub mod hardware;
pub mod json;
pub mod limits;
pub mod metrics_ports;
pub mod origin;
pub mod orphan;
mod owner;
mod promql;
mod readers;
mod replica_template;
pub mod series;
pub mod servers;
mod shell_words;
pub mod signal;
pub mod status;
mod target;
pub mod template;
#[cfg(test)]
mod testing;
mod workload_key;

pub use annotations::{
    AnnotatedVariant, AnnotationError, MetricSelection, annotated_instance, is_annotated, label_in_query,
};
pub use owner::Owner;
pub use readers::{MetricReader, SeriesSelector};
pub use replica_template::{ReplicaTemplate, TemplateError, Workers};
pub use shell_words::split_shell_words;
pub use target::{DEFAULT_API_VERSION, DEFAULT_KIND, Target, api_group};
pub use workload_key::{LEADER_WORKER_SET, WorkloadKey, leader_worker_sets, qualified_kind};
