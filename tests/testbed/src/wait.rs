//! Waits for a condition with a deadline. All waits of the testbed use this module, so that every wait ends, and an
//! error says what was expected and what was observed last.

use std::time::Duration;

use anyhow::{Context as _, bail};

/// Poll interval: short against all waits, long enough for two cores.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Calls `probe` until it succeeds, at most for `deadline`. `what` completes the sentence "waited for ...".
pub async fn eventually<T>(
    what: &str,
    deadline: Duration,
    mut probe: impl AsyncFnMut() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let end = tokio::time::Instant::now() + deadline;
    let mut last = anyhow::anyhow!("it was not looked at once");
    loop {
        match tokio::time::timeout_at(end, probe()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => last = error,
            Err(_) => {
                return Err(
                    last.context(format!("waited {deadline:?} for {what}; the last look did not end"))
                );
            }
        }
        if tokio::time::Instant::now() + POLL_INTERVAL >= end {
            return Err(last.context(format!("waited {deadline:?} for {what}")));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Runs one call with a time limit: kube's client retries by itself, for minutes.
pub async fn within<T, E: Into<anyhow::Error>>(
    what: &str,
    limit: Duration,
    call: impl Future<Output = Result<T, E>>,
) -> anyhow::Result<T> {
    match tokio::time::timeout(limit, call).await {
        Ok(result) => result.map_err(Into::into).with_context(|| format!("{what} failed")),
        Err(_) => bail!("{what} took longer than {limit:?}"),
    }
}
