//! What a `VariantAutoscaling` asks for in its spec or, as the older spelling, in a label and an annotation. The spec wins.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::names::{ACCELERATOR_LABEL, MODE_ANNOTATION};
use crate::variant::VariantMode;

/// Handling of a decision: publish it, withhold it, or replace it by a fixed number.
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

impl Mode {
    /// Mode of `spec.mode` and `spec.fixedReplicas`. The schema requires a number from 0 in mode `Fixed`.
    #[must_use]
    pub fn from_spec(mode: VariantMode, fixed_replicas: Option<i32>) -> Self {
        match mode {
            VariantMode::Auto => Self::Auto,
            VariantMode::Recommend => Self::Recommend,
            VariantMode::Paused => Self::Paused,
            VariantMode::Fixed => {
                Self::Fixed(fixed_replicas.and_then(|n| u32::try_from(n).ok()).unwrap_or_default())
            }
        }
    }

    /// Mode without the number of replicas.
    #[must_use]
    pub fn kind(self) -> VariantMode {
        match self {
            Self::Auto => VariantMode::Auto,
            Self::Recommend => VariantMode::Recommend,
            Self::Paused => VariantMode::Paused,
            Self::Fixed(_) => VariantMode::Fixed,
        }
    }

    /// Mode of an object that may be invalid; `None` if it states a mode that cannot be read.
    #[must_use]
    pub fn stated(object: &Value) -> Option<Self> {
        match (Self::in_spec(object), object["metadata"]["annotations"].get(MODE_ANNOTATION)) {
            (Some(mode), _) => Some(mode),
            (None, _) if !object["spec"]["mode"].is_null() => None,
            (None, Some(Value::String(text))) => text.parse().ok(),
            (None, _) => Some(Self::Auto),
        }
    }

    /// Mode in the spec of an object; `None` if it is absent or invalid.
    #[must_use]
    pub fn in_spec(object: &Value) -> Option<Self> {
        let spec = &object["spec"];
        let mode = VariantMode::deserialize(&spec["mode"]).ok()?;
        let number = spec["fixedReplicas"].as_i64().and_then(|n| i32::try_from(n).ok());
        Some(Self::from_spec(mode, number))
    }
}

/// Accelerator of an object: `spec.accelerator`, else its label. `None` if it is absent, empty or no text.
#[must_use]
pub fn stated_accelerator(object: &Value) -> Option<&str> {
    let label = &object["metadata"]["labels"][ACCELERATOR_LABEL];
    [&object["spec"]["accelerator"], label]
        .into_iter()
        .find(|value| !value.is_null())?
        .as_str()
        .filter(|name| !name.is_empty())
}

/// Removes the label and the annotation that the spec overrules. Reviews refuse an object whose spellings differ; of a
/// stored one the spec wins.
pub fn remove_overruled(object: &mut Value) {
    for (field, map, key) in
        [("accelerator", "labels", ACCELERATOR_LABEL), ("mode", "annotations", MODE_ANNOTATION)]
    {
        let is_stated = !object["spec"][field].is_null();
        let texts = object.pointer_mut(&format!("/metadata/{map}")).and_then(Value::as_object_mut);
        if let Some(texts) = texts.filter(|_| is_stated) {
            texts.remove(key);
        }
    }
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
