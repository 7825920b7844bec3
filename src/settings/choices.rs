//! Typed values of settings that have one of several words.

use serde::Deserialize;
use serde::de::value::{Error, StrDeserializer};
use serde::de::{DeserializeOwned, IntoDeserializer as _};

/// Value of `WVA_CERT_MODE`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum CertMode {
    /// Files if their folder is set.
    #[default]
    #[serde(rename = "")]
    Auto,
    #[serde(rename = "self")]
    SelfSigned,
    Files,
    Off,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    #[default]
    Auto,
    Json,
    Text,
}

/// Value of a word. An invalid word was reported before; its value here is never used.
pub(super) fn choice<T: DeserializeOwned + Default>(word: &str) -> T {
    parse(word).unwrap_or_default()
}

fn parse<T: DeserializeOwned>(word: &str) -> Result<T, Error> {
    let word: StrDeserializer<'_, Error> = word.into_deserializer();
    T::deserialize(word)
}

#[cfg(test)]
mod tests {
    use wva_crds::settings::{Kind, SETTINGS};
    use wva_rules::InstancePolicy;

    use super::*;

    #[track_caller]
    fn check<T: DeserializeOwned + Default + PartialEq + std::fmt::Debug>(words: &[&str], default: &str) {
        let values: Vec<T> = words.iter().map(|word| parse(word).unwrap()).collect();
        for (i, value) in values.iter().enumerate() {
            assert!(!values[..i].contains(value), "{} equals another choice", words[i]);
        }
        assert_eq!(parse::<T>(default).unwrap(), T::default(), "the default word is the default value");
        let unknown = parse::<T>("no such word").unwrap_err().to_string();
        let named = unknown.matches('`').count() / 2 - 1;
        assert_eq!(named, words.len(), "every value has a word in the table: {unknown}");
    }

    #[test]
    fn every_choice_of_the_table_has_its_own_value() {
        for setting in SETTINGS {
            let Kind::OneOf(words) = setting.kind else { continue };
            let default = setting.default.unwrap();
            match setting.key {
                "WVA_INSTANCE_POLICY" => check::<InstancePolicy>(words, default),
                "WVA_CERT_MODE" => check::<CertMode>(words, default),
                "LOG_FORMAT" => check::<LogFormat>(words, default),
                "WVA_ACTUATION" => assert_eq!((words, default), (&["signal", "scale"][..], "signal")),
                "LOG_LEVEL" => {
                    let is_level = |word: &&str| word.parse::<tracing::Level>().is_ok();
                    assert_eq!(words.iter().filter(|word| !is_level(word)).collect::<Vec<_>>(), [&""]);
                }
                // Used as text.
                "POOL_GROUP" => {}
                key => panic!("{key} has no typed choices"),
            }
        }
    }
}
