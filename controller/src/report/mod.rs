//! How a decision is told: conditions and status of the object, events, and series.

pub(crate) mod conditions;
pub mod events;
pub(crate) mod gauges;
pub(crate) mod legacy;
pub(crate) mod notices;
pub(crate) mod reported;
pub(crate) mod scraping;
pub(crate) mod status;
pub(crate) mod written;
