//! Scaling decisions. One function, [`decide`], turns a [`Snapshot`] into an [`Outcome`]: a target for every variant
//! with the steps that led to it, and what the next cycle has to remember. There is no clock, no I/O and no Kubernetes
//! here: whatever a rule needs to know is a value of the snapshot, so that a decision can be replayed.
#![warn(clippy::disallowed_methods)]

mod accelerator;
mod analyze;
mod enforce;
mod limit;
mod memory;
mod pipeline;
mod publish;

pub mod decision;
pub mod reason;
pub mod resolve;
pub mod snapshot;
pub mod trace;
pub mod units;
mod view;

#[cfg(test)]
mod tests;

pub use accelerator::{ACCELERATOR_NODE_LABELS, Demand, derive_accelerator};
pub use analyze::engine_arguments;
pub use decision::{
    Action, Bounds, Decision, Lacking, MainSignal, NextState, Outcome, Shadow, Stage, Step, VariantKey,
    VariantState, Warning,
};
pub use limit::{key as accelerator_key, normalize_accelerator};
pub use pipeline::decide;
pub use reason::{AnalysisError, FallbackSource, Reason};
pub use snapshot::{Snapshot, SnapshotError};
