//! How fields of entries are read.

use serde::{Deserialize, Deserializer};

/// Reads an optional field that must not be `null`.
pub(super) fn non_null<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// Reads optional text. Empty text counts as missing, as in maps of llm-d WVA.
pub(super) fn non_empty_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    String::deserialize(deserializer).map(|text| Some(text).filter(|text| !text.is_empty()))
}
