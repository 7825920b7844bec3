//! Throughput analyzer over an emulated fleet with a known engine. Load and prompts change in steps. The experiment
//! prints why the target moves, and compares learned times with the truth in a table.

mod truth;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use wva_testbed::fixtures::{VariantFixture, saturation_map};
use wva_testbed::install::{Install, InstallOptions};
use wva_testbed::{Engine, Fleet, FleetConfig, Options, Testbed};

use self::truth::{BELIEVED, ENGINE, OUTPUT, Truth};
use crate::command::print_line;
use crate::learned::{self, LearnedDecision};
use crate::report::Report;

/// Requests per second and mean prompt tokens, step by step. Both change: a single mix cannot separate the cost of a
/// sequence from the cost of a prompt.
const STEPS: [(f64, u32); 12] = [
    (6.0, 512),
    (24.0, 512),
    (24.0, 1024),
    (12.0, 2048),
    (5.0, 2048),
    (5.0, 512),
    (36.0, 512),
    (18.0, 512),
    (18.0, 1024),
    (9.0, 1536),
    (30.0, 768),
    (8.0, 512),
];
/// Cold start of a pod.
const STARTS: Duration = Duration::from_secs(30);
/// Interval of cycles, and of query rounds.
const INTERVAL: &str = "15s";
const POLL_INTERVAL: Duration = Duration::from_secs(3);
/// Name of the variant.
const NAME: &str = "learns";

/// Time limit for more replicas: one-minute averages, a round of queries and a cycle. Longer prompts need up to five
/// minutes, the window of means: there only the target at the end of the step counts.
const ANSWERED_WITHIN: Duration = Duration::from_secs(90);
/// Maximum relative error of the arrival rate.
const ARRIVALS: f64 = 0.1;
/// Maximum relative error of the work per request: the reserve of a replica without an objective. With a larger
/// error, fully planned replicas are overloaded.
const WORK: f64 = 0.15;

/// A model under load.
struct Model {
    // Drop order: each ends before what it depends on.
    fleet: Fleet,
    install: Install,
    _testbed: Testbed,
    namespace: String,
    began: Instant,
}

/// Results of one step.
struct Row {
    rate: f64,
    prompt: u32,
    truth: Truth,
    /// Target at the beginning.
    first_target: u64,
    /// Target at the end.
    last_target: u64,
    /// Time at which the target first rose.
    rose: Option<Duration>,
    /// Maximum of waiting requests, over all pods.
    queue: f64,
    /// The newest decision.
    decision: Option<LearnedDecision>,
}

/// Runs all steps within `lasts`; fails if a bound is exceeded.
pub(crate) async fn run(wva: &Path, lasts: Duration) -> anyhow::Result<()> {
    let model = Model::start(wva).await?;
    let each = lasts / u32::try_from(STEPS.len())?;
    let mut rows: Vec<Row> = Vec::new();
    for (rate, prompt) in STEPS {
        let before = rows.last().map_or(1, |row| row.last_target);
        rows.push(model.step((rate, prompt), before, each).await?);
    }
    let mut report = Report::default();
    table(&rows, &mut report)?;
    report.end()
}

/// Emulated fleet at its first step.
fn engines(variant: &VariantFixture) -> FleetConfig {
    let (rate, prompt_tokens) = STEPS[0];
    FleetConfig {
        rate,
        prompt_tokens,
        generation_tokens: OUTPUT,
        max_seqs: 256,
        max_queue: 10_000,
        engine: Some(ENGINE),
        ..variant.fleet()
    }
}

impl Model {
    async fn start(wva: &Path) -> anyhow::Result<Self> {
        let options = Options {
            name: "throughput".to_owned(),
            pod_start: STARTS,
            scrape_interval: Duration::from_secs(5),
            hpa_sync: Duration::from_secs(5),
            ..Options::default()
        };
        let testbed = Testbed::start(options).await?;
        let install = Install::start(&testbed, &InstallOptions::every(wva, INTERVAL)).await?;
        let namespace = testbed.namespace("throughput").await?;
        testbed.apply(&saturation_map(&namespace, "{analyzerName: throughput, hold: 2m}")).await?;
        let variant = VariantFixture::new(&namespace, NAME);
        let fleet = Fleet::start(&testbed, engines(&variant))?;
        testbed.apply(&variant.all()).await?;
        fleet.wait_ready(1, Duration::from_mins(2)).await?;
        Ok(Self { fleet, install, _testbed: testbed, namespace, began: Instant::now() })
    }

