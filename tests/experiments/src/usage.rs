//! Memory and processor use of a process, from the kernel's counters.

use std::time::Duration;

use anyhow::Context as _;
use procfs::process::{LimitValue, Process};
use procfs::{CurrentSI as _, KernelStats};

/// Sampling interval of a process's memory.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Resource usage of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// Resident memory, KiB.
    pub(crate) resident: u64,
    /// Resident pages of the program file, KiB: the kernel can reclaim them.
    pub(crate) code: u64,
    /// Maximum resident memory so far, KiB.
    pub(crate) peak: u64,
    /// Processor time of all threads since the start.
    pub(crate) cpu: Duration,
}

impl Usage {
    /// Reads the current usage.
    pub(crate) fn read(pid: u32) -> anyhow::Result<Self> {
        let process = process(pid)?;
        let (status, stat) = (process.status()?, process.stat()?);
        let field = |kib: Option<u64>| kib.context("a process without memory");
        Ok(Self {
            resident: field(status.vmrss)?,
            code: field(status.rssfile)?,
            peak: field(status.vmhwm)?,
            cpu: Duration::from_millis((stat.utime + stat.stime) * 1000 / procfs::ticks_per_second()),
        })
    }

    /// Cores kept busy since `earlier`, `span` ago.
    pub(crate) fn cores_since(&self, earlier: &Self, span: Duration) -> f64 {
        self.cpu.saturating_sub(earlier.cpu).as_secs_f64() / span.as_secs_f64()
    }
}

/// Runs some work; returns the maximum resident memory of the process meanwhile, KiB.
pub(crate) async fn peak_during<T>(pid: u32, work: impl Future<Output = T>) -> (T, u64) {
    let mut work = std::pin::pin!(work);
    let mut peak = 0;
    loop {
        peak = peak.max(Usage::read(pid).map_or(0, |usage| usage.resident));
        if let Ok(done) = tokio::time::timeout(POLL_INTERVAL, &mut work).await {
            return (done, peak);
        }
    }
}

/// Number of open files of a process.
pub(crate) fn open_files(pid: u32) -> anyhow::Result<usize> {
    Ok(process(pid)?.fd_count()?)
}

/// Number of threads of a process.
pub(crate) fn threads(pid: u32) -> anyhow::Result<i64> {
    Ok(process(pid)?.stat()?.num_threads)
}

/// Limit of this program's open files.
pub(crate) fn files_limit() -> anyhow::Result<u64> {
    Ok(match Process::myself()?.limits()?.max_open_files.soft_limit {
        LimitValue::Unlimited => u64::MAX,
        LimitValue::Value(files) => files,
    })
}

fn process(pid: u32) -> anyhow::Result<Process> {
    Process::new(i32::try_from(pid)?).with_context(|| format!("cannot read process {pid}"))
}

/// Processor time of the whole machine so far, in ticks: busy, and total.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    busy: u64,
    all: u64,
}

impl Machine {
    /// Reads the counters.
    pub(crate) fn now() -> anyhow::Result<Self> {
        let cpu = KernelStats::current()?.total;
        let stolen = [cpu.irq, cpu.softirq, cpu.steal].into_iter().flatten().sum::<u64>();
        // Counted in user time already.
        let busy = cpu.user + cpu.nice + cpu.system + stolen;
        Ok(Self { busy, all: busy + cpu.idle + cpu.iowait.unwrap_or_default() })
    }

    /// Busy share of all cores since `earlier`, 0..=1.
    #[expect(clippy::cast_precision_loss, reason = "shares of ticks, far below 2^52")]
    pub(crate) fn busy_since(self, earlier: Self) -> f64 {
        let (busy, all) = (self.busy.saturating_sub(earlier.busy), self.all.saturating_sub(earlier.all));
        busy as f64 / all.max(1) as f64
    }
}
