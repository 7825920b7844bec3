//! Publishing: status and events of the object, metrics series, and the external metrics API.

pub mod events;
pub mod external_metrics;
pub(crate) mod gauges;
pub(crate) mod notices;
pub(crate) mod scraping;
pub(crate) mod status;
