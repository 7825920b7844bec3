//! The bench of the engine: rounds of queries against a real Prometheus and cycles over 1,000 models with 4,000 pods,
//! on a real control plane. Prints a table, writes the same as JSON, and fails where a bound is exceeded.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;
use tokio::task::JoinSet;
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::install::{self, Install, InstallOptions};
use wva_testbed::{NodeGroup, Options, Testbed, eventually, within};

use super::exporter::{Exporter, Served};
use super::stored::create;
use super::usage::Usage;

/// Namespaces, models in each, replicas of each.
pub(super) const NAMESPACES: usize = 20;
pub(super) const MODELS: usize = 50;
const REPLICAS: u32 = 4;
const PODS: usize = NAMESPACES * MODELS * REPLICAS as usize;

/// Rounds and cycles that are measured.
const ROUNDS: f64 = 12.0;
/// Time between two.
const EVERY: &str = "10s";

/// Queries of a round.
const QUERIES_BOUND: f64 = 10.0;
/// Queries, as if one came after the other, and the cycle: seconds.
const TOTAL_BOUND: f64 = 3.0;
/// Processor time of the program for a round and a cycle, seconds: parse, map, decide, publish, and all else it does.
const OWN_BOUND: f64 = 0.3;
/// Resident memory, KiB.
const RESIDENT_BOUND: u64 = 64 * 1024;

/// How long thousands of pods may take to become ready on a busy machine.
const PODS_WITHIN: Duration = Duration::from_mins(10);

/// Measures, prints and judges.
pub(crate) async fn run(wva: &Path, folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    say(&format!("starting a control plane and {PODS} pods"))?;
    let options = Options {
        name: "bench-cycle".to_owned(),
        nodes: vec![NodeGroup { gpus: 256, ..NodeGroup::of("h100", 20, "NVIDIA-H100-80GB-HBM3") }],
        pod_start: Duration::from_secs(1),
        hpa_sync: Duration::from_mins(10),
        scrape_interval: Duration::from_secs(15),
        many_pods: true,
        ..Options::default()
    };
    let testbed = Testbed::start(options).await?;
    Install::crd(&testbed).await?;
    let served = store(&testbed, REPLICAS).await?;
    let exporter = Exporter::start(served).await?;
    testbed.scrape_pages(&exporter.address, &exporter.paths)?;
    eventually("Prometheus to know every pod", Duration::from_mins(2), async || {
        let found = testbed.prometheus_query("count(vllm:kv_cache_usage_perc)").await?;
        ensure!(found.first().is_some_and(|s| s.value >= count(PODS)), "{found:?}");
        Ok(())
    })
    .await?;
    let env = [
        ("GLOBAL_OPT_INTERVAL", EVERY),
        ("PROMETHEUS_METRICS_CACHE_FETCH_INTERVAL", EVERY),
        ("PROMETHEUS_METRICS_CACHE_TTL", EVERY),
    ];
    let env = env.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    let install = Install::start(&testbed, &InstallOptions { env, ..InstallOptions::quick(wva) }).await?;
    let figures = measure(&install).await?;
    let report = folder.join("cycle.json");
    let text = format!("{:#}\n", figures.json());
    std::fs::write(&report, text).with_context(|| format!("cannot write {}", report.display()))?;
    let faults = figures.table()?;
    say(&format!("\nthe same as JSON: {}", report.display()))?;
    ensure!(faults == 0, "{faults} bounds were exceeded");
    Ok(())
}

