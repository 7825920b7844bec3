//! What tenants can cost: memory of wva next to large objects of a foreign namespace, and with scraped pages that a hostile
//! pod writes; and the age of the signals of others meanwhile.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use axum::Router;
use axum::extract::{Path as Segment, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use parking_lot::Mutex;
use serde_json::json;
use tokio::task::JoinSet;
use wva_scaling::Snapshot;
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::install::program::series;
use wva_testbed::install::{Install, InstallOptions};
use wva_testbed::{Options, Testbed, eventually};

use super::stored::{NAMESPACES, VARIANTS, count, create, ready_pods, store};
use crate::command::{SOON, print_line};
use crate::report::{Report, mib};
use crate::usage::{Usage, peak_during};

/// Objects of the foreign namespaces, and bytes of each.
const DEPLOYMENTS: usize = 300;
const MAPS: usize = 100;
const BYTES: usize = 1_000_000;
/// Most memory at the start and at rest with them, KiB.
const OBJECTS_BOUND: u64 = 128 * 1024;

/// Names of models on one page.
const NAMES: u64 = 200_000;
/// New names of engines in each scrape, and scrapes.
const ENGINES: u64 = 5_000;
const SCRAPES: u32 = 14;
const INTERVAL: &str = "5s";
const SCRAPE_INTERVAL: Duration = Duration::from_secs(5);
/// How long each page is served before the measurement, so that a failing namespace is found, and how long it is measured.
const FINDS: Duration = Duration::from_secs(45);
const MEASURES: Duration = Duration::from_mins(1);
/// Most memory with a hostile page, KiB, and greatest age of the signals of others.
const PAGES_BOUND: u64 = 96 * 1024;
const AGE_BOUND: Duration = Duration::from_secs(45);

/// Runs both parts.
pub(crate) async fn run(wva: &Path) -> anyhow::Result<()> {
    let mut report = Report::default();
    objects(wva, &mut report).await?;
    pages(wva, &mut report).await?;
    report.end()
}

/// 1,000 variants, and next to them Deployments and ConfigMaps of a megabyte each.
async fn objects(wva: &Path, report: &mut Report) -> anyhow::Result<()> {
    print_line(&format!("{VARIANTS} variants, {DEPLOYMENTS} Deployments and {MAPS} ConfigMaps of 1 MB"))?;
    let testbed = Testbed::start(Options { name: "bench-tenants".to_owned(), ..Options::default() }).await?;
    Install::crd(&testbed).await?;
    let manifests = |namespace: &str| -> Vec<String> {
        let fixture = |i| VariantFixture::new(namespace, &format!("variant-{i}")).replicas(0);
        let all = (0..VARIANTS / NAMESPACES).map(fixture);
        all.flat_map(|fixture| [fixture.deployment(), fixture.variant()]).collect()
    };
    store(&testbed, NAMESPACES, manifests).await?;
    let client = testbed.admin()?;
    let (text, foreign) = ("x".repeat(BYTES), testbed.namespace("foreign").await?);
    for i in 0..DEPLOYMENTS {
        let container = json!({"name": "c", "image": "i", "env": [{"name": "TEXT", "value": text}]});
        let labels = json!({"app": format!("d-{i}")});
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": format!("d-{i}")},
            "spec": {"replicas": 0, "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}},
        });
        create(&client, &foreign, &deployment.to_string()).await?;
    }
    for i in 0..MAPS {
        let namespace = if i == 0 { foreign.clone() } else { testbed.namespace("foreign").await? };
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "wva-saturation-scaling-config"},
            "data": {"default": format!("# {text}")},
        });
        create(&client, &namespace, &map.to_string()).await?;
    }
    let install = Install::start(&testbed, &InstallOptions::every(wva, INTERVAL)).await?;
    eventually("all variants to be decided on", Duration::from_mins(5), async || {
        let known = install.series("wva_variants", &[("reason", "Ready")]).await?.unwrap_or(0.0);
        ensure!(known >= count(VARIANTS), "{known} of {VARIANTS} variants are known");
        Ok(())
    })
    .await?;
    tokio::time::sleep(MEASURES).await;
    let Usage { peak, resident, .. } = Usage::read(install.process().pid())?;
    report.at_most("memory at the start, at most", peak, OBJECTS_BOUND, mib)?;
    report.at_most("memory at rest", resident, OBJECTS_BOUND, mib)
}

