//! What the commands on the testbed share: their end by a signal, their lines, their durations.

use std::io::Write as _;
use std::time::Duration;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

/// Runs to the end, or to Ctrl-C or SIGTERM: then everything that was started is dropped, and so ended.
pub(crate) async fn until_signal<T>(
    work: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<Option<T>> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    tokio::select! {
        done = work => done.map(Some),
        _ = interrupt.recv() => anyhow::bail!("interrupted"),
        _ = terminate.recv() => anyhow::bail!("terminated"),
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
