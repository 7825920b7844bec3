//! `--sweep FIELD=A..B[/N]`.

use std::str::FromStr;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sweep {
    pub(super) field: String,
    from: f64,
    to: f64,
    steps: u32,
}

const DEFAULT_STEPS: u32 = 6;
/// Each value gets a table.
const MAX_STEPS: u32 = 100;

impl FromStr for Sweep {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let malformed = || {
            format!(
                "{text:?} is not a sweep: write a field and a range, such as kvSpareTrigger=0.05..0.3 or kvSpareTrigger=0.05..0.3/11"
            )
        };
        let (field, range) = text.split_once('=').ok_or_else(malformed)?;
        let (range, steps) = range.split_once('/').map_or((range, None), |(r, n)| (r, Some(n)));
        let (from, to) = range.split_once("..").ok_or_else(malformed)?;
        let number = |t: &str| t.parse::<f64>().ok().filter(|v| v.is_finite()).ok_or_else(malformed);
        let steps = steps.map_or(Ok(DEFAULT_STEPS), |n| n.parse().map_err(|_| malformed()))?;
        if field.is_empty() {
            return Err(malformed());
        }
        if !(2..=MAX_STEPS).contains(&steps) {
            return Err(format!("{steps} is not a valid number of values: use 2 to {MAX_STEPS}"));
        }
        Ok(Self { field: field.to_owned(), from: number(from)?, to: number(to)?, steps })
    }
}

impl Sweep {
    pub(super) fn values(&self) -> impl Iterator<Item = f64> + '_ {
        let step = (self.to - self.from) / f64::from(self.steps - 1);
        // Rounding avoids titles such as 0.15000000000000002.
        (0..self.steps).map(move |i| ((self.from + step * f64::from(i)) * 1e9).round() / 1e9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_values_evenly() {
        let values = |text: &str| text.parse::<Sweep>().map(|s| s.values().collect::<Vec<_>>());
        assert_eq!(values("kvSpareTrigger=0.05..0.3"), Ok(vec![0.05, 0.1, 0.15, 0.2, 0.25, 0.3]));
        assert_eq!(values("a.0.b=4..2/3"), Ok(vec![4.0, 3.0, 2.0]));
        for invalid in ["kvSpareTrigger", "=1..2", "a=1", "a=1..x", "a=1..2/0", "a=1..2/x", "a=1..2/1000"] {
            assert!(values(invalid).is_err(), "{invalid}");
        }
    }
}