/// What the page of a namespace shows in addition to its pod.
#[derive(Clone, Copy, Debug)]
enum Hostile {
    Nothing,
    /// Names of models.
    Names,
    /// Names of engines that change with each scrape.
    Engines,
    /// Two series that are one after the relabelling of a query, so that it has no result.
    Duplicates,
}

struct Pages {
    /// Pod, and what its page shows, by namespace.
    of: Mutex<BTreeMap<String, (String, Hostile)>>,
    scrapes: AtomicU64,
}

/// Three namespaces: a variant, a variant with a hostile pod, and a pod without variants.
struct Tenants {
    pages: Arc<Pages>,
    victim: String,
    hostile: String,
    stranger: String,
    _serving: JoinSet<()>,
}

impl Tenants {
    async fn start(testbed: &Testbed) -> anyhow::Result<Self> {
        let (victim, first) = with_variant(testbed, "victim").await?;
        let (hostile, second) = with_variant(testbed, "hostile").await?;
        let stranger = testbed.namespace("stranger").await?;
        let pods = [(victim.clone(), first), (hostile.clone(), second), (stranger.clone(), "p".to_owned())];
        let of = pods.map(|(namespace, pod)| (namespace, (pod, Hostile::Nothing)));
        let pages = Arc::new(Pages { of: Mutex::new(of.into()), scrapes: AtomicU64::new(0) });
        let listener =
            tokio::net::TcpListener::bind("127.0.0.1:0").await.context("cannot listen for scrapes")?;
        let address = listener.local_addr()?.to_string();
        let app = Router::new().route("/{namespace}", get(page)).with_state(pages.clone());
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let _ = axum::serve(listener, app).await;
        });
        let paths = [&victim, &hostile, &stranger].map(|namespace| format!("/{namespace}"));
        testbed.scrape_pages(&address, &paths)?;
        Ok(Self { pages, victim, hostile, stranger, _serving: serving })
    }

    fn show(&self, namespace: &str, what: Hostile) {
        if let Some((_, shown)) = self.pages.of.lock().get_mut(namespace) {
            *shown = what;
        }
    }
}

/// A namespace with a variant, and its pod.
async fn with_variant(testbed: &Testbed, name: &str) -> anyhow::Result<(String, String)> {
    let namespace = testbed.namespace(name).await?;
    let fixture = VariantFixture { model: "m".to_owned(), ..VariantFixture::new(&namespace, "variant-0") };
    testbed.apply(&[fixture.deployment(), fixture.variant()].join("\n---\n")).await?;
    let client = testbed.admin()?;
    let ready = eventually("a pod to be ready", SOON, async || {
        ready_pods(&client, &namespace).await?.pop().context("no pod is ready")
    });
    let pod = ready.await?.pod;
    Ok((namespace, pod))
}

async fn pages(wva: &Path, report: &mut Report) -> anyhow::Result<()> {
    print_line(&format!(
        "\npages with {NAMES} names of models, and with {ENGINES} new engines in each scrape"
    ))?;
    let name = "bench-tenants-pages".to_owned();
    let options = Options { name, scrape_interval: SCRAPE_INTERVAL, ..Options::default() };
    let testbed = Testbed::start(options).await?;
    let install = Install::start(&testbed, &InstallOptions::every(wva, INTERVAL)).await?;
    let tenants = Tenants::start(&testbed).await?;
    eventually("the victim to report", SOON, async || {
        age(&install, &tenants.victim).await?.context("it does not report").map(|_| ())
    })
    .await?;
    let pid = install.process().pid();
    tokio::time::sleep(FINDS).await;
    Report::note("memory before", mib(Usage::read(pid)?.resident))?;
    for (who, namespace, what) in [
        ("a pod without variants", &tenants.stranger, Hostile::Names),
        ("a pod of a variant", &tenants.hostile, Hostile::Names),
        ("a pod of a variant", &tenants.hostile, Hostile::Duplicates),
        ("a pod of a variant", &tenants.hostile, Hostile::Engines),
    ] {
        let errors = query_errors(&install).await?;
        tenants.show(namespace, what);
        let lasts = if matches!(what, Hostile::Engines) { SCRAPE_INTERVAL * SCRAPES } else { MEASURES };
        let observed = async {
            tokio::time::sleep(FINDS).await;
            oldest_within(&install, &tenants.victim, lasts).await
        };
        let (oldest, peak) = peak_during(pid, observed).await;
        tenants.show(namespace, Hostile::Nothing);
        let oldest = oldest?;
        let errors = query_errors(&install).await? - errors;
        Report::note(&format!("{what:?} by {who}: failed queries"), errors)?;
        report.at_most(&format!("{what:?} by {who}: memory, at most"), peak, PAGES_BOUND, mib)?;
        let (row, kept) = (format!("{what:?} by {who}: age of others' signals"), oldest <= AGE_BOUND);
        report.row(&row, format!("{oldest:?}"), "at most 45 s", kept)?;
    }
    Ok(())
}