    /// Runs one step, before which the target was `before`.
    async fn step(&self, (rate, prompt): (f64, u32), before: u64, lasts: Duration) -> anyhow::Result<Row> {
        self.note(&format!("-- {rate} requests/s of {prompt} + {OUTPUT} tokens"))?;
        self.fleet.set_prompt_tokens(prompt)?;
        self.fleet.set_rate(rate);
        let began = Instant::now();
        let mut row = Row {
            rate,
            prompt,
            truth: Truth::new(prompt),
            first_target: before,
            last_target: before,
            rose: None,
            queue: 0.0,
            decision: None,
        };
        while began.elapsed() < lasts {
            let waiting: f64 = self.fleet.pods().iter().map(|pod| pod.waiting).sum();
            row.queue = row.queue.max(waiting + self.fleet.at_gateway());
            if let Some(new) = self.read_decision().await? {
                if new.target != row.last_target {
                    self.note(&format!("target {} -> {}; {}", row.last_target, new.target, new.trace))?;
                }
                if new.target > before {
                    row.rose.get_or_insert(began.elapsed());
                }
                row.last_target = new.target;
                row.decision = Some(new);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        if let Some(decision) = &row.decision {
            self.note(&format!("at its end: {}", decision.trace))?;
        }
        Ok(row)
    }

    async fn read_decision(&self) -> anyhow::Result<Option<LearnedDecision>> {
        learned::read(self.install.address("debug")?, &self.namespace, NAME).await
    }

    fn note(&self, what: &str) -> anyhow::Result<()> {
        let seconds = self.began.elapsed().as_secs();
        print_line(&format!("{:>3}:{:02}  {what}", seconds / 60, seconds % 60))
    }
}

/// Prints the table of steps, then the learned times.
fn table(rows: &[Row], report: &mut Report) -> anyhow::Result<()> {
    print_line(
        "\nreq/s | prompt | counted | target | needed | rose after | longest queue | work learnt | work true | off by",
    )?;
    let mut before = 0.0;
    for row in rows {
        print_line(&row.line())?;
        row.judge(before, report);
        before = row.rate;
    }
    let last = rows.iter().rev().find_map(|row| row.decision.as_ref()).context("nothing was ever decided")?;
    times(last, report)
}

/// Prints and checks the learned times. Costs of a sequence and of a prompt token separate only as far as mixes
/// differ, so each must be nearer to the truth than its initial value. Plans use the work of a request, which must be
/// right at every mix.
fn times(last: &LearnedDecision, report: &mut Report) -> anyhow::Result<()> {
    print_line(&format!("\ntime | true | at first | learned from {} samples | off by", last.samples))?;
    let of = |engine: Engine| [engine.a, engine.b, engine.c];
    let (truth, first, learnt) = (of(ENGINE), of(BELIEVED), of(last.times));
    for (i, name) in ["a", "b", "c"].into_iter().enumerate() {
        let by = percent(learnt[i], truth[i]);
        let [t, f, l] = [truth[i], first[i], learnt[i]].map(|seconds| format!("{:.4} ms", 1e3 * seconds));
        print_line(&format!("{name} | {t} | {f} | {l} | {by}"))?;
        let is_nearer = off(learnt[i], truth[i]) < off(first[i], truth[i]);
        report.require(is_nearer, || format!("{name} is off by {by}, not nearer than at first"));
    }
    let prompts: BTreeSet<u32> = STEPS.into_iter().map(|(_, prompt)| prompt).collect();
    for prompt in prompts {
        let (learnt, truth) = (Truth::new(prompt).work(last.times), Truth::new(prompt).work(ENGINE));
        report.require(off(learnt, truth) <= WORK, || {
            let by = percent(learnt, truth);
            format!("in the end the work of a request of {prompt} tokens is off by {by}")
        });
    }
    Ok(())
}

impl Row {
    /// Engine seconds per request, learned and true.
    fn work(&self) -> Option<(f64, f64)> {
        Some((self.truth.work(self.decision.as_ref()?.times), self.truth.work(ENGINE)))
    }

    fn rose(&self) -> String {
        self.rose.map_or("-".to_owned(), |after| format!("{} s", after.as_secs()))
    }

    /// The row of the table.
    fn line(&self) -> String {
        let Self { rate, prompt, first_target: from, last_target: to, queue, .. } = self;
        let (needed, rose) = (self.truth.needed(*rate), self.rose());
        let counted =
            self.decision.as_ref().map_or("-".to_owned(), |decision| format!("{:.1}", decision.arrivals));
        let work = self.work().map_or("- | - | -".to_owned(), |(learnt, truth)| {
            format!("{:.1} ms | {:.1} ms | {}", 1e3 * learnt, 1e3 * truth, percent(learnt, truth))
        });
        format!("{rate} | {prompt} | {counted} | {from} -> {to} | {needed} | {rose} | {queue:.0} | {work}")
    }

    /// Checks the step; `before` is the rate of the previous one.
    fn judge(&self, before: f64, report: &mut Report) {
        let at = format!("at {} req/s of {} tokens", self.rate, self.prompt);
        let needed = self.truth.needed(self.rate);
        let must_rise = self.rate > before && needed > self.first_target;
        let is_early = self.rose.is_some_and(|after| after <= ANSWERED_WITHIN);
        report.require(is_early || !must_rise, || {
            format!("{at} the target rose after {}, at most {ANSWERED_WITHIN:?}", self.rose())
        });
        let target = self.last_target;
        report.require(target >= needed, || format!("{at} the target was {target} in the end, not {needed}"));
        let Some(decision) = &self.decision else {
            return report.require(false, || format!("{at} no decision was made"));
        };
        let is_counted = off(decision.arrivals, self.rate) <= ARRIVALS;
        report.require(is_counted, || format!("{at} {:.1} req/s were counted", decision.arrivals));
        if let Some((learnt, truth)) = self.work().filter(|_| decision.is_learnt()) {
            let by = percent(learnt, truth);
            report
                .require(off(learnt, truth) <= WORK, || format!("{at} the work of a request is off by {by}"));
        }
    }
}

fn off(found: f64, truth: f64) -> f64 {
    (found / truth - 1.0).abs()
}

fn percent(found: f64, truth: f64) -> String {
    format!("{:+.1} %", 100.0 * (found / truth - 1.0))
}
