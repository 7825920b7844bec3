//! Axes of plots, with ticks at round numbers.

/// Seconds; smaller values are drawn here.
const LEAST: f64 = 1e-3;
/// A highest value this many times the 95th percentile would flatten a line.
const OUTLIER: f64 = 10.0;
/// A lower axis of replicas or requests would have ticks between whole numbers.
const LEAST_COUNT: f64 = 4.0;

/// Range and kind of an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scale {
    /// Equal distances for equal differences.
    Linear { low: f64, high: f64 },
    /// The ends are exponents of ten.
    Logarithmic { low: i32, high: i32 },
    /// From 0 to a power of ten, by the logarithm of 1 + value.
    Compressed { high: i32 },
}

impl Scale {
    /// Scale from 0 to a round number; to 1 if all values are 0.
    pub(super) fn from_zero(values: impl Iterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.filter(|value| value.is_finite()).chain([0.0]).collect();
        if values.iter().all(|value| value.abs() <= 0.0) {
            return Self::Linear { low: 0.0, high: 1.0 };
        }
        Self::linear(values.into_iter())
    }

    /// Scale from 0, compressed if a few values are far above the others.
    pub(super) fn with_outliers(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let usual = values.get(values.len() * 95 / 100).copied().unwrap_or_default();
        match values.last() {
            Some(highest) if *highest > OUTLIER * usual.max(1.0) => {
                Self::Compressed { high: to_i32(highest.log10().ceil()).max(1) }
            }
            _ => Self::from_zero(values.into_iter()),
        }
    }

    /// Scale of replicas or requests, which are whole numbers.
    pub(super) fn counts(values: impl Iterator<Item = f64>) -> Self {
        Self::with_outliers(values.chain([LEAST_COUNT]))
    }

    /// Scale of shares in percent, which ends at 100 at most.
    pub(super) fn percent(values: impl Iterator<Item = f64>) -> Self {
        match Self::linear(values) {
            Self::Linear { low, high } => Self::Linear { low, high: high.min(100.0) },
            other => other,
        }
    }

    /// Scale from a round number to a round number.
    pub(super) fn linear(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = range(values);
        let step = step(low, high);
        Self::Linear { low: (low / step).floor() * step, high: (high / step).ceil() * step }
    }

    /// Scale from the least value to the greatest.
    pub(super) fn tight(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = range(values);
        Self::Linear { low, high }
    }

    /// Scale from a power of ten to a power of ten.
    pub(super) fn logarithmic(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = range(values.map(|v| v.max(LEAST).log10()));
        Self::Logarithmic { low: to_i32(low.floor()), high: to_i32(high.ceil()).max(to_i32(low.floor()) + 1) }
    }

    /// Values at the low and at the high end.
    pub(super) fn ends(self) -> (f64, f64) {
        match self {
            Self::Linear { low, high } => (low, high),
            Self::Logarithmic { low, high } => (10_f64.powi(low), 10_f64.powi(high)),
            Self::Compressed { high } => (0.0, 10_f64.powi(high)),
        }
    }

    /// Position of a value: 0 at the low end, 1 at the high end.
    pub(super) fn share(self, value: f64) -> f64 {
        let share = match self {
            Self::Linear { low, high } => (value - low) / (high - low),
            Self::Logarithmic { low, high } => {
                (value.max(LEAST).log10() - f64::from(low)) / f64::from(high - low)
            }
            Self::Compressed { high } => value.max(0.0).ln_1p() / 10_f64.powi(high).ln_1p(),
        };
        share.clamp(0.0, 1.0)
    }

    /// Round values from the low end to the high end.
    pub(super) fn ticks(self) -> Vec<f64> {
        match self {
            Self::Linear { low, high } => {
                let step = step(low, high);
                let first = (low / step - 1e-9).ceil();
                let count = ((high / step + 1e-9).floor() - first).max(0.0);
                (0..=u16::try_from(to_i32(count)).unwrap_or(0))
                    .map(|i| (first + f64::from(i)) * step)
                    .collect()
            }
            Self::Logarithmic { low, high } => (low..=high).map(|e| 10_f64.powi(e)).collect(),
            Self::Compressed { high } => {
                std::iter::once(0.0).chain((0..=high).map(|e| 10_f64.powi(e))).collect()
            }
        }
    }
}

