//! What the objects of a cluster say. Controller, rules and commands ask this crate, so that they agree. The crate has no
//! clock, no I/O and no Kubernetes client.
#![warn(clippy::disallowed_methods)]

mod annotations;
pub mod autoscaler;
mod autoscaler_kind;
pub mod engine_args;
pub mod hardware;
pub mod json;
pub mod limits;
pub mod metrics_ports;
pub mod origin;
pub mod orphan;
mod owner;
pub mod pod;
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
    AnnotatedVariant, AnnotationError, MetricSelection, annotated_instance, has_scaled_object, is_annotated,
};
pub use owner::Owner;
pub use readers::{MetricReader, SeriesSelector, SignalSource, formula, metric_name, metric_sources};
pub use replica_template::{ReplicaTemplate, TemplateError, Workers};
pub use shell_words::split_shell_words;
pub use target::{DEFAULT_API_VERSION, DEFAULT_KIND, Target, api_group};
pub use workload_key::{LEADER_WORKER_SET, WorkloadKey, leader_worker_sets, qualified_kind};
