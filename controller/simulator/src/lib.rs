//! A simulated fleet of model servers for the same `decide` that runs in the cluster, with a clock of its own.
#![warn(clippy::disallowed_methods)]

pub mod fleet;
pub mod measure;
pub mod policy;
pub mod random;
pub mod replay;
pub mod report;
pub mod run;
pub mod scenario;
pub mod study;
pub mod traffic;
