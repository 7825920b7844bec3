//! The external metrics API (`external.metrics.k8s.io/v1beta1`): hands the decided targets to HPAs directly, with no
//! Prometheus or adapter in between. Values come from the status of VAs, so that every replica serves the same.

mod apiservice;
mod documents;
pub mod selector;
mod server;
pub mod values;

pub use apiservice::{OwnService, keep_open};
pub use server::{ExternalMetrics, serve};

/// API group.
pub const GROUP: &str = "external.metrics.k8s.io";
/// API version.
pub const VERSION: &str = "v1beta1";
/// Group and version.
pub const API_VERSION: &str = "external.metrics.k8s.io/v1beta1";
/// The metric: replicas decided for a variant.
pub const METRIC: &str = wva_crds::names::DESIRED_REPLICAS_METRIC;
/// The same under the name of the first releases.
pub const LEGACY_METRIC: &str = wva_crds::names::LEGACY_DESIRED_REPLICAS_METRIC;
