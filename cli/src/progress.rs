//! Progress bar on a terminal: share of all runs, and the time that the rest takes.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const WIDTH: usize = 30;

/// Counts the finished runs; threads share it.
pub(crate) struct Progress {
    runs: usize,
    done: AtomicUsize,
    begin: Instant,
    is_terminal: bool,
}

impl Progress {
    pub(crate) fn new(runs: usize) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        let progress = Self { runs, done: AtomicUsize::new(0), begin: Instant::now(), is_terminal };
        progress.write(&progress.bar(0, Duration::ZERO));
        progress
    }

    pub(crate) fn count(&self, scenario: &str, policy: &str) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        self.write(&format!("{}  {scenario}: {policy}", self.bar(done, self.begin.elapsed())));
    }

    /// `[######........]  42 %, 12 s left`.
    fn bar(&self, done: usize, elapsed: Duration) -> String {
        let filled = WIDTH * done / self.runs.max(1);
        let (bar, rest) = ("#".repeat(filled), ".".repeat(WIDTH - filled));
        let percent = 100 * done / self.runs.max(1);
        let left = match u32::try_from(done) {
            Ok(done @ 1..) => {
                let left = elapsed / done * u32::try_from(self.runs).unwrap_or(u32::MAX).saturating_sub(done);
                format!(", {} s left", left.as_secs())
            }
            _ => String::new(),
        };
        format!("[{bar}{rest}] {percent:>3} %{left}")
    }

    fn write(&self, text: &str) {
        if self.is_terminal {
            // A closed terminal must not stop the runs.
            let _ = std::io::stderr().write_all(format!("\r\x1b[K{text}").as_bytes());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.write("");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_the_rest_from_the_finished_runs() {
        let progress = Progress::new(40);
        assert_eq!(progress.bar(0, Duration::ZERO), format!("[{}]   0 %", ".".repeat(30)));
        let want = format!("[{}{}]  25 %, 30 s left", "#".repeat(7), ".".repeat(23));
        assert_eq!(progress.bar(10, Duration::from_secs(10)), want);
        assert!(progress.bar(40, Duration::from_secs(9)).ends_with("100 %, 0 s left"));
    }
}
