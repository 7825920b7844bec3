//! What the objects of a cluster say. Controller, rules and commands ask this crate, so that they agree. The crate has no
//! clock, no I/O and no Kubernetes client.
#![warn(clippy::disallowed_methods)]

mod annotations;
pub mod engine_args;
pub mod hardware;
pub mod json;
mod promql;
mod readers;
pub mod series;
pub mod servers;
mod shell_words;
mod target;

pub use annotations::{
    AnnotatedVariant, AnnotationError, MetricSelection, annotated_instance, is_annotated, label_in_query,
};
pub use readers::{MetricReader, SeriesSelector, signal_trigger};
pub use shell_words::split_shell_words;
pub use target::{DEFAULT_API_VERSION, DEFAULT_KIND, Target, api_group};
