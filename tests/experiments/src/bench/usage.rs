//! What a process takes of memory and processor, as the kernel tells it.

use std::time::Duration;

use anyhow::{Context, ensure};

/// The kernel counts processor time for `/proc` in hundredths of a second, on every architecture of today.
const TICK: Duration = Duration::from_millis(10);

/// What a process has taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// Resident memory, KiB.
    pub(crate) resident: u64,
    /// Of that, pages of the program's own file, KiB: the kernel can take them back.
    pub(crate) code: u64,
    /// The most it ever was, KiB.
    pub(crate) peak: u64,
    /// Processor time since its start, of all its threads.
    pub(crate) cpu: Duration,
}

impl Usage {
    /// Reads what the process has taken so far.
    pub(crate) fn of(pid: u32) -> anyhow::Result<Self> {
        let status = read(&format!("/proc/{pid}/status"))?;
        let field = |name: &str| -> anyhow::Result<u64> {
            let line = status.lines().find(|l| l.starts_with(name)).with_context(|| format!("no {name}"))?;
            line.split_whitespace().nth(1).context("no figure")?.parse().context("no number")
        };
        let stat = read(&format!("/proc/{pid}/stat"))?;
        // The name of the program, in brackets, may hold spaces; user and system time are fields 14 and 15.
        let (_, after) = stat.rsplit_once(')').context("no program name in stat")?;
        let ticks = |n: usize| -> anyhow::Result<u32> {
            after.split_whitespace().nth(n).context("stat is too short")?.parse().context("no number")
        };
        let cpu = TICK * (ticks(11)? + ticks(12)?);
        Ok(Self { resident: field("VmRSS:")?, code: field("RssFile:")?, peak: field("VmHWM:")?, cpu })
    }

    /// Cores it kept busy since `earlier`, `span` ago.
    pub(crate) fn cores_since(&self, earlier: &Self, span: Duration) -> f64 {
        self.cpu.saturating_sub(earlier.cpu).as_secs_f64() / span.as_secs_f64()
    }
}

/// Processor time of the whole machine so far, in ticks: busy, and all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    busy: u64,
    all: u64,
}

impl Machine {
    /// Reads the counters.
    pub(crate) fn now() -> anyhow::Result<Self> {
        let stat = read("/proc/stat")?;
        let line = stat.lines().next().context("/proc/stat is empty")?;
        let ticks: Vec<u64> = line.split_whitespace().skip(1).filter_map(|t| t.parse().ok()).collect();
        ensure!(ticks.len() >= 8, "/proc/stat has no line of the whole machine: {line}");
        // user nice system idle iowait irq softirq steal; guests are counted in user already.
        let all = ticks[..8].iter().sum();
        Ok(Self { busy: all - ticks[3] - ticks[4], all })
    }

    /// The share of all cores that was busy since `earlier`, 0..=1.
    pub(crate) fn busy_since(self, earlier: Self) -> f64 {
        share(self.busy.saturating_sub(earlier.busy), self.all.saturating_sub(earlier.all))
    }
}

#[expect(clippy::cast_precision_loss, reason = "shares of ticks and milliseconds, far below 2^52")]
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn read(path: &str) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))
}
