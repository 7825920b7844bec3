//! The reconciler on a real control plane: real Prometheus, real HPA, the program with the rights of its service
//! account. Pods and vLLM are emulated. Each test has a namespace of its own and asserts what a user would see.

use std::time::Duration;

use crate::support::{Cluster, DEADLINE, condition, target};
use anyhow::{Context as _, ensure};
use wva_testbed::eventually;
use wva_testbed::fixtures::{MODEL_LABEL, VariantFixture};
use wva_testbed::install::get;
use wva_testbed::{Fleet, FleetConfig};

/// Longest wait until what a replica does is learnt.
const LEARNT: Duration = Duration::from_mins(4);

fn fleet(cluster: &Cluster, namespace: &str) -> anyhow::Result<Fleet> {
    let config = FleetConfig::new(namespace, &format!("{MODEL_LABEL}=served"), "meta-llama/Llama-3.1-8B");
    Fleet::start(&cluster.testbed, FleetConfig { rate: 0.0, ..config })
}

/// Waits for an event of this reason that says this. What is seen for a moment alone, a busy machine may miss.
async fn told(cluster: &Cluster, namespace: &str, reason: &str, text: &str) -> anyhow::Result<String> {
    let path = format!(
        "jsonpath={{range .items[?(@.reason==\"{reason}\")]}}{{.involvedObject.name}}: {{.message}}{{\"\\n\"}}{{end}}"
    );
    eventually(&format!("an event {reason} with {text:?}"), DEADLINE, async || {
        let events = cluster.testbed.kubectl(&["get", "events", "-n", namespace, "-o", &path]).await?;
        let events = events.success()?;
        ensure!(events.contains(text), "{events}");
        Ok(events)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cheaper_variant_grows_and_the_hpa_carries_it_out() -> anyhow::Result<()> {
    let cluster = crate::support::cluster().await?;
    let ns = cluster.testbed.namespace("cheaper").await?;
    let cheap = VariantFixture::new(&ns, "cheap").on_a100().cost("40.0");
    let dear = VariantFixture::new(&ns, "dear").cost("80.0");
    let load = fleet(cluster, &ns)?;
    load.set_fixed_all(0.30, 0.0);
    for variant in [&cheap, &dear] {
        cluster.testbed.apply(&variant.all()).await?;
    }
    eventually("both variants to be measured at rest", DEADLINE, async || {
        for name in ["cheap", "dear"] {
            let va = cluster.variant(&ns, name).await?;
            ensure!(
                condition(&va, "MetricsAvailable")? == ("True", "MetricsFound"),
                "{name}: {}",
                va["status"]
            );
            ensure!(target(&va) == Some(1), "{name}: {}", va["status"]);
        }
        Ok(())
    })
    .await?;
    ensure!(cluster.replicas(&ns, "cheap").await? == 1, "it was scaled without load");

    load.set_fixed_all(0.78, 0.0);
    let mut dear_first = false;
    eventually("the cheaper variant to grow", DEADLINE, async || {
        // In this order: while the cheaper one's replica is loading, the dearer one may help out.
        let dear = target(&cluster.variant(&ns, "dear").await?);
        let cheap = target(&cluster.variant(&ns, "cheap").await?);
        dear_first |= dear > Some(1) && cheap == Some(1);
        ensure!(cheap > Some(1), "its target is {cheap:?}");
        Ok(())
    })
    .await?;
    ensure!(!dear_first, "the dearer variant grew first");
    let desired = cluster
        .install
        .series("wva_desired_replicas", &[("namespace", &ns), ("variant_name", "cheap")])
        .await?;
    ensure!(desired >= Some(2.0), "wva_desired_replicas is {desired:?}");
    eventually("the HPA to scale the Deployment", DEADLINE, async || {
        ensure!(cluster.replicas(&ns, "cheap").await? >= 2, "it has not yet");
        Ok(())
    })
    .await?;
    eventually("it to be well", DEADLINE, async || {
        let va = cluster.variant(&ns, "cheap").await?;
        ensure!(condition(&va, "Ready")? == ("True", "Ready"), "{}", va["status"]);
        let optimization = condition(&va, "OptimizationReady")?;
        ensure!(optimization == ("True", "SaturationOnlyMode"), "{}", va["status"]);
        ensure!(va["status"]["actuation"]["applied"] == true, "{}", va["status"]);
        Ok(())
    })
    .await?;
    let step = "cheap: target 1 -> 2 (SpareBelowTarget)";
    told(cluster, &ns, "ScalingDecision", step).await.map(|_| ())
}

#[tokio::test(flavor = "multi_thread")]
async fn at_ten_replicas_the_step_is_what_the_hpa_acts_on() -> anyhow::Result<()> {
    let cluster = crate::support::cluster().await?;
    let ns = cluster.testbed.namespace("step").await?;
    let mut variant = VariantFixture::new(&ns, "ten").replicas(10);
    variant.max = 12;
    let load = fleet(cluster, &ns)?;
    load.set_fixed_all(0.72, 0.0);
    cluster.testbed.apply(&variant.all()).await?;
    load.wait_ready(10, DEADLINE).await?;
    // An HPA ignores a tenth: 11 would stay unheard for ever.
    eventually("the HPA to carry out a step of two", DEADLINE, async || {
        let replicas = cluster.replicas(&ns, "ten").await?;
        let target = target(&cluster.variant(&ns, "ten").await?);
        ensure!(target != Some(11), "a step of one was published, which the HPA ignores");
        ensure!(replicas == 12, "{replicas} replicas, target {target:?}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn load_that_fits_on_fewer_replicas_gives_them_back_one_by_one_down_to_one() -> anyhow::Result<()> {
    let cluster = crate::support::cluster().await?;
    let ns = cluster.testbed.namespace("down").await?;
    let load = fleet(cluster, &ns)?;
    load.set_fixed_all(0.10, 0.0);
    cluster.testbed.apply(&VariantFixture::new(&ns, "idle").replicas(3).all()).await?;
    eventually("three replicas to become one", DEADLINE, async || {
        let replicas = cluster.replicas(&ns, "idle").await?;
        ensure!(replicas == 1, "{replicas} left");
        Ok(())
    })
    .await?;
    for step in ["from 3 to 2", "from 2 to 1"] {
        told(cluster, &ns, "ScalingReplicaSet", step).await?;
    }
    // The last one stays, however idle the model is.
    let before = cycles(cluster).await?;
    eventually("three more cycles", DEADLINE, async || {
        ensure!(cycles(cluster).await? >= before + 3.0, "not yet");
        Ok(())
    })
    .await?;
    ensure!(cluster.replicas(&ns, "idle").await? == 1, "the last replica was taken");
    Ok(())
}

async fn cycles(cluster: &Cluster) -> anyhow::Result<f64> {
    let mut all = 0.0;
    for result in ["ok", "degraded"] {
        all += cluster.install.series("wva_engine_cycles_total", &[("result", result)]).await?.unwrap_or(0.0);
    }
    Ok(all)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recommendation_is_shown_and_not_published() -> anyhow::Result<()> {
    let cluster = crate::support::cluster().await?;
    let ns = cluster.testbed.namespace("recommend").await?;
    cluster.testbed.apply(&thresholds(&ns, "shadowAnalyzer: throughput")).await?;
    let load = fleet(cluster, &ns)?;
    load.set_fixed_all(0.78, 0.0);
    load.set_rate(5.0);
    let labels = "  labels: {inference.optimization/acceleratorName";
    let mode = format!("  annotations: {{wva.llmd.ai/mode: recommend}}\n{labels}");
    cluster.testbed.apply(&VariantFixture::new(&ns, "shown").all().replace(labels, &mode)).await?;
    eventually("a target in the status alone", DEADLINE, async || {
        let va = cluster.variant(&ns, "shown").await?;
        ensure!(condition(&va, "Ready")? == ("True", "RecommendOnly"), "{}", va["status"]);
        ensure!(target(&va) == Some(2), "{}", va["status"]);
        ensure!(va["status"]["actuation"]["applied"] == false, "{}", va["status"]);
        let labels = [("namespace", ns.as_str()), ("variant_name", "shown")];
        ensure!(
            cluster.install.series("wva_desired_replicas", &labels).await?.is_none(),
            "a series is published"
        );
        ensure!(cluster.external_metric(&ns, "shown").await?.is_empty(), "the external metric is served");
        Ok(())
    })
    .await?;
    eventually("what runs, what is decided and what arrivals would have side by side", DEADLINE, async || {
        let policy = async |policy: &str| {
            let labels = [("namespace", ns.as_str()), ("variant_name", "shown"), ("policy", policy)];
            cluster.install.series("wva_policy_replicas", &labels).await
        };
        let (running, decided) = (policy("running").await?, policy("percentage").await?);
        ensure!((running, decided) == (Some(1.0), Some(2.0)), "running {running:?}, percentages {decided:?}");
        ensure!(policy("throughput").await?.is_some(), "nothing of the throughput analyzer");
        let told = explained(cluster, &ns, "shown").await?;
        let shown = told.split_once("not acting: throughput, 1 -> ").context("it is not explained")?.1;
        ensure!(shown.contains(" req/s arriving"), "{told}");
        Ok(())
    })
    .await
}

/// What `wva explain` prints of a variant.
async fn explained(cluster: &Cluster, namespace: &str, name: &str) -> anyhow::Result<String> {
    let address = cluster.install.address("debug")?;
    let (status, text) = get(&format!("http://{address}/explain?namespace={namespace}&name={name}")).await?;
    ensure!(status == 200, "{status}: {text}");
    Ok(text)
}

/// The saturation map of a namespace, with one entry for all its models.
fn thresholds(namespace: &str, entry: &str) -> String {
    format!(
        "apiVersion: v1
kind: ConfigMap
metadata: {{name: wva-saturation-scaling-config, namespace: {namespace}}}
data: {{default: '{entry}'}}
"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scrape_gap_takes_no_replica_away() -> anyhow::Result<()> {
    let cluster = crate::support::cluster().await?;
    let ns = cluster.testbed.namespace("gap").await?;
    let load = fleet(cluster, &ns)?;
    load.set_fixed_all(0.60, 0.0);
    cluster.testbed.apply(&VariantFixture::new(&ns, "gappy").replicas(2).all()).await?;
    let pods = load.wait_ready(2, DEADLINE).await?;
    load.set_fault(pods.first().context("no pod")?, Some(wva_testbed::ExportFault::NotANumber));
    eventually("one of two replicas to report", DEADLINE, async || {
        let va = cluster.variant(&ns, "gappy").await?;
        let message = va["status"]["conditions"].to_string();
        ensure!(message.contains("1 replica(s) report"), "{message}");
        Ok(())
    })
    .await?;
    ensure!(
        target(&cluster.variant(&ns, "gappy").await?) == Some(2),
        "a replica that does not report was taken for idle"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_analyzer_takes_all_the_steps_that_are_lacking_at_once() -> anyhow::Result<()> {
    let cluster = crate::support::cluster().await?;
    let ns = cluster.testbed.namespace("tokens").await?;
    cluster.testbed.apply(&thresholds(&ns, "analyzerName: saturation")).await?;
    let config = FleetConfig::new(&ns, &format!("{MODEL_LABEL}=served"), "meta-llama/Llama-3.1-8B");
    let load = Fleet::start(&cluster.testbed, FleetConfig { rate: 4.0, ..config })?;
    // 4096 blocks of 16 tokens, requests of 512 + 128: at rest one replica is enough, for 0.65 of 65,536 are 42,598.
    load.set_fixed_all(0.65, 0.0);
    cluster.testbed.apply(&VariantFixture::new(&ns, "counted").all()).await?;
    eventually("tokens to be counted at rest", DEADLINE, async || {
        let va = cluster.variant(&ns, "counted").await?;
        let found = condition(&va, "OptimizationReady")?;
        ensure!(found == ("True", "OptimizationSucceeded") && target(&va) == Some(1), "{}", va["status"]);
        Ok(())
    })
    .await?;
    // 90 times 512 waiting besides are 88,678 tokens: over 0.85 that is 61,729 more than the 42,598 of one replica, which
    // can do no more than it has in use while requests wait, and so two replicas more. One signal alone changes: two could
    // be of two scrapes.
    load.set_fixed_all(0.65, 90.0);
    let events = told(cluster, &ns, "ScalingDecision", "counted: target 1 -> ").await?;
    ensure!(events.contains("counted: target 1 -> 3 "), "{events}");
    Ok(())
}

/// A request takes 2 s whatever the batch, and 91 fit into 0.8 of a pod's cache: 38.7 requests a second at 0.85 of that.
/// From one load alone nothing tells that a larger batch costs no time, so less is believed: 25 at least, what 60 at once do.
#[tokio::test(flavor = "multi_thread")]
async fn arrivals_bring_the_replicas_that_they_take_before_a_cache_is_full() -> anyhow::Result<()> {
    let cluster = crate::support::cluster().await?;
    let ns = cluster.testbed.namespace("arrivals").await?;
    cluster.testbed.apply(&thresholds(&ns, "{analyzerName: throughput, ttftSlo: 900}")).await?;
    let config = FleetConfig::new(&ns, &format!("{MODEL_LABEL}=served"), "meta-llama/Llama-3.1-8B");
    let kv_per_request = (512.0 + 64.0) / 65_536.0;
    let config = FleetConfig { rate: 30.0, max_seqs: 256, kv_per_request, ..config };
    let load = Fleet::start(&cluster.testbed, config)?;
    cluster.testbed.apply(&VariantFixture::new(&ns, "arrivals").all()).await?;
    let said = async || -> anyhow::Result<(Option<u64>, String)> {
        let va = cluster.variant(&ns, "arrivals").await?;
        Ok((target(&va), explained(cluster, &ns, "arrivals").await?))
    };
    // A minute until the server is warm, and four samples of 15 s. How much a replica does at another load than the one
    // that was seen is a belief, so it is not held to a figure here; what arrives is counted.
    let settled = eventually("what a replica does to be learnt", LEARNT, async || {
        let (target, said) = said().await?;
        let arriving = said.split_once(" req/s arriving").context("it does not count arrivals")?.0;
        let arriving: f64 = arriving.rsplit(' ').next().context("no figure")?.parse()?;
        ensure!((27.0..33.0).contains(&arriving) && said.contains("(learnt from "), "{said}");
        ensure!(said.contains("(objective 900 ms)"), "the objective is not shown: {said}");
        target.with_context(|| said.clone())
    })
    .await?;
    eventually("a new leader's memory in the status", DEADLINE, async || {
        let va = cluster.variant(&ns, "arrivals").await?;
        let learned = &va["status"]["learned"];
        for name in ["a", "b", "c"] {
            ensure!(learned[name].as_f64().is_some_and(|time| time > 0.0 && time < 1.0), "{name}: {learned}");
        }
        Ok(())
    })
    .await?;

    load.set_rate(100.0);
    eventually("a step of several replicas at once", DEADLINE, async || {
        let (target, said) = said().await?;
        ensure!(target != Some(settled + 1) || said.contains("expected"), "it went up one by one: {said}");
        ensure!(target >= Some(settled + 2), "{said}");
        Ok(())
    })
    .await
}
