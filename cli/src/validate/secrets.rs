//! Lines that must not be printed: secret settings (also misspelt or commented out), lines below such a key, and URLs
//! with a password.

use wva_crds::settings::{Kind, SETTINGS};
use wva_crds::text::typo_count;

use super::input::Source;
use super::report::Finding;

/// Shortest misspelt key, in bytes.
const MIN_WORD: usize = 8;
/// Lines above a line that are searched for its key.
const MAX_LINES_ABOVE: usize = 200;

pub(super) fn is_printable(finding: &Finding<'_>) -> bool {
    let (line, start) = finding.source.line_of(finding.offset);
    // Base64 hides a secret from the checks below.
    let is_binary = finding.field.starts_with("binaryData");
    !is_binary
        && !names_secret(&finding.field)
        && !holds_secret(line)
        && !is_below_secret(finding.source, line, start)
}

fn holds_secret(line: &str) -> bool {
    names_secret(line) || holds_password(line)
}

/// An `@` in a URL, or in the value of a URL setting.
fn holds_password(line: &str) -> bool {
    line.contains('@') && (line.contains("://") || names_setting(line, &|s| s.kind == Kind::Url))
}

fn names_secret(text: &str) -> bool {
    names_setting(text, &|s| s.secret)
}

/// A less indented line above names a secret key, or the line before ends with one.
fn is_below_secret(source: &Source, line: &str, start: usize) -> bool {
    let indentation = |line: &str| line.len() - line.trim_start().len();
    let mut min = indentation(line);
    let before = source.text.get(..start).unwrap_or_default().lines().rev();
    for (n, above) in before.filter(|l| !l.trim().is_empty()).take(MAX_LINES_ABOVE).enumerate() {
        let is_parent = indentation(above) < min;
        if (is_parent || (n == 0 && above.trim_end().ends_with(':'))) && holds_secret(above) {
            return true;
        }
        min = min.min(indentation(above));
        if min == 0 {
            return false;
        }
    }
    false
}

/// Contains the key of a matching setting, exactly or misspelt. The exact key of another setting is not a misspelling.
fn names_setting(text: &str, matches: &dyn Fn(&wva_crds::settings::Setting) -> bool) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let keys: Vec<&str> = SETTINGS.iter().filter(|s| matches(s)).map(|s| s.key).collect();
    text.split(|c: char| !is_word(c)).filter(|w| w.len() >= MIN_WORD).any(|word| {
        let word = word.to_ascii_uppercase().replace('-', "_");
        keys.iter().any(|key| {
            word.contains(key) || (SETTINGS.iter().all(|s| s.key != word) && typo_count(&word, key).is_some())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognises_lines_with_a_secret() {
        for (line, secret) in [
            ("  PROMETHEUS_BEARER_TOKEN: hunter2", true),
            ("  # PROMETHEUS_BEARER_TOKN: hunter2", true),
            ("  PROMETHEUS_BAERER_TOKENS: hunter2", true),
            ("  EPP-METRIC-READER-BEARER-TOKEN: hunter2", true),
            ("  \"config.yaml\": \"V: 2\\nPROMETHEUS_BEARER_TOKEN: hunter2\"", true),
            ("  MY_PROMETHEUS_BEARER_TOKEN: hunter2", true),
            ("  PROMETHEUS_TOKEN_PATH: /x", false),
            ("  PROMETHEUS_BASE_URL: http://p:9090", false),
            ("  PROMETHEUS_BASE_URL: http://u:hunter2@p:9090", true),
            ("  PROMETHEUS_BASE_ULR: u:hunter2@p:9090", true),
            ("  image: registry:5000/x@sha256:0", false),
            ("  V: loud", false),
        ] {
            assert_eq!(holds_secret(line), secret, "{line}");
        }
    }

    #[test]
    fn recognises_lines_below_a_secret_key() {
        for (text, secret) in [
            ("data:\n  PROMETHEUS_BEARER_TOKEN:\n    @", true),
            ("data:\n  PROMETHEUS_BEARER_TOKEN: |\n    a\n\n      b\n    @", true),
            ("data: {PROMETHEUS_BEARER_TOKEN:\n  @", true),
            ("{\"PROMETHEUS_BEARER_TOKEN\":\n@", true),
            ("data:\n  PROMETHEUS_BEARER_TOKEN: a\n  @", false),
            ("data:\n  config.yaml: |\n    PROMETHEUS_BEARER_TOKEN: a\n  @", false),
        ] {
            let source = Source::new("f".to_owned(), text.replace('@', "V: x").into_bytes());
            let (line, start) = source.line_of(text.find('@').unwrap());
            assert_eq!(is_below_secret(&source, line, start), secret, "{text}");
        }
    }
}
