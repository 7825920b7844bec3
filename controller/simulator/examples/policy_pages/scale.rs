//! Axes of plots, with ticks at round numbers.

/// Range of an axis: equal distances for equal differences.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    /// Scale from 0 to a round number; to 1 if all values are 0.
    pub(crate) fn from_zero(values: impl Iterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.filter(|value| value.is_finite()).chain([0.0]).collect();
        if values.iter().all(|value| value.abs() <= 0.0) {
            return Self { low: 0.0, high: 1.0 };
        }
        Self::linear(values.into_iter())
    }

    /// Scale of shares in percent, which ends at 100 at most.
    pub(crate) fn percent(values: impl Iterator<Item = f64>) -> Self {
        let Self { low, high } = Self::linear(values);
        Self { low, high: high.min(100.0) }
    }

    /// Scale from a round number to a round number.
    pub(crate) fn linear(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = range(values);
        let step = step(low, high);
        Self { low: (low / step).floor() * step, high: (high / step).ceil() * step }
    }

    /// Scale from the least value to the greatest.
    pub(crate) fn tight(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = range(values);
        Self { low, high }
    }

    /// Position of a value: 0 at the low end, 1 at the high end.
    pub(crate) fn share(self, value: f64) -> f64 {
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    /// Round values from the low end to the high end.
    pub(crate) fn ticks(self) -> Vec<f64> {
        let Self { low, high } = self;
        let step = step(low, high);
        let first = (low / step - 1e-9).ceil();
        let count = ((high / step + 1e-9).floor() - first).max(0.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most some ten ticks")]
        (0..=count as u16).map(|i| (first + f64::from(i)) * step).collect()
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

/// Text of a tick.
pub(crate) fn label(value: f64) -> String {
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
        assert_eq!(written(Scale::tight([0.0, 99.0].into_iter())), "0 20 40 60 80");
    }

    #[test]
    fn values_lie_between_the_ends() {
        let scale = Scale::from_zero([f64::NAN, 8.0].into_iter());
        assert!((scale.share(2.0) - 0.25).abs() < 1e-12 && scale.share(99.0) <= 1.0);
        assert_eq!(Scale::from_zero([0.0, 0.0].into_iter()), Scale { low: 0.0, high: 1.0 });
    }

    #[test]
    fn ticks_are_written_without_noise() {
        assert_eq!([0.1 + 0.2, 250.0, -0.0].map(label), ["0.3", "250", "0"]);
    }
}
