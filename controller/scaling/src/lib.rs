//! Scaling decisions: [`decide`] turns a [`Snapshot`] into an [`Outcome`]. The crate has no clock, no I/O and no
//! Kubernetes client, so every decision can be replayed.
#![warn(clippy::disallowed_methods)]

mod analyze;
mod base;
pub mod control_loop;
mod draft;
mod enforce;
mod limit;
mod memory;
mod pipeline;
mod publish;

pub mod decision;
pub mod reason;
mod replica_state;
pub mod resolve;
pub mod snapshot;
pub mod trace;
pub mod units;
mod view;

#[cfg(test)]
mod tests;

pub use decision::{
    Action, Bounds, Decision, MainSignal, ModelKey, ModelReport, NextState, Outcome, ReplicaReport, Report,
    Shadow, SignalGaps, Stage, Step, VariantKey, VariantState, Warning,
};
pub use pipeline::decide;
pub use reason::{Activity, AnalysisError, FallbackSource, Reason, WaitingReplicas};
pub use replica_state::ReplicaState;
pub use snapshot::{Snapshot, SnapshotError};