/// Moved apart if they are equal.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let finite = values.filter(|v| v.is_finite());
    let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
    match (low.is_finite(), high > low) {
        (false, _) => (0.0, 1.0),
        // Counts have no values below 0.
        (true, false) if low == 0.0 => (0.0, 1.0),
        (true, false) => (low - 0.5, high + 0.5),
        (true, true) => (low, high),
    }
}

/// 1, 2 or 5 times a power of ten, for four to ten ticks.
fn step(low: f64, high: f64) -> f64 {
    let rough = (high - low) / 5.0;
    let decade = 10_f64.powf(rough.log10().floor());
    let times = rough / decade;
    decade
        * if times < 1.5 {
            1.0
        } else if times < 3.5 {
            2.0
        } else if times < 7.5 {
            5.0
        } else {
            10.0
        }
}

#[expect(clippy::cast_possible_truncation, reason = "an exponent, or a number of ticks")]
fn to_i32(value: f64) -> i32 {
    value as i32
}

/// Text of a tick.
pub(super) fn label(value: f64) -> String {
    let rounded = (value * 1e6).round() / 1e6;
    if rounded == 0.0 { "0".to_owned() } else { rounded.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_hold_all_values() {
        let written = |scale: Scale| scale.ticks().into_iter().map(label).collect::<Vec<_>>().join(" ");
        let ticks = |values: &[f64]| written(Scale::linear(values.iter().copied()));
        assert_eq!(ticks(&[281.0, 567.0]), "250 300 350 400 450 500 550 600");
        assert_eq!(ticks(&[0.0, 12.0]), "0 2 4 6 8 10 12");
        assert_eq!(ticks(&[3.0]), "2.4 2.6 2.8 3 3.2 3.4 3.6");
        assert_eq!(ticks(&[]), "0 0.2 0.4 0.6 0.8 1");
        assert_eq!(ticks(&[0.0, 0.0]), "0 0.2 0.4 0.6 0.8 1");
        assert_eq!(written(Scale::logarithmic([0.13, 300.0].into_iter())), "0.1 1 10 100 1000");
        assert_eq!(written(Scale::logarithmic([0.0, 0.0].into_iter())), "0.0001 0.001 0.01");
        assert_eq!(written(Scale::tight([0.0, 99.0].into_iter())), "0 20 40 60 80");
    }

    #[test]
    fn values_lie_between_the_ends() {
        let scale = Scale::from_zero([f64::NAN, 8.0].into_iter());
        assert!((scale.share(2.0) - 0.25).abs() < 1e-12 && scale.share(99.0) <= 1.0);
        assert_eq!(Scale::from_zero([0.0, 0.0].into_iter()).ends(), (0.0, 1.0));
        let scale = Scale::Logarithmic { low: -1, high: 1 };
        assert!((scale.share(1.0) - 0.5).abs() < 1e-12);
        assert!(scale.share(0.0) <= 0.0);
    }

    #[test]
    fn an_outlier_does_not_flatten_the_others() {
        let usual = || (0..99).map(|i| f64::from(i % 9));
        assert_eq!(Scale::with_outliers(usual()), Scale::from_zero(usual()));
        let scale = Scale::with_outliers(usual().chain([4000.0]));
        assert_eq!(scale, Scale::Compressed { high: 4 });
        assert!(scale.share(8.0) > 0.2 && scale.share(4000.0) < 1.0 && scale.share(0.0) <= 0.0);
        assert_eq!(scale.ticks(), [0.0, 1.0, 10.0, 100.0, 1000.0, 10_000.0]);
    }

    #[test]
    fn ticks_are_written_without_noise() {
        assert_eq!([0.1 + 0.2, 250.0, -0.0].map(label), ["0.3", "250", "0"]);
    }
}
