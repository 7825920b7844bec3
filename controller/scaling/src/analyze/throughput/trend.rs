//! Where the arrivals go: least squares over the last five minutes of steps.

use super::arrivals::{STEP, rate};
use crate::units::count;

/// Fewest steps of a trend.
const FEWEST: usize = 4;
/// Steps that have to rise, too: two minutes.
const RECENT: usize = 8;
/// A trend counts where its t-value is above this.
const SIGNIFICANT: f64 = 2.0;
/// How far a forecast goes beyond what arrives.
const FURTHEST: f64 = 1.5;
/// A trend is steep where its t-value is above this, and it adds this share within the horizon.
const STEEP_T: f64 = 3.0;
const STEEP_SHARE: f64 = 0.3;
/// Residuals of a perfect line would make t infinite.
const MOST_T: f64 = 1000.0;

/// What arrives and what is expected to, in requests a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Traffic {
    /// Now.
    pub(super) arrivals: f64,
    /// At the end of the horizon.
    pub(super) forecast: f64,
    /// Change in a second.
    pub(super) slope: f64,
    /// How sure that is.
    pub(super) t: f64,
    /// Seconds until a replica that is asked for now has made a difference.
    pub(super) horizon: f64,
}

impl Traffic {
    /// A replica more should be warm.
    pub(super) fn is_steep(&self) -> bool {
        self.t > STEEP_T && self.slope * self.horizon > STEEP_SHARE * self.arrivals
    }
}

/// By the requests that arrived in each step. `None` where none has been counted.
pub(super) fn traffic(all: &[f64], horizon: f64) -> Option<Traffic> {
    let (minute, half) = (rate(all, 60.0)?, rate(all, 30.0)?);
    let arrivals = minute.max(half - (half / 30.0).sqrt()).max(0.0);
    let Slope { slope, t } = slope(all);
    // After a step the whole window rises for minutes, and the last of it does not.
    let recent = self::slope(&all[all.len().saturating_sub(RECENT)..]);
    let rise = slope.min(recent.slope).max(0.0);
    let ahead = if t > SIGNIFICANT { (arrivals + rise * horizon).min(FURTHEST * arrivals) } else { arrivals };
    Some(Traffic { arrivals, forecast: ahead.max(arrivals), slope, t, horizon })
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Slope {
    /// Requests a second in a second.
    slope: f64,
    t: f64,
}

/// The slope and its t-value; both 0 where there are too few steps.
fn slope(steps: &[f64]) -> Slope {
    if steps.len() < FEWEST {
        return Slope::default();
    }
    let n = count(steps.len());
    let at = |i: usize| (count(i) - (n - 1.0) / 2.0) * STEP;
    let values = || steps.iter().map(|n| n / STEP).enumerate();
    let mean = values().map(|(_, y)| y / n).sum::<f64>();
    let spread: f64 = values().map(|(i, _)| at(i) * at(i)).sum();
    let slope = values().map(|(i, y)| at(i) * (y - mean)).sum::<f64>() / spread;
    let residuals: f64 = values().map(|(i, y)| (y - mean - slope * at(i)).powi(2)).sum();
    let error = (residuals / (n - 2.0) / spread).sqrt();
    let t = if slope == 0.0 { 0.0 } else { (slope / error).clamp(-MOST_T, MOST_T) };
    if slope.is_finite() && t.is_finite() { Slope { slope, t } } else { Slope::default() }
}
