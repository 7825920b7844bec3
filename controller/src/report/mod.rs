//! How a decision is told: conditions and status of the object, events, and series.

pub mod conditions;
pub mod events;
pub mod gauges;
pub mod status;
