//! Checks of the chain, one file each.

pub(super) mod autoscaler;
pub(super) mod bounds;
pub(super) mod decision;
mod elsewhere;
pub(super) mod gpus;
pub(super) mod metric;
mod monitors;
pub(super) mod picker;
mod pod_series;
pub(super) mod pods;
pub(super) mod scrape;
mod scraped_twice;
pub(super) mod selector;
pub(super) mod series;
pub(super) mod signal;
pub(super) mod variant;
pub(super) mod wake;
pub(super) mod workload;
