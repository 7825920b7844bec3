//! Numbers with a unit and a range. Constructors reject other values, so rules need no checks.

use std::fmt;
use std::time::Duration;

use schemars::{Schema, SchemaGenerator, json_schema};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
pub use wva_crds::entries::{Amount, Fraction, Millis, OutOfRange, PositiveFraction};
use wva_crds::{GoDuration, quantity};

quantity!(
    /// Share of a replica's KV cache in use, 0 to 1. Source: `vllm:kv_cache_usage_perc`.
    KvUsage, "the KV cache use", "from 0 to 1", |v| (0.0..=1.0).contains(&v)
);
quantity!(
    /// Waiting requests of a replica, 0 or more. Source: `vllm:num_requests_waiting`.
    QueueLength, "the queue length", "of 0 or more", |v| v >= 0.0
);

/// Cost of one replica in the user's unit, 0 or more. Serialized as text, like `spec.variantCost`.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Cost(f64);

impl Cost {
    /// The number.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl Default for Cost {
    /// `wva_crds::names::DEFAULT_VARIANT_COST`.
    fn default() -> Self {
        Self(10.0)
    }
}

impl TryFrom<f64> for Cost {
    type Error = OutOfRange;

    fn try_from(found: f64) -> Result<Self, OutOfRange> {
        Amount::try_from(found)
            .map(|amount| Self(amount.get()))
            .map_err(|error| OutOfRange { what: "the cost", ..error })
    }
}

/// Schema of a [`Cost`] in a file.
pub(crate) fn cost_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": ["string", "number"], "minimum": 0, "pattern": r"^\d+(\.\d+)?$"})
}

/// A text that is not a cost.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CostError {
    /// The text is not of the form `\d+(\.\d+)?`.
    #[error("the cost {found:?} is not a decimal number; use a number such as \"10.0\"")]
    Malformed {
        /// The text.
        found: String,
    },
    /// The number is not finite as a 64-bit number.
    #[error(transparent)]
    OutOfRange(#[from] OutOfRange),
}

impl std::str::FromStr for Cost {
    type Err = CostError;

    fn from_str(text: &str) -> Result<Self, CostError> {
        let malformed = || CostError::Malformed { found: text.to_owned() };
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        let well_formed = match text.split_once('.') {
            Some((whole, fraction)) => digits(whole) && digits(fraction),
            None => digits(text),
        };
        if !well_formed {
            return Err(malformed());
        }
        Ok(Self::try_from(text.parse::<f64>().map_err(|_| malformed())?)?)
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.to_string();
        f.write_str(&text)?;
        if text.contains('.') { Ok(()) } else { f.write_str(".0") }
    }
}

impl Serialize for Cost {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Cost {
    /// Accepts text, as in the resource, or a number, as in files written by hand.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CostVisitor;
        impl Visitor<'_> for CostVisitor {
            type Value = Cost;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a cost, such as \"10.0\"")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Cost, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Cost, E> {
                Cost::try_from(value).map_err(E::custom)
            }
            #[expect(clippy::cast_precision_loss, reason = "a cost beyond 2^53 ranks the same when rounded")]
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Cost, E> {
                self.visit_f64(value as f64)
            }
            #[expect(clippy::cast_precision_loss, reason = "a cost beyond 2^53 ranks the same when rounded")]
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Cost, E> {
                self.visit_f64(value as f64)
            }
        }
        deserializer.deserialize_any(CostVisitor)
    }
}

/// Difference that does not count: neither the order of a sum nor an inexact binary fraction must decide.
const EPSILON: f64 = 1e-9;

pub(crate) fn at_least(a: f64, b: f64) -> bool {
    a >= b - EPSILON
}

pub(crate) fn below(a: f64, b: f64) -> bool {
    !at_least(a, b)
}

/// Keeps infinity and NaN out of decisions.
pub(crate) fn to_finite(figure: f64) -> f64 {
    figure.min(f64::MAX)
}

