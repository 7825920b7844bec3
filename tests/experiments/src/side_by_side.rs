//! Three controllers on one control plane, two of them with an instance, while variants move between them by a change
//! of their label. No scrape may show two publishers of a variant; a variant may have none only for a moment after a
//! move. No controller may write to another's variant.

mod judge;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;
use wva_crds::VariantAutoscaling;
use wva_crds::names::INSTANCE_LABEL;
use wva_testbed::audit::Audit;
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::install::{Install, InstallOptions};
use wva_testbed::{Options, Testbed, eventually, within};

use self::judge::{Figures, History, Move};
use crate::command::print_line;

/// Releases, and the instance of each.
const CONTROLLERS: [(&str, Option<&str>); 3] = [("wva-a", Some("a")), ("wva-b", Some("b")), ("plain", None)];
/// Number of variants.
const VARIANTS: usize = 24;
/// Scrape interval.
const SCRAPE: Duration = Duration::from_secs(1);
/// Interval of moves, out of step with scrapes and cycles.
const MOVE: Duration = Duration::from_millis(1700);
/// `WVA_TAKEOVER_DELAY` of all three: a little over two scrapes, as the operator's guide recommends.
const DELAY: Duration = Duration::from_secs(3);
/// Time limit until all variants are published.
const UP: Duration = Duration::from_mins(1);
/// Time limit of one call.
const CALL: Duration = Duration::from_secs(10);

/// Runs the experiment for this time, prints the figures, and fails if a variant had two publishers or an unexplained
/// gap.
pub(crate) async fn run(wva: &Path, lasts: Duration) -> anyhow::Result<()> {
    let options = Options {
        name: "side-by-side".to_owned(),
        nodes: Vec::new(),
        with_prometheus: false,
        audit: Audit::Writes,
        ..Options::default()
    };
    let testbed = Testbed::start(options).await?;
    let installs = installs(&testbed, wva).await?;
    let namespace = testbed.namespace("moving").await?;
    for i in 0..VARIANTS {
        let fixture = VariantFixture::new(&namespace, &name(i)).replicas(0);
        testbed.apply(&[fixture.deployment(), fixture.variant()].join("---\n")).await?;
    }
    let history = Mutex::new(History::new(VARIANTS));
    eventually("the controller without an instance to publish all", UP, async || {
        let published = scrape(&installs, &namespace).await?;
        ensure!(published.iter().all(|of| of == &[2]), "not yet: {published:?}");
        Ok(())
    })
    .await?;
    print_line(&format!("{VARIANTS} variants move between {} controllers for {lasts:?}", CONTROLLERS.len()))?;
    let end = Instant::now() + lasts;
    let moves = moves(&testbed, &namespace, &history, end);
    let scrapes = scrapes(&installs, &namespace, &history, end);
    let ((), mut figures) = tokio::try_join!(moves, scrapes)?;
    let history = history.into_inner();
    figures.writes(&testbed.audit()?, &history);
    figures.report()
}

async fn installs(testbed: &Testbed, wva: &Path) -> anyhow::Result<Vec<Install>> {
    let mut installs = Vec::new();
    for (release, instance) in CONTROLLERS {
        let delay = format!("{}s", DELAY.as_secs());
        let own = instance.map(|instance| ("CONTROLLER_INSTANCE", instance));
        let mut options =
            InstallOptions::quick(wva).with(&[("WVA_TAKEOVER_DELAY", delay.as_str())]).with(own.as_slice());
        options.release = Some(release.to_owned());
        // The webhooks do not cover this namespace: the experiment is not about admission.
        options.judges = Some("default".to_owned());
        installs.push(Install::start(testbed, &options).await?);
    }
    Ok(installs)
}

fn name(i: usize) -> String {
    format!("variant-{i}")
}

/// The controllers that currently publish each variant.
async fn scrape(installs: &[Install], namespace: &str) -> anyhow::Result<Vec<Vec<usize>>> {
    let pages = installs.iter().map(|install| install.metrics());
    let mut publishers = vec![Vec::new(); VARIANTS];
    for (controller, page) in try_join_all(pages).await?.iter().enumerate() {
        let namespace = format!("namespace=\"{namespace}\"");
        let ours = |line: &&str| line.starts_with("wva_desired_replicas{") && line.contains(&namespace);
        for line in page.lines().filter(ours) {
            let own = CONTROLLERS[controller].1.map(|i| format!("controller_instance=\"{i}\""));
            let labelled = line.contains("controller_instance=");
            ensure!(own.as_ref().map_or(!labelled, |own| line.contains(own)), "a wrong instance: {line}");
            let variant = (0..VARIANTS).find(|i| line.contains(&format!("variant_name=\"{}\"", name(*i))));
            publishers[variant.with_context(|| format!("of no variant: {line}"))?].push(controller);
        }
    }
    Ok(publishers)
}

async fn scrapes(
    installs: &[Install],
    namespace: &str,
    history: &Mutex<History>,
    end: Instant,
) -> anyhow::Result<Figures> {
    let mut figures = Figures::default();
    let mut ticks = tokio::time::interval(SCRAPE);
    while Instant::now() < end {
        ticks.tick().await;
        let at = Instant::now();
        let publishers = scrape(installs, namespace).await?;
        figures.scraped(at, &publishers, &history.lock());
    }
    Ok(figures)
}

/// Moves the variants in turn. Every fourth moves back before a controller can have settled.
async fn moves(
    testbed: &Testbed,
    namespace: &str,
    history: &Mutex<History>,
    end: Instant,
) -> anyhow::Result<()> {
    let api: Api<VariantAutoscaling> = Api::namespaced(testbed.admin()?, namespace);
    let deployments: Api<Deployment> = Api::namespaced(testbed.admin()?, namespace);
    let mut ticks = tokio::time::interval(MOVE);
    let mut count = 0;
    while Instant::now() < end {
        ticks.tick().await;
        let variant = count * 5 % VARIANTS;
        let owner = history.lock().owner(variant);
        let to = (owner + 1 + count / VARIANTS % 2) % CONTROLLERS.len();
        // Changes the target at each turn, so that the controller has a status to write.
        scale(&deployments, variant, count % 5).await?;
        relabel(&api, variant, to, history).await?;
        if count % 4 == 3 {
            // A random delay from zero up to the time a cycle takes to notice.
            let millis = u64::try_from(count / 4 % 4)? * 400;
            tokio::time::sleep(Duration::from_millis(millis)).await;
            relabel(&api, variant, owner, history).await?;
        }
        count += 1;
    }
    Ok(())
}

async fn scale(api: &Api<Deployment>, variant: usize, replicas: usize) -> anyhow::Result<()> {
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    let (params, name) = (PatchParams::default(), name(variant));
    within("scaling a Deployment", CALL, api.patch(&name, &params, &patch)).await.map(|_| ())
}

async fn relabel(
    api: &Api<VariantAutoscaling>,
    variant: usize,
    to: usize,
    history: &Mutex<History>,
) -> anyhow::Result<()> {
    let patch = json!({"metadata": {"labels": {INSTANCE_LABEL: CONTROLLERS[to].1}}});
    let (params, patch, name) = (PatchParams::default(), Patch::Merge(patch), name(variant));
    let began = Instant::now();
    within("moving a variant", CALL, api.patch(&name, &params, &patch)).await?;
    let moved = Move { began, done: Instant::now(), wall: Timestamp::now(), to };
    history.lock().moved(variant, moved);
    Ok(())
}
