//! Policies behind one trait, to compare them on the same requests.

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

/// Seconds: the sync period of the HPA controller.
pub const SYNC: f64 = 15.0;

/// Decides how many replicas each variant should have.
pub trait Policy {
    /// Replicas of each variant, within its bounds. Called every [`SYNC`] seconds.
    fn decide(&mut self, view: &FleetView<'_>) -> Vec<u32>;
}

/// Whether an action with this period is due at `now`.
fn is_due(now: f64, period: f64) -> bool {
    let cycles = (period / SYNC).round().max(1.0);
    ((now / SYNC).round() % cycles).abs() < 0.5
}
