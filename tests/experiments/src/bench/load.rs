//! Reviews at a constant rate over kept-alive connections, and what the program takes meanwhile.

use std::time::Duration;

use anyhow::ensure;
use serde_json::{Value, json};
use wva_testbed::install::Install;

use super::review::PATHS;
use crate::report::{Report, mib};
use crate::usage::{Machine, Usage, peak_during};
use crate::vegeta::{Attack, AttackResult, Latencies, Vegeta};

/// Reviews a second.
pub(super) const RATE: u32 = 2000;
/// How long each load lasts.
const LASTS: Duration = Duration::from_secs(20);
/// The slowest hundredth of the reviews takes at least this long, milliseconds.
pub(super) const P99_BOUND: f64 = 2.0;
/// Resident memory while reviews come at the full rate, KiB.
const RESIDENT_BOUND: u64 = 32 * 1024;

/// What the program makes of the requests of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExpectedAnswer {
    /// A review of each, with this code as the verdict.
    Verdict(&'static str),
    /// Nothing: no such path is served. What that takes is the floor of generator, TLS and machine.
    NotFound,
}

/// What one load showed.
#[derive(Debug)]
pub(super) struct Load {
    name: &'static str,
    expect: ExpectedAnswer,
    measured: AttackResult,
    before: Usage,
    /// The most resident memory of the program while it lasted, KiB.
    during: u64,
    after: Usage,
    /// Share of the whole machine that was busy.
    machine: f64,
}

impl Load {
    /// Sends these reviews round robin, to both paths in turn, and checks that the program makes of each what it should.
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
        let (judged, before, machine) = (judged(install, expect).await?, Usage::of(pid)?, Machine::now()?);
        let (measured, during) = peak_during(pid, vegeta.attack(&attack)).await;
        let (measured, after, machine) = (measured?, Usage::of(pid)?, Machine::now()?.busy_since(machine));
        let judged = self::judged(install, expect).await? - judged;
        let sent = measured.requests;
        ensure!(
            judged >= sent || expect == ExpectedAnswer::NotFound,
            "of {sent} reviews {judged} got {expect:?}: the load shows nothing"
        );
        Ok(Self { name, expect, measured, before, during, after, machine })
    }

    /// Cores the program kept busy.
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
            Report::note(name, format!("{figure}  no path, no review: the floor"))?;
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

/// How many reviews the program has answered with this verdict so far.
async fn judged(install: &Install, expect: ExpectedAnswer) -> anyhow::Result<f64> {
    let ExpectedAnswer::Verdict(code) = expect else { return Ok(0.0) };
    let labels = [("operation", "CREATE"), ("resource", "variantautoscalings"), ("code", code)];
    Ok(install.series("wva_admission_reviews_total", &labels).await?.unwrap_or(0.0))
}
