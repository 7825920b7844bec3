//! Serves the external metrics API (`external.metrics.k8s.io/v1beta1`), so that HPAs read targets without an adapter.
//! Values come from the status, so all replicas serve the same.

mod apiservice;
mod documents;
pub mod selector;
mod server;
pub mod values;

pub use apiservice::{OwnService, maintain_ca_bundle};
pub use server::{ExternalMetrics, serve};

/// API group.
pub const GROUP: &str = "external.metrics.k8s.io";
/// API version.
pub const VERSION: &str = "v1beta1";
/// Group and version.
pub const API_VERSION: &str = "external.metrics.k8s.io/v1beta1";
/// Metric name: desired replicas of a variant.
pub const METRIC: &str = wva_crds::names::DESIRED_REPLICAS_METRIC;
/// Metric name of the first releases.
pub const LEGACY_METRIC: &str = wva_crds::names::LEGACY_DESIRED_REPLICAS_METRIC;
