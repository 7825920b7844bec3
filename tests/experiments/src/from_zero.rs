//! Wakes under load: the time from a visible queue to the step, over hundreds of wakes, and the cost of scraping
//! pickers while a hundred models are at zero. Prints rows and fails if a bound is exceeded.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::install::{Install, InstallOptions};
use wva_testbed::picker::{CRDS, FakePicker, pool};
use wva_testbed::{Options, Testbed, eventually};

use crate::command::{SOON, print_line};
use crate::report::{Report, percentile};
use crate::usage::Usage;
use crate::variants::follow;

/// Number of namespaces with a picker each.
const PICKERS: u8 = 4;
/// Models per namespace that are at zero at the same time.
const MODELS: usize = 25;
/// Rounds that wake each model once.
const ROUNDS: usize = 5;
/// All wakes of a round begin within this time.
const ROUND: Duration = Duration::from_secs(20);
/// Duration of the measurement at rest.
const CALM: Duration = Duration::from_mins(1);

/// Bounds: time of a wake, scrapes per second, and cores.
const SLOWEST: Duration = Duration::from_secs(1);
const MOST_SCRAPES: f64 = 8.0;
const MOST_CORES: f64 = 0.02;

/// A namespace and its picker.
struct PickerNamespace {
    namespace: String,
    picker: FakePicker,
}

/// Time at which each Deployment was first observed with a replica.
type Steps = BTreeMap<String, Instant>;

/// Runs both measurements with this program.
pub(crate) async fn run(wva: &Path) -> anyhow::Result<()> {
    // Without nodes: pods of woken models stay pending and use no resources.
    let options = Options { name: "from-zero-run".to_owned(), nodes: Vec::new(), ..Options::default() };
    let testbed = Testbed::start(options).await?;
    testbed.apply(CRDS).await?;
    let install = Install::start(&testbed, &InstallOptions::new(wva)).await?;
    let mut sites = Vec::new();
    for number in 1..=PICKERS {
        let namespace = testbed.namespace("zero").await?;
        let picker = FakePicker::start([127, 0, 1, number]).await?;
        testbed.apply(&pool(&namespace, "epp")).await?;
        picker.pod(&testbed, &namespace, "epp", "epp-0").await?;
        sites.push(PickerNamespace { namespace, picker });
    }
    let mut report = Report::default();
    let mut waits = Vec::new();
    for round in 0..ROUNDS {
        at_zero(&testbed, &install, &sites, round).await?;
        if round == 0 {
            calm(&install, &sites, &mut report).await?;
        }
        waits.extend(wakes(&testbed, &sites, round).await?);
        remove(&testbed, &sites).await?;
    }
    ensure!(!waits.is_empty(), "no model was woken");
    let [half, most, last] = [50, 99, 100].map(|percent| percentile(&waits, percent));
    let what = format!("queue visible -> /scale seen, {} wakes", waits.len());
    let figures = format!("p50 {half:.0?}, p99 {most:.0?}, slowest {last:.0?}");
    report.row(&what, figures, &format!("p99 at most {SLOWEST:?}"), most <= SLOWEST)?;
    report.end()
}

fn model(round: usize, number: usize) -> String {
    format!("model-{round}-{number}")
}

