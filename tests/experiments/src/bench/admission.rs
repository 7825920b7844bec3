//! The bench of admission: reviews straight to the program at a constant rate with a thousand variants in its caches,
//! and what its webhooks cost whoever creates a variant through the API server. Prints a table, writes the same as
//! JSON, and fails where a bound is exceeded.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use serde_json::{Value, json};
use wva_testbed::install::{Install, InstallOptions, WEBHOOKS};
use wva_testbed::{Options, Testbed, Tools, eventually, within};

use super::load::{Aim, Expect, Load, RATE, write};
use super::pairs::{self, Pairs};
use super::stored::{NEW, VARIANTS};
use super::usage::{Machine, Usage};
use super::{review, stored};

/// The slowest hundredth of the reviews takes at least this long, milliseconds.
const P99_BOUND: f64 = 2.0;
/// Resident memory while reviews come at the full rate, KiB.
const RESIDENT_BOUND: u64 = 32 * 1024;
/// A create with the webhooks against one without.
const RATIO_BOUND: f64 = 1.1;
/// One pass of the rules over a variant, microseconds.
const PASS_BOUND: f64 = 20.0;

/// Cores that the program keeps busy at most once it has told of its decisions.
const IDLE: f64 = 0.05;
/// What a machine at rest keeps busy at most: the control plane idles on the same cores.
const AT_REST: f64 = 0.15;
/// How long to wait for that. After it the bench goes on, and says how busy the machine is.
const REST: Duration = Duration::from_mins(1);
/// One look at how busy something is.
const LOOK: Duration = Duration::from_secs(3);

/// What to measure.
pub(crate) struct Plan {
    /// The program: a release build.
    pub(crate) wva: PathBuf,
    /// Where `cargo bench` left the figures of the rules.
    pub(crate) criterion: PathBuf,
    /// Where bodies, results and the report go.
    pub(crate) folder: PathBuf,
}

/// Measures, prints and judges.
pub(crate) async fn run(plan: &Plan) -> anyhow::Result<()> {
    std::fs::create_dir_all(&plan.folder)
        .with_context(|| format!("cannot create {}", plan.folder.display()))?;
    let vegeta = tokio::task::spawn_blocking(|| Tools::named(&["vegeta"])).await??;
    let passes = passes(&plan.criterion)?;
    let (mut loads, mut pairs) = (Vec::new(), Vec::new());
    // The tests' etcd does not wait for the disk, which makes creates unusually fast, and what is added to them weigh
    // more; that of a cluster does. Both are shown.
    for fsync in [false, true] {
        let name = if fsync { "bench-admission-fsync" } else { "bench-admission" };
        say(&format!("starting a control plane ({name}) and storing {VARIANTS} variants"))?;
        let options = Options {
            name: name.to_owned(),
            hpa_sync: Duration::from_mins(1),
            scrape_interval: Duration::from_secs(15),
            etcd_fsync: fsync,
            ..Options::default()
        };
        let testbed = Testbed::start(options).await?;
        Install::crd(&testbed).await?;
        let namespaces = stored::store(&testbed).await?;
        let started = InstallOptions { env: Vec::new(), ..InstallOptions::quick(plan.wva.clone()) };
        let install = Install::start(&testbed, &started).await?;
        settle(&install).await?;
        if !fsync {
            loads = load(plan, vegeta.path("vegeta")?, &testbed, &install, &namespaces).await?;
            settle(&install).await?;
        }
        say(&format!("creating variants in pairs, etcd {} the disk", waits(fsync)))?;
        let namespace = namespaces.first().context("no namespace was made")?;
        pairs.push(pairs::measure(&testbed, &install, namespace, fsync).await?);
        install.stop().await?;
    }
    let report = plan.folder.join("admission.json");
    let json = json!({
        "variants": VARIANTS,
        "rulesMicroseconds": passes.iter().map(|(n, v)| (n.clone(), json!(v))).collect::<serde_json::Map<_, _>>(),
        "loads": loads.iter().map(Load::json).collect::<Vec<_>>(),
        "creates": pairs.iter().map(Pairs::json).collect::<Vec<_>>(),
    });
    write(&report, &format!("{json:#}\n"))?;
    let faults = table(&passes, &loads, &pairs)?;
    say(&format!("\nthe same as JSON: {}", report.display()))?;
    ensure!(faults == 0, "{faults} bounds were exceeded");
    Ok(())
}

/// Waits until the program has decided on every variant and told so, and the machine has come to rest.
async fn settle(install: &Install) -> anyhow::Result<()> {
    eventually("all variants to be decided on", Duration::from_mins(3), async || {
        let cycles = install.series("wva_engine_cycles_total", &[("result", "ok")]).await?.unwrap_or(0.0);
        ensure!(cycles >= 1.0, "no cycle has ended");
        Ok(())
    })
    .await?;
    let pid = install.process().pid();
    eventually("wva to come to rest", Duration::from_mins(3), async || {
        let earlier = Usage::of(pid)?;
        tokio::time::sleep(LOOK).await;
        let cores = Usage::of(pid)?.cores_since(&earlier, LOOK);
        ensure!(cores <= IDLE, "it keeps {cores:.2} cores busy");
        Ok(())
    })
    .await?;
    let mut busy = 0.0;
    let rest = eventually("the machine to come to rest", REST, async || {
        let earlier = Machine::now()?;
        tokio::time::sleep(LOOK).await;
        busy = Machine::now()?.busy_since(earlier);
        ensure!(busy <= AT_REST, "{:.0} % of it is busy", busy * 100.0);
        Ok(())
    })
    .await;
    let note = if rest.is_ok() { "" } else { ": something else runs on it, so take the figures with care" };
    say(&format!("the machine is {:.0} % busy before it begins{note}", busy * 100.0))
}