/// Rounds to nine digits, so that a snapshot file reproduces the figure. NaN and negative figures become 0.
#[inline]
pub(crate) fn amount(figure: f64) -> Amount {
    let figure = figure.clamp(0.0, f64::MAX);
    let digits = 8 - decimal_exponent(figure);
    // Beyond -22..=22 powers of ten are not exact; no measured figure is that large.
    let rounded = match power_of_ten(digits.unsigned_abs()) {
        _ if figure >= 1e22 => figure,
        Some(scale) if digits >= 0 => nearest(figure * scale) / scale,
        Some(scale) => nearest(figure / scale) * scale,
        None => 0.0,
    };
    Amount::try_from(rounded).unwrap_or_default()
}

/// Largest `n` with `10^n` at most `figure`, from 1e-22 to 1e22. Without a logarithm, because a cycle calls it hundreds
/// of thousands of times.
fn decimal_exponent(figure: f64) -> i32 {
    let binary = (figure.to_bits() >> 52) as i32 - 1023;
    // log10(2) is 1233 / 4096; rounded down, the estimate is exact or 1 too small.
    let estimate = (binary * 1233) >> 12;
    let next = estimate + 1;
    let is_reached = match power_of_ten(next.unsigned_abs()) {
        Some(power) if next >= 0 => figure >= power,
        Some(power) => figure >= 1.0 / power,
        None => false,
    };
    if is_reached { next } else { estimate }
}

/// Nearest whole number of a figure with at most nine digits before the point.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
fn nearest(figure: f64) -> f64 {
    f64::from((figure + 0.5) as u32)
}

/// Exact in 64 bits.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18,
    1e19, 1e20, 1e21, 1e22,
];

/// `None`: not exact.
fn power_of_ten(exponent: u32) -> Option<f64> {
    POWERS.get(exponent as usize).copied()
}

/// Rounded to milliseconds for readable snapshot files.
pub(crate) fn to_duration(seconds: f64) -> GoDuration {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "`as` saturates, and NaN is 0"
    )]
    let millis = (seconds * 1000.0).round() as u64;
    // At most a hundred years, so that sums stay in range.
    Duration::from_millis(millis.min(3_155_760_000_000)).into()
}

pub(crate) fn seconds(span: GoDuration) -> f64 {
    span.get().as_secs_f64()
}

pub(crate) fn count(n: usize) -> f64 {
    f64::from(u32::try_from(n).unwrap_or(u32::MAX))
}

/// Mean of figures that are 0 or more; `None` without any.
pub(crate) fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (n, sum) = values.fold((0, 0.0), |(n, sum), value| (n + 1, sum + value));
    (n > 0).then(|| to_finite(sum) / count(n))
}

/// Order of two figures, equal within the tolerance for rounding.
pub(crate) fn compare(a: f64, b: f64) -> std::cmp::Ordering {
    if below(a, b) {
        std::cmp::Ordering::Less
    } else if below(b, a) {
        std::cmp::Ordering::Greater
    } else {
        std::cmp::Ordering::Equal
    }
}

pub(crate) fn to_u32(figure: f64) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "`as` saturates, and NaN is 0"
    )]
    let replicas = figure as u32;
    replicas
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_exponent_is_exact_at_powers_of_ten() {
        for n in -22_i32..=21 {
            let power: f64 = format!("1e{n}").parse().unwrap_or_default();
            assert_eq!(decimal_exponent(power), n, "{power:e}");
            assert_eq!(decimal_exponent(power.next_down()), n - 1, "below {power:e}");
            assert_eq!(decimal_exponent(9.99 * power), n, "{power:e}");
        }
    }

    #[test]
    fn amounts_have_nine_digits() {
        let rounded = [
            (0.0, 0.0),
            (-0.0, 0.0),
            (f64::NAN, 0.0),
            (-3.0, 0.0),
            (123_456.789_49, 123_456.789),
            (999_999_999.9, 1e9),
            (9_876_543_216.0, 9_876_543_220.0),
            (1.0 / 3.0, 0.333_333_333),
            (1e-15, 0.0),
            (1.234_567_890_12e21, 1.234_567_89e21),
            (1.234_567_890_12e25, 1.234_567_890_12e25),
        ];
        for (figure, expected) in rounded {
            assert!((amount(figure).get() - expected).abs() <= 1e-15 * expected, "{figure:e}");
        }
    }
}
