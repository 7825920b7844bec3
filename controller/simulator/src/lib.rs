//! Simulated fleets for `decide`, on a simulated clock.
#![warn(clippy::disallowed_methods)]

pub mod backtest;
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