/// One load of good variants, one of bad ones, and one that nobody judges.
async fn load(
    plan: &Plan,
    vegeta: &Path,
    testbed: &Testbed,
    install: &Install,
    namespaces: &[String],
) -> anyhow::Result<Vec<Load>> {
    let configurations = Api::<ValidatingWebhookConfiguration>::all(testbed.admin()?);
    let configuration =
        within("reading the CA bundle", Duration::from_secs(10), configurations.get(WEBHOOKS)).await?;
    let webhook = configuration.webhooks.and_then(|all| all.into_iter().next());
    let bundle = webhook.and_then(|w| w.client_config.ca_bundle).context("the webhooks have no CA bundle")?;
    let ca = plan.folder.join("ca.crt");
    write(&ca, std::str::from_utf8(&bundle.0).context("the CA bundle is no text")?)?;
    let aim = Aim { vegeta, install, ca: &ca, folder: &plan.folder };
    let reviews = |object: fn(&str, &str) -> Value| -> Vec<Value> {
        namespaces.iter().map(|namespace| review::create(object(namespace, NEW))).collect()
    };
    let mut loads = Vec::new();
    for (name, reviews, expect) in [
        ("admitted", reviews(review::good), Expect::Verdict("200")),
        ("refused", reviews(review::bad), Expect::Verdict("422")),
        ("floor", reviews(review::good), Expect::NotFound),
    ] {
        say(&format!("sending {RATE} reviews a second: {name}"))?;
        loads.push(aim.load(name, &reviews, expect).await?);
    }
    Ok(loads)
}

/// Microseconds of one pass of the rules, by name, as criterion measured them.
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

/// Prints everything, and gives how many bounds were exceeded.
fn table(passes: &[(String, f64)], loads: &[Load], pairs: &[Pairs]) -> anyhow::Result<usize> {
    let mut faults = 0;
    let mut judge = |within: bool| {
        faults += usize::from(!within);
        if within { "ok" } else { "EXCEEDED" }
    };
    say(&format!("\nthe rules alone, one pass (bound {PASS_BOUND} µs)"))?;
    for (name, micros) in passes {
        say(&format!("  {name:<18} {micros:6.2} µs  {}", judge(*micros <= PASS_BOUND)))?;
    }
    say(&format!(
        "\n{RATE} reviews a second over TLS, {VARIANTS} variants stored (bound p99 {P99_BOUND} ms)"
    ))?;
    for l in loads {
        let judged = l.name != "floor";
        say(&format!(
            "  {:<9} rate {:.0}/s  success {:.2} %  p50 {:.2}  p90 {:.2}  p99 {:.2}  max {:.2} ms  {}",
            l.name,
            l.rate,
            l.success * 100.0,
            l.p50,
            l.p90,
            l.p99,
            l.max,
            if judged {
                judge(l.p99 <= P99_BOUND && l.success >= 1.0)
            } else {
                "no path, no review: the floor"
            },
        ))?;
        say(&format!(
            "            wva {:.2} cores, machine {:.0} % busy; resident {:.1} before, {:.1} during, {:.1} after (code {:.1}), \
             {:.1} MiB at most since the start (bound {} MiB)  {}",
            l.cores,
            l.machine * 100.0,
            mib(l.resident[0]),
            mib(l.resident[1]),
            mib(l.resident[2]),
            mib(l.code),
            mib(l.peak),
            RESIDENT_BOUND / 1024,
            judge(l.resident[1] <= RESIDENT_BOUND),
        ))?;
    }
    say(&format!("\ncreates through the API server, in pairs (bound {RATIO_BOUND} times)"))?;
    for p in pairs {
        say(&format!(
            "  etcd {} the disk: with webhooks {:.2} ms (p99 {:.2}), without {:.2} ms (p99 {:.2}): {:.2} times  {}",
            waits(p.fsync),
            p.judged[0],
            p.judged[1],
            p.unjudged[0],
            p.unjudged[1],
            p.ratio(),
            judge(p.ratio() <= RATIO_BOUND),
        ))?;
        say(&format!(
            "    of that, on average: mutating call {:.2} ms, validating call {:.2} ms, each {:.3} ms in wva",
            p.calls[0], p.calls[1], p.review
        ))?;
    }
    Ok(faults)
}

fn waits(fsync: bool) -> &'static str {
    if fsync { "waits for" } else { "does not wait for" }
}

#[expect(clippy::cast_precision_loss, reason = "KiB of a process, far below 2^52")]
fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

fn say(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("cannot write to standard output")
}