async fn query_errors(install: &Install) -> anyhow::Result<f64> {
    let page = install.metrics().await?;
    let of = |query| series(&page, "wva_prometheus_query_errors_total", &[("query", query)]);
    let all = ["kv_usage", "queue", "running", "sample_age", "tokens", "work"].into_iter().map(of);
    all.map(|errors| errors.map(Option::unwrap_or_default)).sum()
}

/// Greatest age of the victim's signals in the decisions of this time.
async fn oldest_within(install: &Install, victim: &str, lasts: Duration) -> anyhow::Result<Duration> {
    let (mut oldest, end) = (Duration::ZERO, tokio::time::Instant::now() + lasts);
    while tokio::time::Instant::now() < end {
        oldest = oldest.max(age(install, victim).await?.unwrap_or(Duration::MAX));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Ok(oldest)
}

/// Age of the signals of the only replica in the newest decision. `None`: it does not report.
async fn age(install: &Install, namespace: &str) -> anyhow::Result<Option<Duration>> {
    let url = format!("http://{}/snapshot", install.address("debug")?);
    let (status, text) = wva_testbed::install::get(&url).await?;
    ensure!(status == 200, "/snapshot answered {status}: {text}");
    let snapshot: Snapshot = serde_json::from_str(&text)?;
    let model = snapshot.models.into_iter().find(|model| model.namespace == namespace);
    let replica = model.and_then(|model| model.variants.into_iter().flat_map(|v| v.replicas).next());
    Ok(replica.map(|replica| replica.age.get()))
}

/// A load that needs no other number of replicas.
async fn page(State(pages): State<Arc<Pages>>, Segment(namespace): Segment<String>) -> Response {
    let Some((pod, hostile)) = pages.of.lock().get(&namespace).cloned() else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let scrape = pages.scrapes.fetch_add(1, Ordering::Relaxed);
    let mut text = String::new();
    let labels = format!("namespace=\"{namespace}\",pod=\"{pod}\"");
    let gauges = [("kv_cache_usage_perc", 0.5), ("num_requests_waiting", 0.0), ("num_requests_running", 3.0)];
    for (name, value) in gauges {
        let _ = writeln!(text, "vllm:{name}{{{labels},model_name=\"m\",engine=\"0\"}} {value}");
        if matches!(hostile, Hostile::Names) {
            for i in 0..NAMES {
                let _ = writeln!(text, "vllm:{name}{{{labels},model_name=\"m-{i}\",engine=\"0\"}} {value}");
            }
        }
    }
    if matches!(hostile, Hostile::Duplicates) {
        for server in ["a", "b"] {
            let own =
                format!("{labels},model_name=\"m\",engine=\"1\",container=\"c\",wva_server=\"{server}\"");
            let _ = writeln!(text, "vllm:kv_cache_usage_perc{{{own}}} 0.5");
            let _ = writeln!(text, "vllm:num_requests_running{{{own}}} 1");
        }
    }
    let engines = if matches!(hostile, Hostile::Engines) { ENGINES } else { 1 };
    for i in 0..engines {
        let engine = if engines > 1 { format!("{scrape}-{i}") } else { "0".to_owned() };
        for name in [
            "request_success_total", "prompt_tokens_total", "generation_tokens_total",
            "num_requests_waiting", "num_requests_running",
        ] {
            if engines > 1 || name.ends_with("_total") {
                let _ = writeln!(text, "vllm:{name}{{{labels},model_name=\"m\",engine=\"{engine}\"}} 7");
            }
        }
    }
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}
