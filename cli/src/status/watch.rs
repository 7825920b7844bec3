//! `wva status --watch`: reads again and again, and shows each reading until a signal ends it.

use std::time::Duration;

use wva_runtime::{Backoff, Signals};

use super::Reading;
use super::changes::ChangedRows;
use super::frame::Screen;
use crate::output::can_redraw;

/// Longest time between two reads that fail.
const MAX_RETRY: Duration = Duration::from_secs(30);

/// Shows the reading every `interval`. A failed read is reported and repeated; only the first one ends the command.
pub(super) async fn watch(
    format: &str,
    interval: Duration,
    read: impl AsyncFn() -> anyhow::Result<Reading>,
) -> anyhow::Result<()> {
    let mut signals = Signals::listen()?;
    let mut retry = Backoff::new(interval, MAX_RETRY.max(interval));
    let mut view = View::new(format, interval);
    let mut is_first = true;
    loop {
        let reading = tokio::select! {
            reading = read() => reading,
            _ = signals.recv() => break,
        };
        let (is_open, delay) = match reading {
            Ok(reading) => {
                retry.reset();
                (view.show(reading)?, interval)
            }
            Err(error) if is_first => return Err(error),
            Err(error) => {
                let delay = retry.next_delay();
                (view.show_error(&format!("{error:#}"), delay)?, delay)
            }
        };
        is_first = false;
        if !is_open {
            break;
        }
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            _ = signals.recv() => break,
        }
    }
    Ok(())
}

enum View {
    Screen(Screen),
    Rows(ChangedRows),
}

impl View {
    fn new(format: &str, interval: Duration) -> Self {
        if can_redraw() && matches!(format, "text" | "wide") {
            Self::Screen(Screen::new(format == "wide", interval))
        } else {
            Self::Rows(ChangedRows::new(format))
        }
    }

    /// Returns false if the reader of standard output is gone.
    fn show(&mut self, reading: Reading) -> anyhow::Result<bool> {
        match self {
            Self::Screen(screen) => screen.show(reading),
            Self::Rows(rows) => rows.show(reading),
        }
    }

    fn show_error(&mut self, error: &str, delay: Duration) -> anyhow::Result<bool> {
        match self {
            Self::Screen(screen) => screen.show_error(error, delay),
            Self::Rows(rows) => {
                rows.show_error(error);
                Ok(true)
            }
        }
    }
}
