//! placeholder

pub mod auth;
pub mod external_metrics;
