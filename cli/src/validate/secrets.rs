//! Which lines of a file are not printed: those that hold a secret setting of the program, its name misspelt or
//! commented out included, what such a key stands above, and URLs with a password. They are pointed at instead.

use wva_crds::settings::{Kind, SETTINGS};
use wva_crds::text::typo_count;

use super::input::Source;
use super::report::Finding;

/// No shorter word is nearly the key of a secret.
const SHORTEST: usize = 8;
/// How far above a line its key is looked for.
const LINES: usize = 200;

/// Whether the line of a finding may be printed.
pub(super) fn may_be_shown(finding: &Finding<'_>) -> bool {
    let (line, start) = finding.source.line_of(finding.offset);
    !names_secret(&finding.field) && !holds_secret(line) && !below_secret(finding.source, line, start)
}

fn holds_secret(line: &str) -> bool {
    names_secret(line) || holds_password(line)
}

/// A password is before an `@`, in a URL or in what was meant to be one.
fn holds_password(line: &str) -> bool {
    line.contains('@') && (line.contains("://") || names(line, &|s| s.kind == Kind::Url))
}

fn names_secret(text: &str) -> bool {
    names(text, &|s| s.secret)
}

/// Whether a line continues what stands under a secret key: a line above it that is indented less names one, or the
/// line before it ends with one.
fn below_secret(source: &Source, line: &str, start: usize) -> bool {
    let indentation = |line: &str| line.len() - line.trim_start().len();
    let mut least = indentation(line);
    let before = source.text.get(..start).unwrap_or_default().lines().rev();
    for (n, above) in before.filter(|l| !l.trim().is_empty()).take(LINES).enumerate() {
        let parent = indentation(above) < least;
        if (parent || (n == 0 && above.trim_end().ends_with(':'))) && holds_secret(above) {
            return true;
        }
        least = least.min(indentation(above));
        if least == 0 {
            return false;
        }
    }
    false
}

/// Whether a text has a word that is the key of such a setting, or nearly so.
fn names(text: &str, such: &dyn Fn(&wva_crds::settings::Setting) -> bool) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let keys: Vec<&str> = SETTINGS.iter().filter(|s| such(s)).map(|s| s.key).collect();
    text.split(|c: char| !word(c)).filter(|w| w.len() >= SHORTEST).any(|found| {
        let found = found.to_ascii_uppercase().replace('-', "_");
        // What differs from a secret by more than from another setting is that other one.
        keys.iter().any(|key| {
            found.contains(key)
                || (SETTINGS.iter().all(|s| s.key != found) && typo_count(&found, key).is_some())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_a_secret_are_known() {
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
    fn what_stands_under_a_secret_key_is_one() {
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
            assert_eq!(below_secret(&source, line, start), secret, "{text}");
        }
    }
}
