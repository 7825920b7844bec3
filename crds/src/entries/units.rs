//! Numbers with a unit and a range. A value that is not finite or out of range is refused where it enters, so that
//! no rule has to ask again; the JSON Schema of each says the same range.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::pattern::duration_pattern;
use crate::GoDuration;
use crate::duration::DurationError;

/// Why a number is refused.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{what} is {found}: give a number {range}")]
pub struct OutOfRange {
    /// What the number stands for.
    pub what: &'static str,
    /// The number that was found.
    pub found: f64,
    /// The range it has to be in, in words.
    pub range: &'static str,
}

/// A finite number with a name and a range: its type, and how it is read and written.
#[doc(hidden)]
#[macro_export]
macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident, $what:literal, $range:literal, $holds:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, ::serde::Serialize)]
        #[serde(into = "f64")]
        pub struct $name(f64);

        impl $name {
            /// The plain number.
            #[must_use]
            pub const fn get(self) -> f64 {
                self.0
            }
        }

        impl TryFrom<f64> for $name {
            type Error = $crate::entries::OutOfRange;

            fn try_from(found: f64) -> Result<Self, Self::Error> {
                let holds: fn(f64) -> bool = $holds;
                if found.is_finite() && holds(found) {
                    // Adding zero turns -0.0 into 0.0, which would print differently.
                    Ok(Self(found + 0.0))
                } else {
                    Err($crate::entries::OutOfRange { what: $what, found, range: $range })
                }
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::entries::number(deserializer, $range)
            }
        }

        impl From<$name> for f64 {
            fn from(value: $name) -> f64 {
                value.0
            }
        }
    };
}

/// Reads a number into the type of a quantity. What is no number is refused in the words of its range: a person who
/// wrote `"0.8"` has no use for the name of a type.
///
/// # Errors
/// The deserializer's own, or that the number is out of range.
#[doc(hidden)]
pub fn number<'de, D, T>(deserializer: D, range: &'static str) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<f64, Error = OutOfRange>,
{
    struct Number(&'static str);
    impl Visitor<'_> for Number {
        type Value = f64;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a number {}", self.0)
        }
        fn visit_f64<E: de::Error>(self, value: f64) -> Result<f64, E> {
            Ok(value)
        }
        #[expect(clippy::cast_precision_loss, reason = "no field tells apart numbers beyond 2^53")]
        fn visit_u64<E: de::Error>(self, value: u64) -> Result<f64, E> {
            Ok(value as f64)
        }
        #[expect(clippy::cast_precision_loss, reason = "no field tells apart numbers beyond 2^53")]
        fn visit_i64<E: de::Error>(self, value: i64) -> Result<f64, E> {
            Ok(value as f64)
        }
    }
    T::try_from(deserializer.deserialize_f64(Number(range))?).map_err(de::Error::custom)
}

/// The schema of a type, written where every entry uses it. A derived one would repeat comments meant for readers of this
/// code.
macro_rules! schema {
    ($name:ident, $schema:tt) => {
        impl ::schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> ::std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut ::schemars::SchemaGenerator) -> ::schemars::Schema {
                ::schemars::json_schema!($schema)
            }
        }
    };
}
pub(super) use schema;

quantity!(
    /// A share or threshold, dimensionless, 0..=1.
    Fraction, "the share", "from 0 to 1", |v| (0.0..=1.0).contains(&v)
);
schema!(Fraction, { "type": "number", "minimum": 0, "maximum": 1 });

quantity!(
    /// A share or threshold above 0, dimensionless, (0, 1].
    PositiveFraction, "the threshold", "above 0, at most 1", |v| v > 0.0 && v <= 1.0
);
schema!(PositiveFraction, { "type": "number", "exclusiveMinimum": 0, "maximum": 1 });

quantity!(
    /// Any other figure that cannot be negative: requests, tokens, bytes, blocks, a tolerance. Finite, at least 0.
    Amount, "the figure", "of 0 or more", |v| v >= 0.0
);
schema!(Amount, { "type": "number", "minimum": 0 });

impl Amount {
    /// A constant of the program. What is out of range is 0, so that no value of this type is invalid.
    #[must_use]
    pub const fn constant(value: f64) -> Self {
        if value.is_finite() && value > 0.0 { Self(value) } else { Self(0.0) }
    }
}

quantity!(
    /// A latency objective in milliseconds, finite and above 0.
    Millis, "the objective in milliseconds", "above 0", |v| v > 0.0
);
schema!(Millis, { "type": "number", "exclusiveMinimum": 0 });

const WHOLE_FROM_ONE: &str = "that is whole, 1 or more";

/// Rank of a service class, a whole number from 1, which is the most important.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(into = "u32")]
pub struct Priority(u32);

schema!(Priority, { "type": "integer", "minimum": 1, "maximum": u32::MAX });

impl Priority {
    /// The plain number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl TryFrom<f64> for Priority {
    type Error = OutOfRange;

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the number is whole and within the range of u32"
    )]
    fn try_from(found: f64) -> Result<Self, OutOfRange> {
        // JSON Schema counts 1.0 as an integer, and so does a person.
        if found.fract() == 0.0 && (1.0..=f64::from(u32::MAX)).contains(&found) {
            Ok(Self(found as u32))
        } else {
            Err(OutOfRange { what: "the priority", found, range: WHOLE_FROM_ONE })
        }
    }
}

impl<'de> Deserialize<'de> for Priority {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        number(deserializer, WHOLE_FROM_ONE)
    }
}

impl From<Priority> for u32 {
    fn from(priority: Priority) -> u32 {
        priority.0
    }
}

/// A duration above 0, in Go's notation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "GoDuration", into = "GoDuration")]
pub struct PositiveDuration(GoDuration);

schema!(PositiveDuration, { "type": "string", "pattern": duration_pattern() });

/// Why a text or a duration is no duration above 0.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PositiveDurationError {
    /// No duration at all.
    #[error(transparent)]
    Malformed(#[from] DurationError),
    /// Zero, or less than a nanosecond.
    #[error("the duration is 0: give one above 0, such as \"10m\"")]
    Zero,
}

impl PositiveDuration {
    /// The duration.
    #[must_use]
    pub const fn get(self) -> GoDuration {
        self.0
    }
}

impl TryFrom<GoDuration> for PositiveDuration {
    type Error = PositiveDurationError;

    fn try_from(duration: GoDuration) -> Result<Self, PositiveDurationError> {
        if duration.is_zero() { Err(PositiveDurationError::Zero) } else { Ok(Self(duration)) }
    }
}

impl FromStr for PositiveDuration {
    type Err = PositiveDurationError;

    fn from_str(text: &str) -> Result<Self, PositiveDurationError> {
        text.parse::<GoDuration>()?.try_into()
    }
}

impl From<PositiveDuration> for GoDuration {
    fn from(duration: PositiveDuration) -> Self {
        duration.0
    }
}
