//! `wva certs inspect`: certificates and keys, then notes and findings.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ArgMatches;
use k8s_openapi::jiff::Timestamp;
use wva_certs::inspect::{CertRow, Report};

use super::input;
use crate::output::{columns, print, printable, wrong_usage};

pub(super) fn inspect(arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    let mut inputs = Vec::new();
    for path in arguments.get_many::<PathBuf>("path").into_iter().flatten() {
        match input::read(path) {
            Ok(parts) => inputs.extend(parts),
            Err(error) => return Ok(wrong_usage(error)),
        }
    }
    let now = Timestamp::now();
    let report = wva_certs::inspect::inspect(&inputs, now);
    print(&render(&report, now))?;
    Ok(if report.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn render(report: &Report, now: Timestamp) -> String {
    let mut text = String::new();
    if !report.rows.is_empty() {
        text.push_str(&table(&report.rows, now));
        text.push('\n');
    }
    for (mark, lines) in [("ok:     ", &report.notes), ("FINDING:", &report.findings)] {
        for line in lines {
            let _ = writeln!(text, "{mark} {}", printable(line));
        }
    }
    text
}

fn table(rows: &[CertRow], now: Timestamp) -> String {
    const HEAD: [&str; 7] = ["WHERE", "WHAT", "NAMES", "CA", "NOT BEFORE", "NOT AFTER", "SHA-256"];
    let rows = rows.iter().map(|row| {
        [
            printable(&row.place),
            row.role.to_owned(),
            printable(&row.names),
            if row.is_ca { "yes" } else { "no" }.to_owned(),
            row.not_before.to_string(),
            format!("{} ({})", row.not_after, format_distance(row.not_after, now)),
            row.fingerprint.clone(),
        ]
    });
    columns(HEAD, &rows.collect::<Vec<_>>(), "  ")
}

/// Time between two timestamps, in days, hours or minutes.
fn format_distance(at: Timestamp, now: Timestamp) -> String {
    let seconds = at.duration_since(now).as_secs();
    let span = match seconds.abs() {
        s if s >= 2 * 86_400 => format!("{} days", s / 86_400),
        s if s >= 2 * 3600 => format!("{} hours", s / 3600),
        s => format!("{} minutes", s / 60),
    };
    if seconds >= 0 { format!("in {span}") } else { format!("{span} ago") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_control_characters() {
        let evil = || vec!["Secret \u{1b}[2Ja/b\r: tls.key is fine".to_owned()];
        let report = Report { notes: evil(), findings: evil(), ..Report::default() };
        let text = render(&report, Timestamp::UNIX_EPOCH);
        assert_eq!(text.lines().count(), 2);
        assert!(text.lines().all(|line| !line.contains(char::is_control)), "{text:?}");
    }
}
