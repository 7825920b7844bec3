//! Errors and panics in the logs of the replicas, with and without a fault at that time.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

/// Time of a fault and of what follows from it.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) name: &'static str,
    pub(super) from: Timestamp,
    pub(super) until: Timestamp,
}

/// An error of a log.
#[derive(Debug)]
pub(super) struct Line {
    at: Option<Timestamp>,
    text: String,
    pub(super) is_panic: bool,
}

/// The errors and panics of these logs, one JSON object a line.
pub(super) fn read(logs: &[String]) -> Vec<Line> {
    let mut all = Vec::new();
    for line in logs.iter().flat_map(|log| log.lines()) {
        let is_panic = line.contains("panicked");
        let value: Value = serde_json::from_str(line).unwrap_or_default();
        let level = value["level"].as_str().unwrap_or_default();
        if !is_panic && !level.eq_ignore_ascii_case("error") {
            continue;
        }
        let text = value["msg"].as_str().unwrap_or(line).to_owned();
        all.push(Line { at: value["ts"].as_str().and_then(|ts| ts.parse().ok()), text, is_panic });
    }
    all
}

/// Errors at a time without a fault, by text.
pub(super) fn outside(errors: &[Line], windows: &[Window]) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    let is_inside = |at: Timestamp| windows.iter().any(|window| window.from <= at && at <= window.until);
    for line in errors.iter().filter(|line| line.at.is_none_or(|at| !is_inside(at))) {
        *found.entry(line.text.clone()).or_default() += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_errors_without_a_fault_and_every_panic() -> anyhow::Result<()> {
        let log = concat!(
            r#"{"ts":"2026-11-30T10:00:00Z","level":"INFO","msg":"fine"}"#,
            "\n",
            r#"{"ts":"2026-11-30T10:00:01Z","level":"ERROR","msg":"during a fault"}"#,
            "\n",
            r#"{"ts":"2026-11-30T10:05:00Z","level":"ERROR","msg":"alone"}"#,
            "\n",
            "thread 'main' panicked at src/main.rs:1:1\n",
        );
        let errors = read(&[log.to_owned()]);
        assert_eq!(errors.iter().filter(|line| line.is_panic).count(), 1);
        let window = Window {
            name: "fault",
            from: "2026-11-30T10:00:00Z".parse()?,
            until: "2026-11-30T10:01:00Z".parse()?,
        };
        let found = outside(&errors, &[window]);
        assert_eq!(
            found.keys().map(String::as_str).collect::<Vec<_>>(),
            ["alone", "thread 'main' panicked at src/main.rs:1:1"]
        );
        Ok(())
    }
}
