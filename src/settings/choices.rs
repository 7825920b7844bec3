//! Typed values of the settings with a fixed set of choices.

use tracing::Level;
use wva_controller::Actuation;
use wva_rules::InstancePolicy;

/// The default is first.
pub(super) type Choices<T> = &'static [(&'static str, T)];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CertMode {
    /// `Files` if a directory is set, else `SelfSigned`.
    Auto,
    SelfSigned,
    Files,
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// Text on a terminal, else JSON.
    Auto,
    /// One JSON object a line.
    Json,
    /// Readable text.
    Text,
}

pub(super) const ACTUATION: Choices<Actuation> =
    &[("signal", Actuation::Signal), ("scale", Actuation::Scale)];

pub(super) const INSTANCE_POLICY: Choices<InstancePolicy> = &[
    ("inject", InstancePolicy::Inject),
    ("require", InstancePolicy::Require),
    ("ignore", InstancePolicy::Ignore),
];

pub(super) const CERT_MODE: Choices<CertMode> = &[
    ("", CertMode::Auto),
    ("self", CertMode::SelfSigned),
    ("files", CertMode::Files),
    ("off", CertMode::Off),
];

/// `None`: the verbosity (`V`) determines the level.
pub(super) const LOG_LEVEL: Choices<Option<Level>> = &[
    ("", None),
    ("error", Some(Level::ERROR)),
    ("warn", Some(Level::WARN)),
    ("info", Some(Level::INFO)),
    ("debug", Some(Level::DEBUG)),
];

pub(super) const LOG_FORMAT: Choices<LogFormat> =
    &[("auto", LogFormat::Auto), ("json", LogFormat::Json), ("text", LogFormat::Text)];

/// An invalid choice was reported before; its value here is never used.
pub(super) fn choice<T: Copy>(choices: Choices<T>, text: &str) -> T {
    let found = choices.iter().find(|(known, _)| *known == text);
    found.unwrap_or(&choices[0]).1
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use wva_crds::settings::{Kind, SETTINGS};

    use super::*;

    fn known<T: PartialEq>(choices: Choices<T>) -> Vec<&'static str> {
        for (i, (text, value)) in choices.iter().enumerate() {
            assert!(choices[..i].iter().all(|(_, other)| other != value), "{text} equals another choice");
        }
        choices.iter().map(|(text, _)| *text).collect()
    }

    #[test]
    fn every_choice_of_the_table_has_its_own_value() {
        for setting in SETTINGS {
            let Kind::OneOf(texts) = setting.kind else { continue };
            let known = match setting.key {
                "WVA_ACTUATION" => known(ACTUATION),
                "WVA_INSTANCE_POLICY" => known(INSTANCE_POLICY),
                "WVA_CERT_MODE" => known(CERT_MODE),
                "LOG_LEVEL" => known(LOG_LEVEL),
                "LOG_FORMAT" => known(LOG_FORMAT),
                // Used as text.
                "POOL_GROUP" => continue,
                key => panic!("{key} has no typed choices"),
            };
            assert_eq!(known.first(), setting.default.as_ref(), "{}: the default is first", setting.key);
            let sorted = |texts: &[&'static str]| texts.iter().copied().collect::<BTreeSet<_>>();
            assert_eq!(sorted(&known), sorted(texts), "{}", setting.key);
        }
    }
}
