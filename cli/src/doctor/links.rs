//! The checks of the chain, one file a link. Each looks at what was read and says what it found, with the remedy where
//! something is wrong.

pub(super) mod bounds;
pub(super) mod decision;
pub(super) mod metric;
mod monitors;
pub(super) mod pods;
pub(super) mod scrape;
pub(super) mod selector;
pub(super) mod series;
pub(super) mod signal;
pub(super) mod variant;
pub(super) mod workload;
