//! Waking under load: how long it takes from a queue that can be seen to the step, over hundreds of wakes, and what the
//! watching costs while a hundred models are at zero. Prints a row for each and fails where a bound is missed.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{WatchEvent, WatchParams};
use tokio::sync::watch;
use tokio::time::Instant;
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::install::{Install, InstallOptions};
use wva_testbed::picker::{CRDS, FakePicker, pool};
use wva_testbed::{Options, Testbed, eventually};

use crate::bench::usage::Usage;

/// Namespaces with a picker each.
const PICKERS: u8 = 4;
/// Models of each that are at zero at the same time.
const MODELS: usize = 25;
/// Rounds in which each of these models is woken once.
const ROUNDS: usize = 5;
/// The wakes of a round begin within this time.
const ROUND: Duration = Duration::from_secs(20);
/// How long the watching is measured.
const CALM: Duration = Duration::from_mins(1);
/// Longest time for what takes seconds.
const SOON: Duration = Duration::from_mins(2);

/// What must hold.
const SLOWEST: Duration = Duration::from_secs(1);
const MOST_SCRAPES: f64 = 8.0;
const MOST_CORES: f64 = 0.02;

/// A namespace and its picker.
struct Place {
    namespace: String,
    picker: FakePicker,
}

/// When each Deployment was first seen with a replica.
type Steps = BTreeMap<String, Instant>;

/// Runs both measurements with this program.
pub(crate) async fn run(wva: &Path) -> anyhow::Result<()> {
    ensure!(wva.exists(), "there is no {}: build it first", wva.display());
    // Without nodes: what is woken waits for one, and costs nobody anything.
    let options = Options { name: "from-zero-run".to_owned(), nodes: Vec::new(), ..Options::default() };
    let testbed = Testbed::start(options).await?;
    testbed.apply(CRDS).await?;
    let options = InstallOptions { env: Vec::new(), ..InstallOptions::quick(wva) };
    let install = Install::start(&testbed, &options).await?;
    let mut places = Vec::new();
    for number in 1..=PICKERS {
        let namespace = testbed.namespace("zero").await?;
        let picker = FakePicker::start([127, 0, 1, number]).await?;
        testbed.apply(&pool(&namespace, "epp")).await?;
        picker.pod(&testbed, &namespace, "epp", "epp-0").await?;
        places.push(Place { namespace, picker });
    }
    say("measurement | bound | figures | kept")?;
    let mut faults = 0;
    let mut waits = Vec::new();
    for round in 0..ROUNDS {
        at_zero(&testbed, &install, &places, round).await?;
        if round == 0 {
            faults += calm(&install, &places).await?;
        }
        waits.extend(wakes(&testbed, &places, round).await?);
        remove(&testbed, &places, round).await?;
    }
    faults += told(waits)?;
    ensure!(faults == 0, "{faults} bounds were missed");
    Ok(())
}

fn model(round: usize, number: usize) -> String {
    format!("model-{round}-{number}")
}

