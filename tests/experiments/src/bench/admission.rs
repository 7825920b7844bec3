//! Bench of admission: reviews sent directly to the program at a constant rate with a thousand cached variants, and
//! the webhooks' cost for a create through the API server. Prints a table, writes it as JSON, and fails if a bound is
//! exceeded.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::install::{Install, InstallOptions};
use wva_testbed::{Options, Testbed, eventually};

use super::load::{ExpectedAnswer, Load, P99_BOUND, RATE};
use super::pairs::{self, Pairs};
use super::stored::{NAMESPACES, VARIANTS, store};
use super::{review, write_json};
use crate::command::print_line;
use crate::report::Report;
use crate::usage::{Machine, Usage};
use crate::vegeta::Vegeta;

/// Name of the workload without a variant, and of its HPA.
pub(super) const NEW: &str = "new";
/// Maximum ratio of the create times with and without webhooks.
const RATIO_BOUND: f64 = 1.1;
/// Maximum time of one pass of the rules over a variant, microseconds.
const PASS_BOUND: f64 = 20.0;

/// Maximum cores that the program keeps busy after it has published its decisions.
const IDLE: f64 = 0.05;
/// Maximum busy share of a machine at rest, 0..=1: the control plane runs on it too.
const AT_REST: f64 = 0.15;
/// Time limit for reaching rest. Afterwards the bench continues and reports how busy the machine is.
const REST: Duration = Duration::from_mins(1);
/// Measuring interval of the busy share.
const POLL_INTERVAL: Duration = Duration::from_secs(3);

/// Runs the bench.
pub(crate) async fn run(wva: &Path, criterion: &Path, folder: &Path) -> anyhow::Result<()> {
    let passes = passes(criterion)?;
    let (mut loads, mut pairs) = (Vec::new(), Vec::new());
    // Without disk syncs in etcd, as in tests, creates are unusually fast, and the webhooks' share is larger. The
    // table shows both settings.
    for fsync in [false, true] {
        let name = if fsync { "bench-admission-fsync" } else { "bench-admission" };
        print_line(&format!("starting a control plane ({name}) and storing {VARIANTS} variants"))?;
        let options = Options {
            name: name.to_owned(),
            hpa_sync: Duration::from_mins(1),
            scrape_interval: Duration::from_secs(15),
            etcd_fsync: fsync,
            ..Options::default()
        };
        let testbed = Testbed::start(options).await?;
        Install::crd(&testbed).await?;
        let namespaces = store(&testbed, NAMESPACES, manifests).await?;
        let install = Install::start(&testbed, &InstallOptions::new(wva)).await?;
        settle(&install).await?;
        if !fsync {
            loads = load(&testbed, &install, &namespaces).await?;
            settle(&install).await?;
        }
        print_line(&format!("creating variants in pairs, etcd {} the disk", waits(fsync)))?;
        let namespace = namespaces.first().context("no namespace was made")?;
        pairs.push(pairs::measure(&testbed, &install, namespace, fsync).await?);
        install.stop().await?;
    }
    let json = json!({
        "variants": VARIANTS,
        "rulesMicroseconds": passes.iter().map(|(n, v)| (n.clone(), json!(v))).collect::<serde_json::Map<_, _>>(),
        "loads": loads.iter().map(Load::json).collect::<Vec<_>>(),
        "creates": pairs.iter().map(Pairs::json).collect::<Vec<_>>(),
    });
    write_json(&folder.join("admission.json"), &json)?;
    report(&passes, &loads, &pairs)
}

/// Variants of a namespace with workloads and HPAs, and one workload without a variant. Workloads have no replicas,
/// so that the control plane is idle during the measurement.
fn manifests(namespace: &str) -> Vec<String> {
    let fixture = |i: usize| VariantFixture {
        // Two variants per model, as in most fleets.
        model: format!("meta-llama/Llama-{}", i / 2),
        cost: if i.is_multiple_of(2) { "10.0".to_owned() } else { "40.0".to_owned() },
        ..VariantFixture::new(namespace, &format!("variant-{i}")).replicas(0)
    };
    let new = VariantFixture::new(namespace, NEW).replicas(0);
    let all =
        (0..VARIANTS / NAMESPACES).map(fixture).flat_map(|f| [f.deployment(), f.autoscaler(), f.variant()]);
    all.chain([new.deployment(), new.autoscaler()]).collect()
}

