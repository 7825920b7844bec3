//! Numbers with a unit and a range. Parsing refuses values that are not finite or out of range. The JSON Schema of each
//! type has the same range.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::pattern::duration_pattern;
use crate::GoDuration;
use crate::duration::DurationError;

/// Error of a number out of range.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{what} is {found}; use a number {range}")]
pub struct OutOfRange {
    /// Name of the quantity.
    pub what: &'static str,
    /// The number.
    pub found: f64,
    /// Description of the valid range.
    pub range: &'static str,
}

/// Defines the type of a finite number with a name and a range, with its conversions.
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
                    // Turns -0.0 into 0.0.
                    Ok(Self(found + 0.0))
                } else {
                    Err($crate::entries::OutOfRange { what: $what, found, range: $range })
                }
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::entries::deserialize_number(deserializer, $range)
            }
        }

        impl From<$name> for f64 {
            fn from(value: $name) -> f64 {
                value.0
            }
        }
    };
}

/// Deserializes a number into a quantity. The error for another type shows the valid range instead of a Rust type.
///
/// # Errors
/// Errors of the deserializer, or [`OutOfRange`].
#[doc(hidden)]
pub fn deserialize_number<'de, D, T>(deserializer: D, range: &'static str) -> Result<T, D::Error>
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
        #[expect(clippy::cast_precision_loss, reason = "no field needs precision beyond 2^53")]
        fn visit_u64<E: de::Error>(self, value: u64) -> Result<f64, E> {
            Ok(value as f64)
        }
        #[expect(clippy::cast_precision_loss, reason = "no field needs precision beyond 2^53")]
        fn visit_i64<E: de::Error>(self, value: i64) -> Result<f64, E> {
            Ok(value as f64)
        }
    }
    T::try_from(deserializer.deserialize_f64(Number(range))?).map_err(de::Error::custom)
}

/// Implements the JSON Schema of a type, inlined in each entry. A derived schema would contain the doc comments of the
/// type.
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
    /// A share or threshold, dimensionless, 0 to 1.
    Fraction, "the share", "from 0 to 1", |v| (0.0..=1.0).contains(&v)
);
schema!(Fraction, { "type": "number", "minimum": 0, "maximum": 1 });

quantity!(
    /// A share or threshold above 0, dimensionless, (0, 1].
    PositiveFraction, "the threshold", "above 0, at most 1", |v| v > 0.0 && v <= 1.0
);
schema!(PositiveFraction, { "type": "number", "exclusiveMinimum": 0, "maximum": 1 });

quantity!(
    /// Share of requests to keep within their objectives, in percent, 90 to 99.9.
    SloTarget, "the share", "from 90 to 99.9", |v| (90.0..=99.9).contains(&v)
);
schema!(SloTarget, { "type": "number", "minimum": 90, "maximum": 99.9 });

quantity!(
    /// Any other non-negative number: requests, tokens, bytes, blocks or a tolerance. Finite, 0 or more.
    Amount, "the value", "of 0 or more", |v| v >= 0.0
);
schema!(Amount, { "type": "number", "minimum": 0 });

impl Amount {
    /// A constant amount; a value out of range becomes 0.
    #[must_use]
    pub const fn constant(value: f64) -> Self {
        if value.is_finite() && value > 0.0 { Self(value) } else { Self(0.0) }
    }
}

quantity!(
    /// A latency objective in milliseconds, finite, above 0.
    Millis, "the objective in milliseconds", "above 0", |v| v > 0.0
);
schema!(Millis, { "type": "number", "exclusiveMinimum": 0 });

const WHOLE_FROM_ONE: &str = "that is whole, 1 or more";

/// Priority of a service class, a whole number; 1 is the highest.
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
        // JSON Schema accepts 1.0 as an integer.
        if found.fract() == 0.0 && (1.0..=f64::from(u32::MAX)).contains(&found) {
            Ok(Self(found as u32))
        } else {
            Err(OutOfRange { what: "the priority", found, range: WHOLE_FROM_ONE })
        }
    }
}

impl<'de> Deserialize<'de> for Priority {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_number(deserializer, WHOLE_FROM_ONE)
    }
}

impl From<Priority> for u32 {
    fn from(priority: Priority) -> u32 {
        priority.0
    }
}

/// A duration above 0 in Go notation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "GoDuration", into = "GoDuration")]
pub struct PositiveDuration(GoDuration);

schema!(PositiveDuration, { "type": "string", "pattern": duration_pattern() });

/// Errors of a duration above 0.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PositiveDurationError {
    /// The text is not a duration.
    #[error(transparent)]
    Malformed(#[from] DurationError),
    /// The duration is zero or below a nanosecond.
    #[error("the duration is 0; use a duration above 0, such as \"10m\"")]
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
