//! The testbed itself: pods start and scale as in a cluster, Prometheus scrapes the emulated fleet, load falls as
//! replicas are added, faults work, and a killed testbed leaves nothing behind.
//! Why a control plane of its own: no program is installed, and its components are stopped.

mod processes;
mod restart;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use tokio::sync::{OnceCell, RwLock};
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::{
    CRASH_LOOP_LABEL, Component, ExportFault, Fleet, FleetConfig, Options, Process, START_SECONDS_KEY,
    Sample, Signal, Testbed, eventually,
};

use crate::support::fleet_config;

/// Longest wait for what takes seconds, on a loaded machine too.
const SOON: Duration = Duration::from_mins(2);
/// Names the log folder of [`runs_until_killed`].
const NAME: &str = "WVA_TEST_NAME";
const POD_START: Duration = Duration::from_secs(2);

static TESTBED: OnceCell<Testbed> = OnceCell::const_new();
/// Write-locked by the test that stops the API server, read-locked by the others.
static API_SERVER: RwLock<()> = RwLock::const_new(());
/// Write-locked by the test that stops Prometheus, read-locked by those that need it.
static PROMETHEUS: RwLock<()> = RwLock::const_new(());

async fn testbed() -> anyhow::Result<&'static Testbed> {
    let options = || Options { name: "control-plane".to_owned(), pod_start: POD_START, ..Options::default() };
    TESTBED.get_or_try_init(|| Testbed::start(options())).await
}

fn deployment(namespace: &str, name: &str, replicas: u32) -> String {
    VariantFixture::new(namespace, name).replicas(replicas).deployment()
}

/// Adds a label to the pods of a Deployment.
fn labelled(deployment: &str, label: &str, value: &str) -> String {
    deployment.replace(": served}", &format!(": served, {label}: '{value}'}}"))
}

async fn scale(testbed: &Testbed, namespace: &str, name: &str, replicas: u32) -> anyhow::Result<()> {
    let replicas = format!("--replicas={replicas}");
    testbed.kubectl(&["scale", "deployment", name, "-n", namespace, &replicas]).await?.success().map(|_| ())
}

/// Waits until a JSON path of the pods has this value.
async fn wait_for_pods(testbed: &Testbed, namespace: &str, path: &str, want: &str) -> anyhow::Result<()> {
    eventually(&format!("{path} of the pods to be {want:?}"), SOON, async || {
        let path = format!("-o=jsonpath={path}");
        let got = testbed.kubectl(&["get", "pods", "-n", namespace, &path]).await?.success()?;
        ensure!(got == want, "it is {got:?}");
        Ok(())
    })
    .await
}

/// Waits until `fits` is true of the answer to a query.
async fn wait_for_samples(
    testbed: &Testbed,
    expression: &str,
    fits: impl Fn(&[Sample]) -> bool,
) -> anyhow::Result<()> {
    eventually(&format!("a fitting answer to {expression}"), SOON, async || {
        let samples = testbed.prometheus_query(expression).await?;
        ensure!(fits(&samples), "it is {samples:?}");
        Ok(())
    })
    .await
}

fn pods_of(samples: &[Sample]) -> Vec<&str> {
    let mut pods: Vec<&str> =
        samples.iter().filter_map(|sample| sample.labels.get("pod")).map(String::as_str).collect();
    pods.sort_unstable();
    pods
}

