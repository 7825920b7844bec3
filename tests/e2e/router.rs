//! Real endpoint pickers of the inference extension 1.5.0 and a real Envoy: requests go through Envoy to emulated model
//! servers, and wva finds and reads the pickers. Each case has a namespace with a picker, an Envoy and a model.
//! Why a control plane of its own: the first case starts without a right that all others need.

mod access;
mod envoy;
mod epp;
mod site;
mod wake;
mod zero;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use wva_crds::names::PICKER_TOKEN_LABEL;
use wva_testbed::install::Install;
use wva_testbed::{Options, Process, Testbed, Tools, eventually, within};

use self::epp::PICKER;
use crate::support::{Cluster, DEADLINE, apply_crds, install_options, repository_path};

/// Go module of the picker, with its CRDs.
const MODULE: &str = "sigs.k8s.io/gateway-api-inference-extension";
/// Kinds that the picker watches.
const KINDS: [&str; 3] = [
    "inference.networking.k8s.io_inferencepools",
    "inference.networking.x-k8s.io_inferencemodelrewrites",
    "inference.networking.x-k8s.io_inferenceobjectives",
];
/// Longest time of a case; most take less than a minute.
const CASE: Duration = Duration::from_mins(6);

/// A control plane with wva, and the programs of each case.
struct RouterTestbed {
    cluster: Cluster,
    epp: PathBuf,
    envoy: PathBuf,
    /// CA, certificate and key of the pickers, for Envoy's requests to them.
    certificate: PathBuf,
    https: HttpsNamespace,
}

/// A namespace whose picker has a certificate for wva.
struct HttpsNamespace {
    name: String,
    /// Folder with `ca.crt`, `tls.crt` and `tls.key` for the Service of the picker. wva trusts the CA.
    certificate: PathBuf,
}

impl RouterTestbed {
    async fn start() -> anyhow::Result<Self> {
        let envoy = std::env::var_os("ENVOY_PROGRAM").map(PathBuf::from);
        let envoy = envoy.context("ENVOY_PROGRAM is not set: run this test by make test-router")?;
        let tools = || anyhow::Ok((Tools::on_request("epp")?, Tools::module("epp", MODULE)?));
        let (epp, module) = tokio::task::spawn_blocking(tools).await??;
        let options = Options { name: "router".to_owned(), ..Options::default() };
        let testbed = Testbed::start(options).await?;
        let read = |kind| std::fs::read_to_string(module.join(format!("config/crd/bases/{kind}.yaml")));
        let crds = KINDS.into_iter().map(read).collect::<std::io::Result<Vec<_>>>()?;
        apply_crds(&testbed, &crds.join("\n---\n")).await?;
        let certificate = testbed.serving_certificate("picker", &["localhost"])?;
        let name = testbed.namespace("router-https").await?;
        let host = format!("{PICKER}.{name}.svc");
        let https =
            HttpsNamespace { certificate: testbed.serving_certificate("https", &[host.as_str()])?, name };
        let ca = https.certificate.join("ca.crt");
        let ca = ca.to_str().context("the path of the CA is not UTF-8")?;
        let options = install_options().with(&[("EPP_METRIC_READER_CA_CERT_PATH", ca)]);
        let install = Install::start(&testbed, &options).await?;
        Ok(Self { cluster: Cluster { testbed, install }, epp, envoy, certificate, https })
    }

    /// Lets the pickers of a namespace have wva's token.
    async fn label(&self, namespace: &str) -> anyhow::Result<()> {
        let label = format!("{PICKER_TOKEN_LABEL}=true");
        let args = ["label", "namespace", namespace, &label];
        self.cluster.testbed.kubectl(&args).await?.success().map(drop)
    }

    /// Lets the account of that token get the URL `/metrics`.
    async fn allow_metrics(&self) -> anyhow::Result<()> {
        let right = std::fs::read_to_string(repository_path("config/base/metrics-scraper.yaml"))?;
        self.cluster.testbed.apply(&right).await
    }

    /// wva has nothing to read in the namespaces of finished cases.
    async fn delete_variants(&self) -> anyhow::Result<()> {
        let all = ["delete", "variantautoscalings", "--all", "--all-namespaces"];
        self.cluster.testbed.kubectl(&all).await?.success().map(drop)
    }
}

/// Waits until a program serves, or fails when it ends.
async fn wait_until_serving(
    process: &Process,
    mut is_serving: impl AsyncFnMut() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let tail = || format!("the end of the log of {}:\n{}", process.name(), process.log_tail(20));
    let ended = eventually(&format!("{} to serve", process.name()), DEADLINE, async || {
        if let Some(status) = process.exited() {
            return Ok(Some(status));
        }
        is_serving().await.map(|()| None)
    })
    .await
    .with_context(tail)?;
    let Some(status) = ended else { return Ok(()) };
    bail!("{} ended while starting ({status}); {}", process.name(), tail())
}

/// Name and figures of a case.
type Case<'a> = (&'static str, LocalBoxFuture<'a, anyhow::Result<String>>);

/// The first one needs an account without its right, so it is the first.
fn cases(testbed: &RouterTestbed) -> [Case<'_>; 8] {
    [
        ("token", access::a_token_needs_label_and_right(testbed).boxed_local()),
        ("reviews", access::a_picker_that_checks_no_token_answers_500(testbed).boxed_local()),
        ("https", access::a_picker_behind_https_is_verified(testbed).boxed_local()),
        ("wake", wake::a_waiting_request_is_answered(testbed).boxed_local()),
        ("adapter", wake::an_adapter_wakes_the_model_of_its_pool(testbed).boxed_local()),
        ("tenants", wake::a_page_of_600_tenants_is_read(testbed).boxed_local()),
        ("restart", wake::a_restarted_picker_is_read_again(testbed).boxed_local()),
        ("gate", zero::without_flow_control_requests_fail(testbed).boxed_local()),
    ]
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: make test-router"]
async fn requests_through_envoy_wake_models() -> anyhow::Result<()> {
    let testbed = Box::pin(RouterTestbed::start()).await?;
    let only = std::env::var("ONLY").unwrap_or_default();
    let selected: Vec<Case<'_>> =
        cases(&testbed).into_iter().filter(|(name, _)| name.starts_with(&only)).collect();
    ensure!(!selected.is_empty(), "no case begins with ONLY={only}");
    let mut failed = Vec::new();
    for (name, case) in selected {
        let began = Instant::now();
        match within(name, CASE, case).await {
            Ok(figures) => println!("{name}: {figures}; {} s", began.elapsed().as_secs()),
            Err(error) => failed.push(format!("{name}: {error:#}")),
        }
        testbed.delete_variants().await?;
    }
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}
