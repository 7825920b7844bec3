//! Durations in Go notation (`1h30m`, `500ms`).

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Non-negative duration. Parses what Go's `time.ParseDuration` accepts, and prints Go's canonical form: `1m0s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration(Duration);

/// Errors of parsing a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// The text is empty or a number is missing.
    #[error("{0:?} is not a duration; use numbers with units, such as \"60s\", \"1h30m\" or \"500ms\"")]
    Malformed(String),
    /// A number has no unit or an unknown one.
    #[error("{0:?} has no valid unit; use ns, us, ms, s, m or h, such as \"60s\"")]
    NoUnit(String),
    /// The duration is below 0.
    #[error("{0:?} is negative; use a duration of 0 or more")]
    Negative(String),
    /// The duration is above Go's maximum of about 292 years.
    #[error("{0:?} is too long; use at most 2562047h")]
    TooLong(String),
}

/// Go uses an `int64` of nanoseconds.
const LONGEST_NANOS: u128 = i64::MAX as u128;
const NANOS_PER_SECOND: u128 = 1_000_000_000;
const UNITS: &[(&str, u128)] = &[
    // Longer units first: `ms` would otherwise be read as `m`.
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", NANOS_PER_SECOND),
    ("m", 60 * NANOS_PER_SECOND),
    ("h", 3600 * NANOS_PER_SECOND),
];

/// A time span as people write it, in whole units: `42 s`, `8 min`, `3 h`, `2 d`.
///
/// ```
/// use std::time::Duration;
/// assert_eq!(wva_crds::duration::rounded(Duration::from_secs(484)), "8 min");
/// ```
#[must_use]
pub fn rounded(span: Duration) -> String {
    let seconds = span.as_secs() + u64::from(span.subsec_millis() >= 500);
    let whole = |unit: u64| (seconds + unit / 2) / unit;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", whole(60)),
        7_200..172_800 => format!("{} h", whole(3_600)),
        _ => format!("{} d", whole(86_400)),
    }
}

impl GoDuration {
    /// Whole seconds.
    #[must_use]
    pub const fn from_secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// The duration as a type of the standard library.
    #[must_use]
    pub const fn get(self) -> Duration {
        self.0
    }

    /// Whether the duration is zero.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0.is_zero()
    }
}

impl From<Duration> for GoDuration {
    fn from(d: Duration) -> Self {
        Self(d)
    }
}

impl From<GoDuration> for Duration {
    fn from(d: GoDuration) -> Self {
        d.0
    }
}

impl FromStr for GoDuration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        let malformed = || DurationError::Malformed(text.to_owned());
        let rest = text.strip_prefix('+').unwrap_or(text);
        if let Some(positive) = rest.strip_prefix('-') {
            // "-0s" is zero in Go; other negative durations are refused.
            if positive.starts_with(['+', '-']) {
                // One sign, as in Go. This also bounds the recursion.
                return Err(malformed());
            }
            return match positive.parse::<Self>() {
                Ok(d) if d.is_zero() => Ok(d),
                Ok(_) => Err(DurationError::Negative(text.to_owned())),
                Err(_) => Err(malformed()),
            };
        }
        if rest == "0" {
            return Ok(Self::default());
        }
        if rest.is_empty() {
            return Err(malformed());
        }
        let mut nanos: u128 = 0;
        let mut rest = rest;
        while !rest.is_empty() {
            let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
            let (number, tail) = rest.split_at(number_end);
            let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
            if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
                return Err(malformed());
            }
            let (unit, factor) = UNITS
                .iter()
                .find(|(u, _)| tail.starts_with(u))
                .ok_or_else(|| DurationError::NoUnit(text.to_owned()))?;
            nanos = to_nanos(whole, fraction, *factor)
                .and_then(|n| nanos.checked_add(n))
                .filter(|n| *n <= LONGEST_NANOS)
                .ok_or_else(|| DurationError::TooLong(text.to_owned()))?;
            rest = &tail[unit.len()..];
        }
        let seconds = u64::try_from(nanos / NANOS_PER_SECOND).map_err(|_| malformed())?;
        let subsecond = u32::try_from(nanos % NANOS_PER_SECOND).map_err(|_| malformed())?;
        Ok(Self(Duration::new(seconds, subsecond)))
    }
}

