//! Publishes decisions: status and events of the object, metrics, and the external metrics API.

pub mod events;
pub mod external_metrics;
pub(crate) mod gauges;
pub(crate) mod leader_events;
pub(crate) mod packed_text;
pub(crate) mod service_monitor;
pub(crate) mod status;
