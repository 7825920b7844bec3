//! Least squares over the arrivals of the last five minutes.

use super::arrivals::{STEP, rate};
use crate::units::count;

const MIN_STEPS: usize = 4;
/// Last steps that must rise as well: two minutes.
const RECENT_STEPS: usize = 8;
/// t-value above which a trend counts.
const SIGNIFICANT_T: f64 = 2.0;
/// Greatest ratio of forecast to present arrival rate.
const MAX_GROWTH: f64 = 1.25;
/// A trend is steep above this t-value if it adds more than this share within the horizon.
const STEEP_T: f64 = 3.0;
const STEEP_SHARE: f64 = 0.3;
/// The t-value is infinite for a perfect line.
const MAX_T: f64 = 1000.0;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ArrivalForecast {
    /// Requests per second.
    pub(super) arrivals: f64,
    /// Requests per second at the end of the horizon.
    pub(super) expected: f64,
    /// Requests per second squared.
    pub(super) slope: f64,
    /// t value of the slope.
    pub(super) t_value: f64,
    /// Time from a scale-up decision until the new replica takes load, seconds.
    pub(super) horizon: f64,
}

impl ArrivalForecast {
    pub(super) fn is_steep(&self) -> bool {
        self.t_value > STEEP_T && self.slope * self.horizon > STEEP_SHARE * self.arrivals
    }
}

/// `steps`: requests of each step, oldest first. `None`: no steps.
///
/// The present rate is that of the last minute, or of the last 30 s if that exceeds it by more than a standard
/// deviation of a Poisson process.
pub(super) fn forecast_arrivals(steps: &[f64], horizon: f64) -> Option<ArrivalForecast> {
    let (minute, half) = (rate(steps, 60.0)?, rate(steps, 30.0)?);
    let arrivals = minute.max(half - (half / 30.0).sqrt()).max(0.0);
    let Trend { slope, t_value } = trend(steps);
    let recent = trend(&steps[steps.len().saturating_sub(RECENT_STEPS)..]);
    let rise = slope.min(recent.slope).max(0.0);
    let expected = if t_value > SIGNIFICANT_T {
        (arrivals + rise * horizon).min(MAX_GROWTH * arrivals)
    } else {
        arrivals
    };
    Some(ArrivalForecast { arrivals, expected: expected.max(arrivals), slope, t_value, horizon })
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Trend {
    /// Requests per second squared.
    slope: f64,
    t_value: f64,
}

/// Trend of the arrivals. Both figures are 0 for fewer than [`MIN_STEPS`].
fn trend(steps: &[f64]) -> Trend {
    if steps.len() < MIN_STEPS {
        return Trend::default();
    }
    let n = count(steps.len());
    let at = |i: usize| (count(i) - (n - 1.0) / 2.0) * STEP;
    let values = || steps.iter().map(|n| n / STEP).enumerate();
    let mean = values().map(|(_, y)| y / n).sum::<f64>();
    let spread: f64 = values().map(|(i, _)| at(i) * at(i)).sum();
    let slope = values().map(|(i, y)| at(i) * (y - mean)).sum::<f64>() / spread;
    let residuals: f64 = values().map(|(i, y)| (y - mean - slope * at(i)).powi(2)).sum();
    let error = (residuals / (n - 2.0) / spread).sqrt();
    let t_value = if slope == 0.0 { 0.0 } else { (slope / error).clamp(-MAX_T, MAX_T) };
    if slope.is_finite() && t_value.is_finite() { Trend { slope, t_value } } else { Trend::default() }
}
