//! The benches: what the program takes when it is idle, and how fast it answers reviews. Each runs the real program on
//! a real control plane and fails where a bound is exceeded.

pub(crate) mod admission;
pub(crate) mod cycle;
mod exporter;
pub(crate) mod idle;
pub(crate) mod idle_fleet;
mod load;
mod pairs;
mod review;
mod stored;
pub(crate) mod usage;
