//! The testbed itself: Prometheus scrapes the emulated fleet of pods that exist and are ready, faults work, and a killed
//! testbed leaves nothing behind.
//! Why a control plane of its own: no program is installed, and its components are stopped.

mod processes;
mod restart;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use tokio::sync::{OnceCell, RwLock};
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::{ExportFault, Fleet, Options, Process, Sample, Signal, Testbed, eventually};

use crate::support::fleet_config;

/// Longest wait for what takes seconds, on a loaded machine too.
const SOON: Duration = Duration::from_mins(2);
/// Names the log folder of [`runs_until_killed`].
const NAME: &str = "WVA_TEST_NAME";
const POD_START: Duration = Duration::from_secs(2);

static TESTBED: OnceCell<Testbed> = OnceCell::const_new();
/// Write-locked by the test that stops the API server, read-locked by the others.
static API_SERVER: RwLock<()> = RwLock::const_new(());

async fn testbed() -> anyhow::Result<&'static Testbed> {
    let options = || Options { name: "control-plane".to_owned(), pod_start: POD_START, ..Options::default() };
    TESTBED.get_or_try_init(|| Testbed::start(options())).await
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

#[tokio::test(flavor = "multi_thread")]
async fn exported_values_and_faults_are_exact() -> anyhow::Result<()> {
    let testbed = testbed().await?;
    let _up = API_SERVER.read().await;
    let namespace = testbed.namespace("exact").await?;
    let fleet = Fleet::start(testbed, fleet_config(&namespace))?;
    let began = Instant::now();
    // Two Deployments of one model are one fleet.
    for name in ["a", "b"] {
        testbed.apply(&VariantFixture::new(&namespace, name).deployment()).await?;
    }
    let pods = fleet.wait_ready(2, SOON).await?;
    assert!(began.elapsed() >= POD_START, "a pod is not ready before its cold start is over");
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
    .await?;
    testbed.kubectl(&["delete", "deployment", "a", "-n", &namespace]).await?.success()?;
    wait_for_samples(testbed, &of("vllm:kv_cache_usage_perc"), <[Sample]>::is_empty).await
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
