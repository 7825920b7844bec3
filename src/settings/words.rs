//! What the words mean that some settings take: each word of the table's row, so that none can be read as another one.

use tracing::Level;
use wva_controller::Actuation;
use wva_rules::InstancePolicy;

/// The words of one setting, that of the default first.
pub(super) type Words<T> = &'static [(&'static str, T)];

/// Where certificates come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CertMode {
    /// Where a folder is named from there, else made here.
    Unsaid,
    SelfMade,
    Files,
    Off,
}

/// How lines of the log are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// Text on a terminal, else JSON.
    Auto,
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
}

pub(super) const ACTUATION: Words<Actuation> = &[("signal", Actuation::Signal), ("scale", Actuation::Scale)];

pub(super) const INSTANCE_POLICY: Words<InstancePolicy> = &[
    ("inject", InstancePolicy::Inject),
    ("require", InstancePolicy::Require),
    ("ignore", InstancePolicy::Ignore),
];

pub(super) const CERT_MODE: Words<CertMode> = &[
    ("", CertMode::Unsaid),
    ("self", CertMode::SelfMade),
    ("files", CertMode::Files),
    ("off", CertMode::Off),
];

/// `None`: the verbosity says it.
pub(super) const LOG_LEVEL: Words<Option<Level>> = &[
    ("", None),
    ("error", Some(Level::ERROR)),
    ("warn", Some(Level::WARN)),
    ("info", Some(Level::INFO)),
    ("debug", Some(Level::DEBUG)),
];

pub(super) const LOG_FORMAT: Words<LogFormat> =
    &[("auto", LogFormat::Auto), ("json", LogFormat::Json), ("text", LogFormat::Text)];

/// What a word means. One that is not valid is told by the table, and what stands in for it is never used.
pub(super) fn meaning<T: Copy>(words: Words<T>, word: &str) -> T {
    let found = words.iter().find(|(known, _)| *known == word);
    found.unwrap_or(&words[0]).1
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use wva_crds::settings::{Kind, SETTINGS};

    use super::*;

    fn known<T: PartialEq>(words: Words<T>) -> Vec<&'static str> {
        for (i, (word, meaning)) in words.iter().enumerate() {
            assert!(words[..i].iter().all(|(_, other)| other != meaning), "{word} means the same as another");
        }
        words.iter().map(|(word, _)| *word).collect()
    }

    #[test]
    fn every_word_of_the_table_has_a_meaning_of_its_own() {
        for setting in SETTINGS {
            let Kind::OneOf(words) = setting.kind else { continue };
            let known = match setting.key {
                "WVA_ACTUATION" => known(ACTUATION),
                "WVA_INSTANCE_POLICY" => known(INSTANCE_POLICY),
                "WVA_CERT_MODE" => known(CERT_MODE),
                "LOG_LEVEL" => known(LOG_LEVEL),
                "LOG_FORMAT" => known(LOG_FORMAT),
                // Used as it is.
                "POOL_GROUP" => continue,
                key => panic!("nobody says what the words of {key} mean"),
            };
            assert_eq!(known.first(), setting.default.as_ref(), "{}: the default stands first", setting.key);
            let sorted = |words: &[&'static str]| words.iter().copied().collect::<BTreeSet<_>>();
            assert_eq!(sorted(&known), sorted(words), "{}", setting.key);
        }
    }
}