/// Creates the models of a round, and waits until they are at zero.
async fn at_zero(
    testbed: &Testbed,
    install: &Install,
    sites: &[PickerNamespace],
    round: usize,
) -> anyhow::Result<()> {
    for PickerNamespace { namespace, .. } in sites {
        let models = (0..MODELS).map(|number| {
            let name = model(round, number);
            let fixture = VariantFixture { model: name.clone(), ..VariantFixture::new(namespace, &name) };
            let fixture = fixture.replicas(0);
            [fixture.deployment(), fixture.variant()].join("---\n")
        });
        testbed.apply(&models.collect::<Vec<_>>().join("---\n")).await?;
    }
    let last = model(round, MODELS - 1);
    for PickerNamespace { namespace, picker } in sites {
        let labels = [("namespace", namespace.as_str()), ("variant_name", last.as_str())];
        eventually("the models to be at zero and their picker to be queried", SOON, async || {
            ensure!(install.series("wva_desired_replicas", &labels).await? == Some(0.0), "{last} is not yet");
            ensure!(picker.scrapes().count > 0, "the picker was not queried yet");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

async fn remove(testbed: &Testbed, sites: &[PickerNamespace]) -> anyhow::Result<()> {
    for PickerNamespace { namespace, .. } in sites {
        let all = ["delete", "variantautoscaling,deployment", "--all", "-n", namespace, "--wait=false"];
        testbed.kubectl(&all).await?.success()?;
    }
    Ok(())
}

/// Measures the cost of scraping while no request waits.
async fn calm(install: &Install, sites: &[PickerNamespace], report: &mut Report) -> anyhow::Result<()> {
    let count_scrapes = || sites.iter().map(|site| site.picker.scrapes().count).sum::<u64>();
    let pid = install.process().pid();
    let (before, usage, began) = (count_scrapes(), Usage::read(pid)?, Instant::now());
    tokio::time::sleep(CALM).await;
    let span = began.elapsed();
    let cores = Usage::read(pid)?.cores_since(&usage, span);
    let scrapes = f64::from(u32::try_from(count_scrapes() - before)?) / span.as_secs_f64();
    print_line(&format!("{} models at zero, {PICKERS} pickers, {} s", MODELS * sites.len(), span.as_secs()))?;
    // Tolerates one scrape more or less per picker at the edges of the span.
    let most = MOST_SCRAPES + f64::from(PICKERS) / span.as_secs_f64();
    report.at_most("scrapes a second", scrapes, most, |n| format!("{n:.2}"))?;
    report.at_most("of a core", cores, MOST_CORES, |share| format!("{:.2} %", 100.0 * share))
}

/// Wakes each model of a round at a random moment; returns the time each took.
async fn wakes(testbed: &Testbed, sites: &[PickerNamespace], round: usize) -> anyhow::Result<Vec<Duration>> {
    let all = sites.iter().enumerate().map(|(site_number, site)| async move {
        let (_watching, steps) = follow_steps(testbed, &site.namespace)?;
        // Seeded: the same in every run.
        let mut random = Pcg64::seed_from_u64(u64::try_from(round * sites.len() + site_number)?);
        let models = (0..MODELS).map(|number| {
            let (steps, moment) = (steps.clone(), ROUND.mul_f64(random.random()));
            async move {
                let name = model(round, number);
                tokio::time::sleep(moment).await;
                site.picker.queue(&name, 1.0);
                let visible = Instant::now();
                let step = seen(steps, &name).await?;
                site.picker.queue(&name, 0.0);
                anyhow::Ok(step.saturating_duration_since(visible))
            }
        });
        futures::future::try_join_all(models).await
    });
    Ok(futures::future::try_join_all(all).await?.concat())
}

/// Waits until a Deployment has a replica.
async fn seen(mut steps: watch::Receiver<Steps>, name: &str) -> anyhow::Result<Instant> {
    let waited = tokio::time::timeout(SOON, steps.wait_for(|steps| steps.contains_key(name))).await;
    let steps = waited.with_context(|| format!("{name} was not woken in {SOON:?}"))?;
    let steps = steps.context("the watch of Deployments ended")?;
    steps.get(name).copied().context("the condition waited for")
}

/// Records when each Deployment of a namespace first has a replica.
fn follow_steps(testbed: &Testbed, namespace: &str) -> anyhow::Result<(JoinSet<()>, watch::Receiver<Steps>)> {
    let deployments: Api<Deployment> = Api::namespaced(testbed.admin()?, namespace);
    let (sender, receiver) = watch::channel(Steps::new());
    let watching = follow(deployments, move |deployment: Deployment| {
        let replicas = deployment.spec.and_then(|spec| spec.replicas);
        if let Some(name) = deployment.metadata.name.filter(|_| replicas > Some(0)) {
            sender.send_modify(|steps| {
                steps.entry(name).or_insert_with(Instant::now);
            });
        }
    });
    Ok((watching, receiver))
}
