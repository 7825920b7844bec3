//! Growth of a figure over time, by least squares over the means of each minute.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// A figure at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) minute: f64,
    pub(super) value: f64,
}

/// Readings of each figure of each replica.
#[derive(Debug, Default)]
pub(super) struct Readings(BTreeMap<(usize, &'static str), Vec<Reading>>);

impl Readings {
    pub(super) fn add(&mut self, pod: usize, what: &'static str, reading: Reading) {
        self.0.entry((pod, what)).or_default().push(reading);
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (&(usize, &'static str), &Vec<Reading>)> {
        self.0.iter()
    }

    pub(super) fn json(&self) -> Value {
        let all = self.0.iter().map(|((pod, what), all)| {
            let points: Vec<_> =
                means(all, 0.0).iter().map(|reading| [reading.minute, reading.value]).collect();
            json!({"replica": pod, "figure": what, "minuteAndMean": points})
        });
        all.collect()
    }
}

/// A fitted line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fit {
    pub(super) mean: f64,
    /// Growth a minute, and its standard error.
    pub(super) slope: f64,
    pub(super) error: f64,
}

impl Fit {
    /// Whether the growth is at most `bound`: what is above it is not more than two standard errors.
    pub(super) fn is_at_most(&self, bound: f64) -> bool {
        self.slope - 2.0 * self.error <= bound
    }
}

/// Fits a line to the readings from this minute on. `None` with less than three minutes.
pub(super) fn fit(readings: &[Reading], from: f64) -> Option<Fit> {
    // Readings a few seconds apart follow each other; means of a minute hardly do, which makes the error right.
    let points = means(readings, from);
    if points.len() < 3 {
        return None;
    }
    let n = f64::from(u32::try_from(points.len()).ok()?);
    let mean_of = |of: fn(&Reading) -> f64| points.iter().map(of).sum::<f64>() / n;
    let (at, mean) = (mean_of(|p| p.minute), mean_of(|p| p.value));
    let spread: f64 = points.iter().map(|p| (p.minute - at).powi(2)).sum();
    let slope = points.iter().map(|p| (p.minute - at) * (p.value - mean)).sum::<f64>() / spread;
    let rest: f64 = points.iter().map(|p| (p.value - mean - slope * (p.minute - at)).powi(2)).sum();
    Some(Fit { mean, slope, error: (rest / (n - 2.0) / spread).sqrt() })
}

/// Means of each minute from this one on.
fn means(readings: &[Reading], from: f64) -> Vec<Reading> {
    let mut minutes: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
    for reading in readings.iter().filter(|reading| reading.minute >= from) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "minutes of an experiment"
        )]
        let (sum, count) = minutes.entry(reading.minute as u64).or_default();
        *sum += reading.value;
        *count += 1.0;
    }
    #[expect(clippy::cast_precision_loss, reason = "minutes of an experiment")]
    let mean =
        |(minute, (sum, count)): (u64, (f64, f64))| Reading { minute: minute as f64, value: sum / count };
    minutes.into_iter().map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reading every five seconds for an hour: noise of this size around a growth.
    fn hour(growth: f64, noise: f64) -> Vec<Reading> {
        let mut state = 1_u32;
        let mut random = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f64::from(state >> 8) / f64::from(1_u32 << 24) - 0.5
        };
        (0..720)
            .map(|i| f64::from(i) / 12.0)
            .map(|minute| Reading { minute, value: 50_000.0 + growth * minute + noise * random() })
            .collect()
    }

    #[test]
    fn sees_a_leak_in_noise_and_none_in_noise_alone() {
        for (growth, is_flat) in [(0.0, true), (100.0, true), (1024.0, false), (-300.0, true)] {
            let fit = fit(&hour(growth, 8_000.0), 15.0).unwrap();
            assert_eq!(fit.is_at_most(256.0), is_flat, "{growth}: {fit:?}");
            assert!((fit.slope - growth).abs() < 4.0 * fit.error, "{growth}: {fit:?}");
        }
    }

    #[test]
    fn warm_up_does_not_count_and_short_runs_have_no_fit() {
        let mut readings = hour(0.0, 100.0);
        readings.iter_mut().take(120).for_each(|reading| reading.value = reading.minute * 5_000.0);
        assert!(fit(&readings, 15.0).unwrap().is_at_most(10.0));
        assert!(!fit(&readings, 0.0).unwrap().is_at_most(10.0));
        assert!(fit(&readings[..20], 0.0).is_none());
    }
}
