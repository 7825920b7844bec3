//! Each row of the table has an effect.

use wva_controller::PickerToken;
use wva_crds::settings::{Kind, SETTINGS, Setting};

use super::*;

/// Settings that give all others a meaning, in two ways that exclude each other.
const SELF_MADE: &[(&str, &str)] = &[URL, ("LEADER_ELECT", "true"), ("WEBHOOK_SERVICE", "service")];
const FROM_FILES: &[(&str, &str)] = &[
    URL,
    ("WEBHOOK_CERT_PATH", "/certs"),
    ("METRICS_CERT_PATH", "/metrics"),
    ("PROMETHEUS_CLIENT_CERT_PATH", "/client.crt"),
    ("PROMETHEUS_CLIENT_KEY_PATH", "/client.key"),
    ("EPP_METRIC_READER_CLIENT_CERT_PATH", "/client.crt"),
    ("EPP_METRIC_READER_CLIENT_KEY_PATH", "/client.key"),
];

/// What the process runs with, without the texts that it came from.
fn running(set: &[(&str, &str)]) -> Option<String> {
    let mut settings = read(&[], set).ok()?;
    let engine = settings.engine();
    settings.given.values = RawSettings::default();
    settings.maps.running.values.clear();
    settings.given.warnings.clear();
    let pickers = settings.controller.as_ref().map(|controller| {
        let token = match &controller.zero.picker_token {
            PickerToken::None => String::new(),
            PickerToken::Fixed(token) => token.clone(),
            PickerToken::Account { namespace, name } => format!("{namespace}/{name}"),
        };
        (token, controller.zero.picker_tls.clone())
    });
    Some(format!("{settings:?} {engine:?} {pickers:?}"))
}

/// Valid values of a kind.
fn candidates(kind: Kind) -> Vec<&'static str> {
    let words = if let Kind::OneOf(words) = kind { words } else { &[] };
    let others = [
        "true", "false", "7", "7m", "100s", "57s", "9s", ":7777", "127.0.0.1:7777", "https://other:9",
        "other", "a=b",
    ];
    words.iter().copied().chain(others).chain([r#"a="b""#]).filter(|text| kind.parse(text).is_ok()).collect()
}

fn has_effect(setting: &Setting) -> bool {
    [SELF_MADE, FROM_FILES].iter().any(|base| {
        let without: Vec<_> = base.iter().copied().filter(|(key, _)| *key != setting.key).collect();
        let before = running(base).unwrap();
        candidates(setting.kind)
            .into_iter()
            .filter_map(|text| running(&[&[(setting.key, text)], &*without].concat()))
            .any(|after| after != before)
    })
}

#[test]
fn each_row_changes_what_runs() {
    // The file has its own test: its keys are settings themselves.
    let rows = SETTINGS.iter().filter(|setting| setting.key != "CONFIG_FILE");
    let without: Vec<&str> = rows.filter(|row| !has_effect(row)).map(|row| row.key).collect();
    assert!(without.is_empty(), "nothing reads {without:?}");
}