#[tokio::test(flavor = "multi_thread")]
async fn load_per_replica_falls_as_replicas_are_added() -> anyhow::Result<()> {
    let testbed = testbed().await?;
    let _up = API_SERVER.read().await;
    let _whole = PROMETHEUS.read().await;
    let namespace = testbed.namespace("load").await?;
    let fleet = Fleet::start(testbed, FleetConfig { rate: 19.0, ..fleet_config(&namespace) })?;

    // Without a pod the requests wait at the gateway.
    let gateway = reqwest::Client::builder().no_proxy().build()?.get(fleet.gateway_url());
    eventually("requests at the gateway", SOON, async || {
        let page = gateway.try_clone().context("no body")?.send().await?.error_for_status()?.text().await?;
        let name = "inference_extension_flow_control_queue_size{";
        let queue = page.lines().find(|line| line.starts_with(name)).context("no queue")?;
        let queued: f64 = queue.rsplit(' ').next().context("no value")?.parse()?;
        ensure!(queued > 10.0, "{queued} wait");
        Ok(())
    })
    .await?;
    let began = Instant::now();
    testbed.apply(&deployment(&namespace, "a", 2)).await?;
    let two = fleet.wait_ready(2, SOON).await?;
    assert!(began.elapsed() >= POD_START, "a pod is not ready before its cold start is over");
    let model = VariantFixture::new(&namespace, "a").model;
    let kv = format!(r#"vllm:kv_cache_usage_perc{{namespace="{namespace}",model_name="{model}"}}"#);
    wait_for_samples(testbed, &kv, |samples| {
        pods_of(samples) == two && samples.iter().all(|sample| (0.8..=1.0).contains(&sample.value))
    })
    .await?;

    scale(testbed, &namespace, "a", 3).await?;
    let three = fleet.wait_ready(3, SOON).await?;
    assert!(two.iter().all(|pod| three.contains(pod)));
    wait_for_samples(testbed, &kv, |samples| {
        pods_of(samples) == three && samples.iter().all(|sample| sample.value < 0.7)
    })
    .await?;
    let served = format!(r#"sum(rate(vllm:request_success_total{{namespace="{namespace}"}}[10s]))"#);
    wait_for_samples(testbed, &served, |samples| {
        samples.iter().any(|sample| (14.0..25.0).contains(&sample.value))
    })
    .await?;

    fleet.set_rate(60.0);
    let waiting = format!(r#"min(vllm:num_requests_waiting{{namespace="{namespace}"}})"#);
    wait_for_samples(testbed, &waiting, |samples| samples.iter().any(|sample| sample.value > 5.0)).await?;

    scale(testbed, &namespace, "a", 1).await?;
    let one = fleet.wait_ready(1, SOON).await?;
    wait_for_samples(testbed, &kv, |samples| pods_of(samples) == one).await
}

#[tokio::test(flavor = "multi_thread")]
async fn exported_values_and_faults_are_exact() -> anyhow::Result<()> {
    let testbed = testbed().await?;
    let _up = API_SERVER.read().await;
    let _whole = PROMETHEUS.read().await;
    let namespace = testbed.namespace("exact").await?;
    let fleet = Fleet::start(testbed, fleet_config(&namespace))?;
    // Two Deployments of one model are one fleet.
    testbed.apply(&deployment(&namespace, "a", 1)).await?;
    testbed.apply(&deployment(&namespace, "b", 1)).await?;
    let pods = fleet.wait_ready(2, SOON).await?;
    assert!(pods[0].starts_with("a-") && pods[1].starts_with("b-"), "{pods:?}");
    fleet.set_fixed_all(0.5, 3.0);
    fleet.set_fixed(&pods[1], 0.875, 7.0);

    let is_near = |got: f64, want: f64| (got - want).abs() < 1e-9;
    for (pod, kv, waiting) in [(&pods[0], 0.5, 3.0), (&pods[1], 0.875, 7.0)] {
        for (name, want) in [("vllm:kv_cache_usage_perc", kv), ("vllm:num_requests_waiting", waiting)] {
            let series = format!(r#"{name}{{namespace="{namespace}",pod="{pod}"}}"#);
            wait_for_samples(testbed, &series, |samples| {
                samples.len() == 1 && is_near(samples[0].value, want)
            })
            .await?;
        }
    }
    let of = |name: &str| format!(r#"{name}{{namespace="{namespace}",pod="{}"}}"#, pods[0]);
    fleet.set_fault(&pods[0], Some(ExportFault::NotANumber));
    wait_for_samples(testbed, &of("vllm:kv_cache_usage_perc"), |samples| {
        samples.iter().any(|s| s.value.is_nan())
    })
    .await?;
    fleet.set_fault(&pods[0], Some(ExportFault::Empty));
    wait_for_samples(testbed, &of("vllm:kv_cache_usage_perc"), <[Sample]>::is_empty).await?;
    wait_for_samples(testbed, &of("up"), |samples| samples.len() == 1 && is_near(samples[0].value, 1.0))
        .await?;
    fleet.set_fault(&pods[0], Some(ExportFault::Down));
    wait_for_samples(testbed, &of("up"), |samples| samples.len() == 1 && is_near(samples[0].value, 0.0))
        .await?;
    fleet.set_fault(&pods[0], None);
    wait_for_samples(testbed, &of("vllm:kv_cache_usage_perc"), |samples| {
        samples.len() == 1 && is_near(samples[0].value, 0.5)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn prometheus_stops_freezes_and_restarts() -> anyhow::Result<()> {
    let testbed = testbed().await?;
    let _up = API_SERVER.read().await;
    let _alone = PROMETHEUS.write().await;
    let url = testbed.prometheus_url()?;
    let before = testbed.prometheus_query("vector(1)").await?;
    testbed.prometheus_stop().await?;
    let refused = testbed.prometheus_query("vector(1)").await.err().context("it is stopped")?;
    assert!(format!("{refused:#}").to_lowercase().contains("refused"), "{refused:#}");
    testbed.prometheus_start().await?;
    assert_eq!(testbed.prometheus_url()?, url);
    assert_eq!(testbed.prometheus_query("vector(1)").await?, before);

    testbed.pause(Component::Prometheus)?;
    let frozen = tokio::time::timeout(Duration::from_secs(1), testbed.prometheus_query("vector(1)")).await;
    testbed.resume(Component::Prometheus)?;
    assert!(frozen.is_err(), "a frozen Prometheus does not answer: {frozen:?}");
    assert_eq!(testbed.prometheus_query("vector(1)").await?, before);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_crash_stay_pending_and_recover() -> anyhow::Result<()> {
    let testbed = testbed().await?;
    let _up = API_SERVER.read().await;
    let namespace = testbed.namespace("ill").await?;
    // No node has 9 GPUs.
    testbed.apply(&deployment(&namespace, "big", 1).replace("gpu: 1", "gpu: 9")).await?;
    let reason = r#"{.items[*].status.conditions[?(@.type=="PodScheduled")].reason}"#;
    wait_for_pods(testbed, &namespace, reason, "Unschedulable").await?;
    testbed.kubectl(&["delete", "deployment", "big", "-n", &namespace]).await?.success()?;
    wait_for_pods(testbed, &namespace, "{.items}", "[]").await?;

    testbed.apply(&labelled(&deployment(&namespace, "ill", 1), CRASH_LOOP_LABEL, "true")).await?;
    let waiting = "{.items[*].status.containerStatuses[*].state.waiting.reason}";
    wait_for_pods(testbed, &namespace, waiting, "CrashLoopBackOff").await?;
    let heal = format!("{CRASH_LOOP_LABEL}-");
    testbed.kubectl(&["label", "pods", "--all", "-n", &namespace, &heal]).await?.success()?;
    let ready = r#"{.items[*].status.conditions[?(@.type=="Ready")].status}"#;
    wait_for_pods(testbed, &namespace, ready, "True").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_label_sets_the_cold_start_of_a_pod() -> anyhow::Result<()> {
    let testbed = testbed().await?;
    let _up = API_SERVER.read().await;
    let namespace = testbed.namespace("slow").await?;
    testbed.apply(&labelled(&deployment(&namespace, "slow", 1), START_SECONDS_KEY, "6")).await?;
    let pod = eventually("a ready pod", SOON, async || {
        let list = testbed.kubectl(&["get", "pods", "-n", &namespace, "-o", "json"]).await?.success()?;
        let list: serde_json::Value = serde_json::from_str(&list)?;
        let conditions = list["items"][0]["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let since = |kind: &str| {
            let found = conditions.iter().find(|c| c["type"] == kind && c["status"] == "True")?;
            found["lastTransitionTime"].as_str()?.parse::<k8s_openapi::jiff::Timestamp>().ok()
        };
        since("PodScheduled").zip(since("Ready")).context("it is not ready yet")
    });
    let (scheduled, ready) = pod.await?;
    let took = ready.duration_since(scheduled).as_secs();
    assert!(took >= 6, "6 s after being scheduled at the earliest: {took} s");
    Ok(())
}

/// State letters of a process; empty if it does not exist or is a zombie.
fn state(pid: u32) -> anyhow::Result<String> {
    let out = Command::new("ps").args(["-o", "stat=", "-p", &pid.to_string()]).output()?;
    let stat = String::from_utf8_lossy(&out.stdout).trim().to_owned();
    Ok(if stat.starts_with('Z') { String::new() } else { stat })
}

/// The process that [`killed_testbed_leaves_no_processes_or_files`] starts and kills.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of another test: it starts a control plane and waits for a signal"]
async fn runs_until_killed() -> anyhow::Result<()> {
    let name = std::env::var(NAME).context("the other test gives the name")?;
    let testbed = Testbed::start(Options { name, ..Options::default() }).await?;
    for (component, pid) in testbed.pids() {
        println!("{component}: pid {pid}");
    }
    println!("export KUBECONFIG={}\nThe control plane is up.", testbed.admin_kubeconfig().display());
    // A handler, because a shell that starts the tests in the background ignores SIGINT.
    tokio::signal::ctrl_c().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_testbed_leaves_no_processes_or_files() -> anyhow::Result<()> {
    let logs = testbed().await?.logs();
    for (signal, name) in [(Signal::Kill, "sigkill"), (Signal::Int, "sigint")] {
        let file = logs.join(format!("{name}.log"));
        let again = ["--exact", "control_plane::runs_until_killed", "--ignored", "--nocapture"];
        let up = Process::spawn(name, &std::env::current_exe()?, &again, &[(NAME, name)], &file)?;
        eventually("the second control plane", Duration::from_mins(5), async || {
            if let Some(status) = up.exited() {
                bail!("it has ended: {status}\n{}", up.log_tail(20));
            }
            up.log().contains("The control plane is up").then_some(()).context("it is not up yet")
        })
        .await?;
        let log = up.log();
        let pids: Vec<u32> =
            log.lines().filter_map(|line| line.split_once(": pid ")?.1.parse().ok()).collect();
        assert_eq!(pids.len(), 6, "{log}");
        for &pid in &pids {
            assert!(!state(pid)?.is_empty(), "{pid}: {log}");
        }
        let kubeconfig =
            log.lines().find_map(|line| line.strip_prefix("export KUBECONFIG=")).context("none")?;
        let data = Path::new(kubeconfig).parent().context("a folder")?;
        assert!(data.exists());
        up.signal(signal)?;
        eventually(&format!("nothing to be left after {name}"), SOON, async || {
            for &pid in &pids {
                ensure!(state(pid)?.is_empty(), "{pid} runs: {log}");
            }
            ensure!(!data.exists(), "{} is still there", data.display());
            Ok(())
        })
        .await?;
        let status = up.wait_exit(SOON).await?;
        assert_eq!(status.success(), signal == Signal::Int, "{status}");
    }
    Ok(())
}
