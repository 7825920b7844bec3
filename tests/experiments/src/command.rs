//! What all commands share: their end by a signal, their lines, their durations.

use std::io::Write as _;
use std::time::Duration;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

/// Longest wait for what takes seconds.
pub(crate) const SOON: Duration = Duration::from_mins(2);

/// Runs until the work ends, or until Ctrl-C or SIGTERM, which drops it and so ends what it started. `false` after a signal.
pub(crate) async fn until_signal(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<bool> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    tokio::select! {
        done = work => done.map(|()| true),
        _ = interrupt.recv() => Ok(false),
        _ = terminate.recv() => Ok(false),
    }
}

/// Prints one line at once.
pub(crate) fn say(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("cannot write to standard output")
}

/// Reads a duration such as `30s` or `2m`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let signed: k8s_openapi::jiff::SignedDuration = text.parse().map_err(|error| format!("{error}"))?;
    Duration::try_from(signed).map_err(|error| format!("{error}"))
}
