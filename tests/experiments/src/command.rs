//! Helpers of all commands: signals, output lines, durations.

use std::io::Write as _;
use std::time::Duration;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

/// Time limit of waits that normally take seconds.
pub(crate) const SOON: Duration = Duration::from_mins(2);

/// Runs until the work ends, or until Ctrl-C or SIGTERM, which drops the work and stops its processes. Returns
/// `false` after a signal.
pub(crate) async fn until_signal(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<bool> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    tokio::select! {
        done = work => done.map(|()| true),
        _ = interrupt.recv() => Ok(false),
        _ = terminate.recv() => Ok(false),
    }
}

/// Prints one line and flushes it.
pub(crate) fn print_line(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("cannot write to standard output")
}

/// Parses a duration such as `30s` or `2m`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let signed: k8s_openapi::jiff::SignedDuration = text.parse().map_err(|error| format!("{error}"))?;
    Duration::try_from(signed).map_err(|error| format!("{error}"))
}
