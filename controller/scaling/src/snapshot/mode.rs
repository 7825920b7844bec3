//! The annotation `wva.llmd.ai/mode`: publish a decision, withhold it, or replace it by a fixed number.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Handling of a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub enum Mode {
    /// Publish the decision.
    #[default]
    Auto,
    /// Show the decision, publish nothing.
    Recommend,
    /// Publish the last target.
    Paused,
    /// Publish this number of replicas, within the bounds.
    Fixed(u32),
}

/// A text that is not a mode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is not a mode; use auto, recommend, paused or fixed=N, such as fixed=3")]
pub struct ModeError {
    /// The text.
    pub found: String,
}

impl FromStr for Mode {
    type Err = ModeError;

    fn from_str(text: &str) -> Result<Self, ModeError> {
        let unknown = || ModeError { found: text.to_owned() };
        match text {
            "" | "auto" => Ok(Self::Auto),
            "recommend" => Ok(Self::Recommend),
            "paused" => Ok(Self::Paused),
            _ => {
                let number = text.strip_prefix("fixed=").ok_or_else(unknown)?;
                // `u32::from_str` accepts "+3".
                if !number.bytes().all(|b| b.is_ascii_digit()) {
                    return Err(unknown());
                }
                number.parse().map(Self::Fixed).map_err(|_| unknown())
            }
        }
    }
}

impl TryFrom<String> for Mode {
    type Error = ModeError;

    fn try_from(text: String) -> Result<Self, ModeError> {
        text.parse()
    }
}

impl From<Mode> for String {
    fn from(mode: Mode) -> Self {
        mode.to_string()
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Recommend => f.write_str("recommend"),
            Self::Paused => f.write_str("paused"),
            Self::Fixed(n) => write!(f, "fixed={n}"),
        }
    }
}
