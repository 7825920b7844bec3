//! Reviews at a constant rate over keep-alive connections, and the program's use of memory and processor meanwhile.

use std::time::Duration;

use anyhow::ensure;
use serde_json::{Value, json};
use wva_testbed::install::Install;

use super::review::PATHS;
use crate::report::{Report, mib};
use crate::usage::{Machine, Usage, peak_during};
use crate::vegeta::{Attack, AttackResult, Latencies, Vegeta};

/// Reviews per second.
pub(super) const RATE: u32 = 2000;
/// Duration of each load.
const LASTS: Duration = Duration::from_secs(20);
/// Maximum 99th percentile of the answer time, milliseconds.
pub(super) const P99_BOUND: f64 = 2.0;
/// Maximum resident memory at the full rate, KiB.
const RESIDENT_BOUND: u64 = 32 * 1024;

/// Expected answer to the requests of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExpectedAnswer {
    /// A verdict with this code for each review.
    Verdict(&'static str),
    /// 404, for a path that is not served: the base cost of generator, TLS and machine.
    NotFound,
}

/// Measurements of one load.
#[derive(Debug)]
pub(super) struct Load {
    name: &'static str,
    expect: ExpectedAnswer,
    measured: AttackResult,
    before: Usage,
    /// Maximum resident memory of the program during the load, KiB.
    during: u64,
    after: Usage,
    /// Busy share of the whole machine, 0..=1.
    machine: f64,
}

impl Load {
    /// Sends these reviews round robin to both paths, and checks the answers.
    pub(super) async fn send(
        vegeta: &Vegeta,
        install: &Install,
        name: &'static str,
        bodies: &[Value],
        expect: ExpectedAnswer,
    ) -> anyhow::Result<Self> {
        let paths = if expect == ExpectedAnswer::NotFound { ["/floor", "/ground"] } else { PATHS };
        let attack = Attack { name, paths: &paths, bodies, rate: RATE, lasts: LASTS, flags: &[] };
        let pid = install.process().pid();
        let (judged, before, machine) = (judged(install, expect).await?, Usage::read(pid)?, Machine::now()?);
        let (measured, during) = peak_during(pid, vegeta.attack(&attack)).await;
        let (measured, after, machine) = (measured?, Usage::read(pid)?, Machine::now()?.busy_since(machine));
        let judged = self::judged(install, expect).await? - judged;
        let sent = measured.requests;
        ensure!(
            judged >= sent || expect == ExpectedAnswer::NotFound,
            "of {sent} reviews {judged} got {expect:?}: the load shows nothing"
        );
        Ok(Self { name, expect, measured, before, during, after, machine })
    }

    /// Cores that the program kept busy.
    fn cores(&self) -> f64 {
        self.after.cores_since(&self.before, LASTS)
    }

    pub(super) fn json(&self) -> Value {
        let Self { name, measured, before, during, after, machine, .. } = self;
        json!({
            "name": name, "rate": measured.rate, "success": measured.success,
            "milliseconds": measured.latencies,
            "residentKiB": {
                "before": before.resident, "during": during, "after": after.resident,
                "ofThatCode": after.code, "sinceStart": after.peak,
            },
            "cores": self.cores(), "machineBusy": machine,
        })
    }

    pub(super) fn report(&self, report: &mut Report) -> anyhow::Result<()> {
        let Self { name, measured, before, during, after, machine, .. } = self;
        let AttackResult { rate, success, latencies: Latencies { p50, p90, p99, max }, .. } = measured;
        let success = success * 100.0;
        let figure = format!(
            "{rate:.0}/s  success {success:.2} %  p50 {p50:.2}  p90 {p90:.2}  p99 {p99:.2}  max {max:.2} ms"
        );
        if self.expect == ExpectedAnswer::NotFound {
            Report::note(name, format!("{figure}  404 without a review: the base cost"))?;
        } else {
            let kept = *p99 <= P99_BOUND && success >= 100.0;
            report.row(name, figure, &format!("p99 {P99_BOUND} ms, all answered"), kept)?;
        }
        Report::note("", format!("wva {:.2} cores, machine {:.0} % busy", self.cores(), machine * 100.0))?;
        report.at_most("  resident meanwhile", *during, RESIDENT_BOUND, mib)?;
        let figures = [before.resident, after.resident, after.code, after.peak].map(mib);
        Report::note("  resident before, after, of that code, at most since the start", figures.join(", "))
    }
}

/// Number of reviews with this verdict so far.
async fn judged(install: &Install, expect: ExpectedAnswer) -> anyhow::Result<f64> {
    let ExpectedAnswer::Verdict(code) = expect else { return Ok(0.0) };
    let labels = [("operation", "CREATE"), ("resource", "variantautoscalings"), ("code", code)];
    Ok(install.series("wva_admission_reviews_total", &labels).await?.unwrap_or(0.0))
}