/// Creates the models of a round, and waits until they have been decided on.
async fn at_zero(testbed: &Testbed, install: &Install, places: &[Place], round: usize) -> anyhow::Result<()> {
    for Place { namespace, .. } in places {
        let models = (0..MODELS).map(|number| {
            let name = model(round, number);
            let fixture = VariantFixture { model: name.clone(), ..VariantFixture::new(namespace, &name) };
            let fixture = fixture.replicas(0);
            [fixture.deployment(), fixture.variant()].join("---\n")
        });
        testbed.apply(&models.collect::<Vec<_>>().join("---\n")).await?;
    }
    let last = model(round, MODELS - 1);
    for Place { namespace, picker } in places {
        let labels = [("namespace", namespace.as_str()), ("variant_name", last.as_str())];
        eventually("the models to be at zero and their picker to be asked", SOON, async || {
            ensure!(install.series("wva_desired_replicas", &labels).await? == Some(0.0), "{last} is not yet");
            ensure!(picker.asked().times > 0, "the picker was not asked yet");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

async fn remove(testbed: &Testbed, places: &[Place], round: usize) -> anyhow::Result<()> {
    let names: Vec<String> = (0..MODELS).map(|number| model(round, number)).collect();
    for Place { namespace, .. } in places {
        let mut args = vec!["delete", "variantautoscaling,deployment", "-n", namespace, "--wait=false"];
        args.extend(names.iter().map(String::as_str));
        testbed.kubectl(&args).await?.success()?;
    }
    Ok(())
}

/// What it costs to watch, while nothing waits.
async fn calm(install: &Install, places: &[Place]) -> anyhow::Result<usize> {
    let asked = || places.iter().map(|place| place.picker.asked().times).sum::<u64>();
    let pid = install.process().pid();
    let (before, usage, began) = (asked(), Usage::of(pid)?, Instant::now());
    tokio::time::sleep(CALM).await;
    let span = began.elapsed();
    let cores = Usage::of(pid)?.cores_since(&usage, span);
    let scrapes = f64::from(u32::try_from(asked() - before)?) / span.as_secs_f64();
    let models = MODELS * places.len();
    let figures = format!("{scrapes:.2} scrapes/s, {:.2} % of a core", 100.0 * cores);
    // A request more or less at the edges of the span.
    let kept = scrapes <= MOST_SCRAPES + f64::from(PICKERS) / span.as_secs_f64() && cores <= MOST_CORES;
    row(
        &format!("{models} models at zero, {PICKERS} pickers, {} s", span.as_secs()),
        &format!("at most {MOST_SCRAPES} scrapes/s and {} % of a core", 100.0 * MOST_CORES),
        &figures,
        kept,
    )
}

/// Wakes each model of a round at a moment of its own; how long each took.
async fn wakes(testbed: &Testbed, places: &[Place], round: usize) -> anyhow::Result<Vec<Duration>> {
    let all = places.iter().enumerate().map(|(place_number, place)| async move {
        let steps = follow(testbed, &place.namespace).await?;
        let models = (0..MODELS).map(|number| {
            let steps = steps.clone();
            async move {
                let name = model(round, number);
                tokio::time::sleep(moment(round, place_number, number)).await;
                place.picker.queue(&name, 1.0);
                let visible = Instant::now();
                let step = seen(steps, &name).await?;
                place.picker.queue(&name, 0.0);
                anyhow::Ok(step.saturating_duration_since(visible))
            }
        });
        futures::future::try_join_all(models).await
    });
    Ok(futures::future::try_join_all(all).await?.concat())
}

/// A moment of a round that looks like chance and is the same in every run.
fn moment(round: usize, place: usize, number: usize) -> Duration {
    let seed = (round * 7919 + place * 104_729 + number * 1_299_709 + 12_345) % 10_007;
    ROUND.mul_f64(f64::from(u32::try_from(seed).unwrap_or(0)) / 10_007.0)
}

/// Waits until a Deployment was seen with a replica.
async fn seen(mut steps: watch::Receiver<Steps>, name: &str) -> anyhow::Result<Instant> {
    let waited = tokio::time::timeout(SOON, steps.wait_for(|steps| steps.contains_key(name))).await;
    let steps = waited.with_context(|| format!("{name} was not woken in {SOON:?}"))?;
    let steps = steps.context("the watch of Deployments ended")?;
    steps.get(name).copied().context("the condition waited for")
}

/// Notes when Deployments of a namespace are first seen with a replica.
async fn follow(testbed: &Testbed, namespace: &str) -> anyhow::Result<watch::Receiver<Steps>> {
    let deployments: Api<Deployment> = Api::namespaced(testbed.admin()?, namespace);
    let params = WatchParams::default().timeout(200);
    let mut events = deployments.watch(&params, "0").await?.boxed();
    let (sender, receiver) = watch::channel(Steps::new());
    tokio::spawn(async move {
        while let Ok(Some(event)) = events.try_next().await {
            let (WatchEvent::Added(deployment) | WatchEvent::Modified(deployment)) = event else { continue };
            let replicas = deployment.spec.and_then(|spec| spec.replicas);
            if let Some(name) = deployment.metadata.name.filter(|_| replicas > Some(0)) {
                sender.send_modify(|steps| {
                    steps.entry(name).or_insert_with(Instant::now);
                });
            }
            if sender.is_closed() {
                return;
            }
        }
    });
    Ok(receiver)
}

fn told(mut waits: Vec<Duration>) -> anyhow::Result<usize> {
    waits.sort();
    let at = |percent: usize| waits.get((waits.len() * percent).div_ceil(100).saturating_sub(1)).copied();
    let (half, most, last) = (at(50), at(99), waits.last().copied());
    let (Some(half), Some(most), Some(last)) = (half, most, last) else { anyhow::bail!("nothing was woken") };
    let figures = format!("p50 {half:.0?}, p99 {most:.0?}, slowest {last:.0?}");
    let what = format!("queue visible -> /scale seen, {} wakes", waits.len());
    row(&what, &format!("p99 at most {SLOWEST:?}"), &figures, most <= SLOWEST)
}

/// Prints a row; 1 where the bound was missed.
fn row(what: &str, bound: &str, figures: &str, kept: bool) -> anyhow::Result<usize> {
    say(&format!("{what} | {bound} | {figures} | {}", if kept { "yes" } else { "NO" }))?;
    Ok(usize::from(!kept))
}

fn say(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("cannot write to standard output")
}