/// Nanoseconds of `whole.fraction` units, truncated as in Go. `None` on overflow.
fn to_nanos(whole: &str, fraction: &str, factor: u128) -> Option<u128> {
    let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut nanos = whole.checked_mul(factor)?;
    let mut weight = factor;
    for digit in fraction.chars().take(16) {
        weight /= 10;
        nanos = nanos.checked_add(u128::from(digit.to_digit(10)?) * weight)?;
    }
    Some(nanos)
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.0.as_nanos();
        if total == 0 {
            return f.write_str("0s");
        }
        if total < NANOS_PER_SECOND {
            let (unit, factor) = match total {
                0..1_000 => ("ns", 1),
                1_000..1_000_000 => ("µs", 1_000),
                _ => ("ms", 1_000_000),
            };
            return write!(f, "{}{unit}", decimal(total, factor));
        }
        let seconds = total / NANOS_PER_SECOND;
        let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if hours > 0 || minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        write!(f, "{}s", decimal(total % (60 * NANOS_PER_SECOND), NANOS_PER_SECOND))
    }
}

fn decimal(value: u128, factor: u128) -> String {
    let (whole, fraction) = (value / factor, value % factor);
    if fraction == 0 {
        return whole.to_string();
    }
    let width = factor.to_string().len() - 1;
    format!("{whole}.{fraction:0width$}").trim_end_matches('0').to_owned()
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(DurationVisitor)
    }
}

struct DurationVisitor;

impl Visitor<'_> for DurationVisitor {
    type Value = GoDuration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration with a unit, such as \"60s\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<GoDuration, E> {
        text.parse().map_err(E::custom)
    }
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, millis: u64, printed: &str) {
        let d: GoDuration = text.parse().unwrap();
        assert_eq!(d.get(), Duration::from_millis(millis), "{text}");
        assert_eq!(d.to_string(), printed, "{text}");
    }

    #[test]
    fn rounds_to_the_unit_that_people_use() {
        let rounded = |seconds: f64| rounded(Duration::from_secs_f64(seconds));
        let spans = [0.0, 56.747, 119.4, 120.0, 484.0, 7_199.0, 7_200.0, 90_000.0, 172_800.0];
        let wanted = ["0 s", "57 s", "119 s", "2 min", "8 min", "120 min", "2 h", "25 h", "2 d"];
        assert_eq!(spans.map(rounded), wanted);
    }

    #[test]
    fn error_for_a_number_shows_the_notation() {
        let error = serde_json::from_str::<GoDuration>("10").unwrap_err().to_string();
        assert!(error.contains(r#"integer `10`, expected a duration with a unit, such as "60s""#), "{error}");
        assert_eq!(serde_json::from_str::<GoDuration>(r#""10s""#).unwrap(), "10s".parse().unwrap());
    }

    #[test]
    fn parses_and_prints_like_go() {
        check("60s", 60_000, "1m0s");
        check("1h30m", 5_400_000, "1h30m0s");
        check("500ms", 500, "500ms");
        check("1.5h", 5_400_000, "1h30m0s");
        check(".5s", 500, "500ms");
        check("1.5s", 1_500, "1.5s");
        check("0", 0, "0s");
        check("-0s", 0, "0s");
        check("1m1ms", 60_001, "1m0.001s");
    }

    #[test]
    fn reports_the_kind_of_error() {
        let refused = |text: &str| text.parse::<GoDuration>().unwrap_err();
        assert_eq!(refused(""), DurationError::Malformed(String::new()));
        assert_eq!(refused("60"), DurationError::NoUnit("60".into()));
        assert_eq!(refused("1d"), DurationError::NoUnit("1d".into()));
        assert_eq!(refused("-5s"), DurationError::Negative("-5s".into()));
        for signs in ["--5s", "-+5s", "+-+5s"] {
            assert_eq!(refused(signs), DurationError::Malformed(signs.into()));
        }
        let many = "-".repeat(1 << 20);
        assert_eq!(refused(&many), DurationError::Malformed(many.clone()), "without a stack overflow");
        assert_eq!(refused("1..5s"), DurationError::Malformed("1..5s".into()));
        assert_eq!(refused("9999999999h"), DurationError::TooLong("9999999999h".into()));
        assert!(matches!(refused("99999999999999999999999999999999999999999h"), DurationError::TooLong(_)));
    }
}
