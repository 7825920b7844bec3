//! Policies: how many replicas each variant should have, from what an autoscaler is able to see. All of them stand
//! behind one trait, so that they can be compared on the same requests.

mod activity;
pub mod autoscaler;
pub mod fixed;
mod fleet_view;
pub mod hindsight;
pub mod hpa;
pub mod keda;
pub mod llm_d_wva;
pub mod oracle;
mod snapshot;
pub mod wva;

#[cfg(test)]
mod tests;

pub use fleet_view::{FleetView, MeanTokens, Peaks, PickerQueue, Pod};

/// Interval between two decisions, in seconds: the sync period of the controller of `HorizontalPodAutoscalers`.
pub const SYNC: f64 = 15.0;

/// Says how many replicas each variant should have.
pub trait Policy {
    /// The replicas of each variant from now on, within its bounds. Asked every [`SYNC`] seconds.
    fn decide(&mut self, view: &FleetView<'_>) -> Vec<u32>;
}

/// Whether something that is due every `period` seconds is due at a time at which the policy is asked.
fn is_due(now: f64, period: f64) -> bool {
    let cycles = (period / SYNC).round().max(1.0);
    ((now / SYNC).round() % cycles).abs() < 0.5
}
