//! Rows of settings in the admission policies of the chart. The rest of the file is written by hand.

use std::path::Path;

use wva_crds::settings::{Kind, SETTINGS, Setting};
use wva_crds::text::FOUND_CHARS;

use crate::ROOT;
use crate::admission_policies::PATH;

/// The file with the present rows of settings that need a restart.
pub(crate) fn with_settings() -> String {
    let file = std::fs::read_to_string(Path::new(ROOT).join(PATH)).unwrap();
    let rows = SETTINGS.iter().filter(|setting| setting.in_map && !setting.mutable).map(row);
    let (before, rest) = file.split_once("      [\n").unwrap();
    let (_, after) = rest.split_once("      ]\n").unwrap();
    format!("{before}      [\n{}      ]\n{after}", rows.collect::<String>())
}

fn row(setting: &Setting) -> String {
    let kind = match setting.kind {
        _ if setting.secret => "secret",
        Kind::Bool => "bool",
        Kind::Int { .. } => "int",
        Kind::Duration { .. } => "duration",
        Kind::Address | Kind::LoopbackAddress => "address",
        Kind::Url => "url",
        Kind::Matchers => "trimmed",
        _ => "text",
    };
    let (old, default) = (setting.old_keys().collect::<Vec<_>>(), setting.default.unwrap_or_default());
    assert!(old.len() <= 1, "{}: the policy reads one older key", setting.key);
    assert!(default.len() <= FOUND_CHARS, "{}: the policy does not shorten defaults", setting.key);
    assert!(!default.contains(['\'', '\\']), "{}: the policy has no escapes", setting.key);
    let (key, old) = (setting.key, old.concat());
    format!("        {{'key': '{key}', 'old': '{old}', 'kind': '{kind}', 'default': '{default}'}},\n")
}