/// Stores the models, each with so many replicas, and waits for their pods.
pub(super) async fn store(testbed: &Testbed, replicas: u32) -> anyhow::Result<BTreeMap<String, Vec<Served>>> {
    let client = testbed.admin()?;
    let mut tasks = JoinSet::new();
    let mut namespaces = Vec::new();
    for _ in 0..NAMESPACES {
        let namespace = testbed.namespace("bench").await?;
        namespaces.push(namespace.clone());
        let client = client.clone();
        tasks.spawn(async move {
            for i in 0..MODELS {
                let fixture = VariantFixture {
                    model: model(i),
                    ..VariantFixture::new(&namespace, &format!("variant-{i}")).replicas(replicas)
                };
                for yaml in [fixture.deployment(), fixture.autoscaler(), fixture.variant()] {
                    create(&client, &yaml).await?;
                }
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.context("storing objects panicked")??;
    }
    let mut served = BTreeMap::new();
    for namespace in namespaces {
        let of_namespace = eventually("all pods of a namespace to be ready", PODS_WITHIN, async || {
            let pods = pods(&client, &namespace).await?;
            ensure!(pods.len() == MODELS * replicas as usize, "{} are", pods.len());
            Ok(pods)
        })
        .await?;
        served.insert(namespace, of_namespace);
    }
    Ok(served)
}

fn model(i: usize) -> String {
    format!("meta-llama/Llama-{i}")
}

/// The ready pods of a namespace.
async fn pods(client: &kube::Client, namespace: &str) -> anyhow::Result<Vec<Served>> {
    let api = Api::<Pod>::namespaced(client.clone(), namespace);
    let all = within("listing pods", Duration::from_secs(30), api.list(&ListParams::default())).await?;
    let ready = |pod: &Pod| {
        let conditions = pod.status.iter().flat_map(|s| s.conditions.iter().flatten());
        conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True")
    };
    let served = |pod: Pod| {
        let variant = pod.metadata.labels?.remove("app")?;
        let i = variant.strip_prefix("variant-")?.parse().ok()?;
        Some(Served { pod: pod.metadata.name?, model: model(i) })
    };
    Ok(all.items.into_iter().filter(ready).filter_map(served).collect())
}

/// Counters of the program at one time.
struct Reading {
    /// Seconds and number of the queries of each signal.
    queries: BTreeMap<String, (f64, f64)>,
    cycles: (f64, f64),
    usage: Usage,
}

async fn read(install: &Install) -> anyhow::Result<Reading> {
    let usage = Usage::of(install.process().pid())?;
    let (_, text) = install::get(&format!("http://{}/metrics", install.address("metrics")?)).await?;
    let mut reading = Reading { queries: BTreeMap::new(), cycles: (0.0, 0.0), usage };
    for line in text.lines() {
        let Some((series, value)) = line.rsplit_once(' ') else { continue };
        let Ok(value) = value.parse::<f64>() else { continue };
        match series.split_once('{') {
            None if series == "wva_engine_cycle_duration_seconds_sum" => reading.cycles.0 = value,
            None if series == "wva_engine_cycle_duration_seconds_count" => reading.cycles.1 = value,
            Some((name, labels)) => {
                let Some(query) = labels.strip_prefix("query=\"").and_then(|l| l.split('"').next()) else {
                    continue;
                };
                let entry = reading.queries.entry(query.to_owned()).or_default();
                match name {
                    "wva_prometheus_query_duration_seconds_sum" => entry.0 = value,
                    "wva_prometheus_query_duration_seconds_count" => entry.1 = value,
                    _ => {}
                }
            }
            None => {}
        }
    }
    Ok(reading)
}

async fn measure(install: &Install) -> anyhow::Result<Figures> {
    eventually("all variants to be decided on", Duration::from_mins(3), async || {
        let ready = install.series("wva_variants", &[("state", "Ready")]).await?.unwrap_or(0.0);
        ensure!(ready >= count(NAMESPACES * MODELS), "{ready} variants are ready");
        Ok(())
    })
    .await?;
    // The statuses of a thousand variants are written once after the first decisions.
    let begin = after_cycles(install, 3.0).await?;
    say(&format!("measuring {ROUNDS} rounds and cycles"))?;
    let end = after_cycles(install, ROUNDS).await?;
    let cycles = end.cycles.1 - begin.cycles.1;
    let queries = end
        .queries
        .iter()
        .map(|(name, (seconds, number))| {
            let (before, asked) = begin.queries.get(name).copied().unwrap_or_default();
            (name.clone(), (seconds - before, number - asked))
        })
        .filter(|(_, (_, number))| *number > 0.0)
        .collect();
    Ok(Figures {
        cycles,
        cycle: (end.cycles.0 - begin.cycles.0) / cycles,
        queries,
        own: end.usage.cpu.saturating_sub(begin.usage.cpu).as_secs_f64() / cycles,
        resident: end.usage.resident,
        code: end.usage.code,
        peak: end.usage.peak,
    })
}

/// Waits for more cycles.
async fn after_cycles(install: &Install, more: f64) -> anyhow::Result<Reading> {
    let until = read(install).await?.cycles.1 + more;
    eventually("cycles to run", Duration::from_mins(5), async || {
        // Not all of /metrics each time, which takes the program longer than a cycle.
        tokio::time::sleep(Duration::from_secs(5)).await;
        let reading = read(install).await?;
        ensure!(reading.cycles.1 >= until, "{} of {until}", reading.cycles.1);
        Ok(reading)
    })
    .await
}

/// What was measured. Times in seconds, a cycle.
struct Figures {
    cycles: f64,
    cycle: f64,
    queries: BTreeMap<String, (f64, f64)>,
    own: f64,
    resident: u64,
    code: u64,
    peak: u64,
}

impl Figures {
    fn a_round(&self) -> f64 {
        self.queries.values().map(|(_, number)| number).sum::<f64>() / self.cycles
    }

    fn total(&self) -> f64 {
        self.queries.values().map(|(seconds, _)| seconds).sum::<f64>() / self.cycles + self.cycle
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "models": NAMESPACES * MODELS, "pods": PODS, "cycles": self.cycles,
            "secondsOfQueries": self.queries.iter().map(|(n, (s, c))| (n.clone(), s / c)).collect::<BTreeMap<_, _>>(),
            "queriesARound": self.a_round(), "secondsOfACycle": self.cycle,
            "secondsInAllOneAfterTheOther": self.total(), "processorSecondsOfTheProgram": self.own,
            "residentKiB": {"now": self.resident, "most": self.peak, "ofThatCode": self.code},
        })
    }

    fn table(&self) -> anyhow::Result<usize> {
        let mut faults = 0;
        let mut judge = |within: bool| {
            faults += usize::from(!within);
            if within { "ok" } else { "EXCEEDED" }
        };
        say(&format!("\n{} models, {PODS} pods, {} cycles every {EVERY}", NAMESPACES * MODELS, self.cycles))?;
        for (name, (seconds, number)) in &self.queries {
            say(&format!("  query {name:<20} {:6.0} ms", seconds / number * 1e3))?;
        }
        let round = self.a_round();
        say(&format!(
            "  queries a round           {round:6.1}     bound {QUERIES_BOUND}  {}",
            judge(round <= QUERIES_BOUND + 0.5)
        ))?;
        say(&format!("  assemble, decide, publish {:6.0} ms", self.cycle * 1e3))?;
        let total = self.total();
        say(&format!(
            "  all one after the other   {:6.0} ms  bound {:.0} ms  {}",
            total * 1e3,
            TOTAL_BOUND * 1e3,
            judge(total <= TOTAL_BOUND)
        ))?;
        say(&format!(
            "  processor time of wva     {:6.0} ms  bound {:.0} ms  {}",
            self.own * 1e3,
            OWN_BOUND * 1e3,
            judge(self.own <= OWN_BOUND)
        ))?;
        say(&format!(
            "  resident                  {:6.1} MiB, {:.1} at most since the start, of which code {:.1}  bound {} MiB  {}",
            mib(self.resident),
            mib(self.peak),
            mib(self.code),
            RESIDENT_BOUND / 1024,
            judge(self.resident <= RESIDENT_BOUND)
        ))?;
        Ok(faults)
    }
}

#[expect(clippy::cast_precision_loss, reason = "KiB of a process, far below 2^52")]
pub(super) fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

#[expect(clippy::cast_precision_loss, reason = "thousands")]
pub(super) fn count(n: usize) -> f64 {
    n as f64
}

pub(super) fn say(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("cannot write to standard output")
}