/// Waits until the program has published a decision on every variant, and the machine is at rest.
async fn settle(install: &Install) -> anyhow::Result<()> {
    eventually("all variants to be decided on", Duration::from_mins(3), async || {
        let cycles = install.series("wva_engine_cycles_total", &[("result", "ok")]).await?.unwrap_or(0.0);
        ensure!(cycles >= 1.0, "no cycle has ended");
        Ok(())
    })
    .await?;
    let pid = install.process().pid();
    eventually("wva to come to rest", Duration::from_mins(3), async || {
        let earlier = Usage::read(pid)?;
        tokio::time::sleep(POLL_INTERVAL).await;
        let cores = Usage::read(pid)?.cores_since(&earlier, POLL_INTERVAL);
        ensure!(cores <= IDLE, "it keeps {cores:.2} cores busy");
        Ok(())
    })
    .await?;
    let mut busy = 0.0;
    let rest = eventually("the machine to come to rest", REST, async || {
        let earlier = Machine::now()?;
        tokio::time::sleep(POLL_INTERVAL).await;
        busy = Machine::now()?.busy_since(earlier);
        ensure!(busy <= AT_REST, "{:.0} % of it is busy", busy * 100.0);
        Ok(())
    })
    .await;
    let note = if rest.is_ok() { "" } else { ": other programs run on it, so the figures are unreliable" };
    print_line(&format!("the machine is {:.0} % busy before it begins{note}", busy * 100.0))
}

/// Loads with valid variants, with invalid ones, and with a path that is not served.
async fn load(testbed: &Testbed, install: &Install, namespaces: &[String]) -> anyhow::Result<Vec<Load>> {
    let vegeta = Vegeta::new(testbed, install, testbed.data()).await?;
    let reviews = |object: fn(&str, &str) -> Value| -> Vec<Value> {
        namespaces.iter().map(|namespace| review::create(object(namespace, NEW))).collect()
    };
    let mut loads = Vec::new();
    for (name, reviews, expect) in [
        ("admitted", reviews(review::good), ExpectedAnswer::Verdict("200")),
        ("refused", reviews(review::bad), ExpectedAnswer::Verdict("422")),
        ("floor", reviews(review::good), ExpectedAnswer::NotFound),
    ] {
        print_line(&format!("sending {RATE} reviews a second: {name}"))?;
        loads.push(Load::send(&vegeta, install, name, &reviews, expect).await?);
    }
    Ok(loads)
}

/// Criterion's mean time of one pass of the rules, microseconds, by name.
fn passes(criterion: &Path) -> anyhow::Result<Vec<(String, f64)>> {
    let group = criterion.join("va");
    let folders = std::fs::read_dir(&group).with_context(|| {
        format!("no figures in {}: run `cargo bench -p wva-rules` first", group.display())
    })?;
    let mut passes = Vec::new();
    for folder in folders {
        let folder = folder?.path();
        let Ok(text) = std::fs::read_to_string(folder.join("new/estimates.json")) else { continue };
        let estimates: Value = serde_json::from_str(&text)?;
        let nanoseconds = estimates.pointer("/median/point_estimate").and_then(Value::as_f64);
        let name = folder.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        passes.push((name, nanoseconds.context("criterion's estimates have no median")? / 1e3));
    }
    passes.sort_by(|a, b| a.0.cmp(&b.0));
    ensure!(!passes.is_empty(), "no figures of the rules in {}", group.display());
    Ok(passes)
}

/// Prints the table; fails if a bound is exceeded.
fn report(passes: &[(String, f64)], loads: &[Load], pairs: &[Pairs]) -> anyhow::Result<()> {
    let mut report = Report::default();
    print_line("\nthe rules alone, one pass")?;
    for (name, micros) in passes {
        report.at_most(name, *micros, PASS_BOUND, |micros| format!("{micros:.2} µs"))?;
    }
    print_line(&format!(
        "\n{RATE} reviews a second over TLS, {VARIANTS} variants stored (bound p99 {P99_BOUND} ms)"
    ))?;
    for load in loads {
        load.report(&mut report)?;
    }
    print_line("\ncreates through the API server, in pairs")?;
    for p in pairs {
        let with_p99 = |[p50, p99]: [f64; 2]| format!("{p50:.2} ms (p99 {p99:.2})");
        let what = format!("with webhooks to without, etcd {} the disk", waits(p.fsync));
        report.at_most(&what, p.ratio(), RATIO_BOUND, |times| format!("{times:.2} times"))?;
        Report::note("  with one call to without", format!("{:.2} times", p.ratio_of_one_call()))?;
        Report::note("  with webhooks", with_p99(p.judged))?;
        Report::note("  with one call", with_p99(p.one_call))?;
        Report::note("  without", with_p99(p.unjudged))?;
        let [mutating, validating] = p.calls;
        let calls =
            format!("mutating {mutating:.2} ms, validating {validating:.2} ms, {:.3} ms in wva", p.review);
        Report::note("  calls of the webhooks, on average", calls)?;
    }
    report.end()
}

fn waits(fsync: bool) -> &'static str {
    if fsync { "waits for" } else { "does not wait for" }
}
