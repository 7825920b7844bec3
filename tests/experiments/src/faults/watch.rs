//! What the program under test takes of the machine, as `/proc` tells it.

use std::time::Duration;

use anyhow::Context as _;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Time between two looks at its memory.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Looks at a process's resident memory again and again.
pub(super) struct Watch {
    stop: oneshot::Sender<()>,
    peak: JoinHandle<u64>,
}

impl Watch {
    pub(super) fn start(pid: u32) -> Self {
        let (stop, mut stopped) = oneshot::channel();
        let peak = tokio::spawn(async move {
            let mut peak = 0;
            loop {
                peak = peak.max(status_kib(pid, "VmRSS:").unwrap_or_default());
                tokio::select! {
                    _ = &mut stopped => return peak,
                    () = tokio::time::sleep(LOOK_AGAIN) => {}
                }
            }
        });
        Self { stop, peak }
    }

    /// The most KiB that were seen.
    pub(super) async fn end(self) -> u64 {
        let _ = self.stop.send(());
        self.peak.await.unwrap_or_default()
    }
}

/// The most KiB that a process ever had resident.
pub(super) fn peak_kib(pid: u32) -> anyhow::Result<u64> {
    status_kib(pid, "VmHWM:")
}

fn status_kib(pid: u32, name: &str) -> anyhow::Result<u64> {
    let status =
        std::fs::read_to_string(format!("/proc/{pid}/status")).context("cannot read the memory of wva")?;
    let line = status.lines().find(|l| l.starts_with(name)).with_context(|| format!("no {name}"))?;
    line.split_whitespace().nth(1).context("no figure")?.parse().context("no number")
}

/// How many files a process has open.
pub(super) fn open_files(pid: u32) -> anyhow::Result<usize> {
    Ok(std::fs::read_dir(format!("/proc/{pid}/fd")).context("cannot list the open files of wva")?.count())
}

/// How many files this program may open.
pub(super) fn files_limit() -> anyhow::Result<u64> {
    let limits = std::fs::read_to_string("/proc/self/limits").context("cannot read the limits")?;
    let line = limits.lines().find(|l| l.starts_with("Max open files")).context("no limit of open files")?;
    let soft = line.split_whitespace().nth(3).context("no figure")?;
    if soft == "unlimited" { Ok(u64::MAX) } else { soft.parse().context("no number") }
}
