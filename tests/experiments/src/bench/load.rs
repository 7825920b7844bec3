//! Load on the program's own HTTPS port by vegeta: a constant rate of reviews over kept-alive connections, and what
//! the program took meanwhile.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use wva_testbed::install::Install;
use wva_testbed::{Process, eventually, within};

use super::review::PATHS;
use super::usage::{Machine, Usage};

/// Reviews a second.
pub(super) const RATE: u32 = 2000;
/// How long each load lasts.
const LASTS: Duration = Duration::from_secs(20);
/// A review that takes longer than the API server would wait counts as failed.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the program makes of the requests of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expect {
    /// A review of each, with this code as the verdict.
    Verdict(&'static str),
    /// Nothing: no such path is served. What that takes is the floor of generator, TLS and machine.
    NotFound,
}

impl Expect {
    fn paths(self) -> [&'static str; 2] {
        match self {
            Self::Verdict(_) => PATHS,
            Self::NotFound => ["/floor", "/ground"],
        }
    }
}

/// Where the load goes and where its files are.
pub(super) struct Aim<'a> {
    pub(super) vegeta: &'a Path,
    pub(super) install: &'a Install,
    /// File with the CA that the API server is told to trust.
    pub(super) ca: &'a Path,
    /// Folder for bodies and results.
    pub(super) folder: &'a Path,
}

/// What one load showed. Times in milliseconds.
#[derive(Debug)]
pub(super) struct Load {
    pub(super) name: &'static str,
    pub(super) rate: f64,
    pub(super) success: f64,
    pub(super) p50: f64,
    pub(super) p90: f64,
    pub(super) p99: f64,
    pub(super) max: f64,
    /// Resident memory of the program in KiB: before, the most during the load, and after it.
    pub(super) resident: [u64; 3],
    /// Of the last, pages of the program's own file.
    pub(super) code: u64,
    /// The most since its start, KiB.
    pub(super) peak: u64,
    /// Cores the program kept busy.
    pub(super) cores: f64,
    /// Share of the whole machine that was busy.
    pub(super) machine: f64,
}

impl Load {
    pub(super) fn json(&self) -> Value {
        json!({
            "name": self.name, "rate": self.rate, "success": self.success,
            "milliseconds": {"p50": self.p50, "p90": self.p90, "p99": self.p99, "max": self.max},
            "residentKiB": {
                "before": self.resident[0], "during": self.resident[1], "after": self.resident[2],
                "ofThatCode": self.code, "sinceStart": self.peak,
            },
            "cores": self.cores, "machineBusy": self.machine,
        })
    }
}

impl Aim<'_> {
    /// Sends these reviews round robin, to both paths in turn, and checks that the program makes of each what it should.
    pub(super) async fn load(
        &self,
        name: &'static str,
        reviews: &[Value],
        expect: Expect,
    ) -> anyhow::Result<Load> {
        let targets = self.targets(name, reviews, expect)?;
        let results = self.folder.join(format!("{name}.bin"));
        let args = [
            "attack".to_owned(),
            format!("-rate={RATE}/s"),
            format!("-duration={}s", LASTS.as_secs()),
            format!("-timeout={}s", PATIENCE.as_secs()),
            format!("-root-certs={}", self.ca.display()),
            format!("-targets={}", targets.display()),
            format!("-output={}", results.display()),
        ];
        let pid = self.install.process().pid();
        let (told, before, machine) = (self.told(expect).await?, Usage::of(pid)?, Machine::now()?);
        let attack =
            Process::spawn("vegeta", self.vegeta, &args, &[], &self.folder.join(format!("{name}.log")))?;
        let mut during = before.resident;
        let ended = eventually("vegeta to end", LASTS + Duration::from_secs(30), async || {
            during = during.max(Usage::of(pid)?.resident);
            attack.exited().context("it still runs")
        })
        .await?;
        ensure!(ended.success(), "vegeta ended with {ended}: {}", attack.log_tail(5));
        let (after, machine) = (Usage::of(pid)?, Machine::now()?.busy_since(machine));
        let told = self.told(expect).await? - told;
        let report = self.report(&results).await?;
        let number = |pointer: &str| {
            report
                .pointer(pointer)
                .and_then(Value::as_f64)
                .with_context(|| format!("no {pointer} in {report}"))
        };
        let millis = |what: &str| number(&format!("/latencies/{what}")).map(|ns| ns / 1e6);
        let sent = number("/requests")?;
        ensure!(
            told >= sent || expect == Expect::NotFound,
            "of {sent} reviews {told} got {expect:?}: the load tells nothing"
        );
        Ok(Load {
            name,
            rate: number("/rate")?,
            success: number("/success")?,
            p50: millis("50th")?,
            p90: millis("90th")?,
            p99: millis("99th")?,
            max: millis("max")?,
            resident: [before.resident, during, after.resident],
            code: after.code,
            peak: after.peak,
            cores: after.cores_since(&before, LASTS),
            machine,
        })
    }

    /// Writes the bodies, and vegeta's list of targets.
    fn targets(&self, name: &str, reviews: &[Value], expect: Expect) -> anyhow::Result<PathBuf> {
        let port =
            self.install.address("admission")?.rsplit_once(':').context("an address without a port")?.1;
        let mut list = String::new();
        for (i, review) in reviews.iter().enumerate() {
            let body = self.folder.join(format!("{name}-{i}.json"));
            write(&body, &review.to_string())?;
            for path in expect.paths() {
                // One of the names in the serving certificate, and one that leads here without a Service.
                writeln!(list, "POST https://localhost:{port}{path}")?;
                writeln!(list, "Content-Type: application/json\n@{}\n", body.display())?;
            }
        }
        let file = self.folder.join(format!("{name}.targets"));
        write(&file, &list)?;
        Ok(file)
    }

    /// How many reviews the program has answered with this verdict so far.
    async fn told(&self, expect: Expect) -> anyhow::Result<f64> {
        let Expect::Verdict(code) = expect else { return Ok(0.0) };
        let labels = [("operation", "CREATE"), ("resource", "variantautoscalings"), ("code", code)];
        Ok(self.install.series("wva_admission_reviews_total", &labels).await?.unwrap_or(0.0))
    }

    async fn report(&self, results: &Path) -> anyhow::Result<Value> {
        let mut report = tokio::process::Command::new(self.vegeta);
        report.args(["report", "-type=json"]).arg(results).kill_on_drop(true);
        let out = within("vegeta report", Duration::from_mins(1), report.output()).await?;
        ensure!(out.status.success(), "vegeta report: {}", String::from_utf8_lossy(&out.stderr));
        serde_json::from_slice(&out.stdout).context("vegeta's report is no JSON")
    }
}

/// Writes one file.
pub(super) fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
