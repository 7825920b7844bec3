//! What a process takes of memory and processor, as the kernel counts it.

use std::time::Duration;

use anyhow::Context as _;
use procfs::process::{LimitValue, Process};
use procfs::{CurrentSI as _, KernelStats};

/// Time between two looks at the memory of a process.
const LOOK: Duration = Duration::from_millis(20);

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

    /// Cores it kept busy since `earlier`, `span` ago.
    pub(crate) fn cores_since(&self, earlier: &Self, span: Duration) -> f64 {
        self.cpu.saturating_sub(earlier.cpu).as_secs_f64() / span.as_secs_f64()
    }
}

/// Waits for some work; the most memory that the process had resident meanwhile, KiB.
pub(crate) async fn peak_during<T>(pid: u32, work: impl Future<Output = T>) -> (T, u64) {
    let mut work = std::pin::pin!(work);
    let mut peak = 0;
    loop {
        peak = peak.max(Usage::of(pid).map_or(0, |usage| usage.resident));
        if let Ok(done) = tokio::time::timeout(LOOK, &mut work).await {
            return (done, peak);
        }
    }
}

/// How many files a process has open.
pub(crate) fn open_files(pid: u32) -> anyhow::Result<usize> {
    Ok(process(pid)?.fd_count()?)
}

/// How many files this program may open.
pub(crate) fn files_limit() -> anyhow::Result<u64> {
    Ok(match Process::myself()?.limits()?.max_open_files.soft_limit {
        LimitValue::Unlimited => u64::MAX,
        LimitValue::Value(files) => files,
    })
}

fn process(pid: u32) -> anyhow::Result<Process> {
    Process::new(i32::try_from(pid)?).with_context(|| format!("cannot look at process {pid}"))
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
        let cpu = KernelStats::current()?.total;
        let stolen = [cpu.irq, cpu.softirq, cpu.steal].into_iter().flatten().sum::<u64>();
        // Guests are counted in user already.
        let busy = cpu.user + cpu.nice + cpu.system + stolen;
        Ok(Self { busy, all: busy + cpu.idle + cpu.iowait.unwrap_or_default() })
    }

    /// The share of all cores that was busy since `earlier`, 0..=1.
    #[expect(clippy::cast_precision_loss, reason = "shares of ticks, far below 2^52")]
    pub(crate) fn busy_since(self, earlier: Self) -> f64 {
        let (busy, all) = (self.busy.saturating_sub(earlier.busy), self.all.saturating_sub(earlier.all));
        busy as f64 / all.max(1) as f64
    }
}
