//! Backtest: what policies would have done with the traffic that a Prometheus has recorded. Requests, replicas and the
//! speed of the engine are reconstructed from the series of model servers; a simulation of the replicas that really ran
//! has to reproduce the measured latencies, hour by hour, before a policy is judged on an hour. Pure: the caller reads.

pub mod answer;
pub mod arrangement;
mod by_cell;
pub mod calibrate;
pub mod candidates;
mod coarse;
pub mod compare;
mod delta;
pub mod ensemble;
pub mod fit;
pub mod history;
pub mod lengths;
pub mod plan;
pub mod policies;
mod prior;
pub mod ran;
pub mod refusal;
pub mod refused_figure;
pub mod requests;
pub mod scrapes;
pub mod shares;
pub mod signals;
pub mod steps;
pub mod text;
pub mod tune;
pub mod verdict;
pub mod worst;

/// Length of a window of histograms, seconds.
pub const WINDOW: u32 = 300;
/// Length of an hour of the calibration, seconds.
pub const HOUR: u32 = 3600;
