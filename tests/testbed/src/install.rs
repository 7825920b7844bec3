//! Installs `wva` on a control plane: CRD, RBAC, webhook configurations and APIService from the repository's
//! manifests, and the program as a child process with the rights of its service account. Unlike in a cluster, the
//! Service leads to localhost, where the program listens on a free port.

pub mod manifests;
pub mod program;

use std::ops::Deref;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};

use self::manifests::Ports;
use self::program::Program;
use crate::components::http_client;
use crate::{Signal, Testbed, eventually, within};

/// Name of the release in the manifests of `config/base`. Every object name begins with it.
pub const RELEASE: &str = "workload-variant-autoscaler";
/// Namespace of the program.
pub const SYSTEM: &str = "workload-variant-autoscaler-system";
/// Service that both webhook configurations and the APIService name.
pub const SERVICE: &str = "workload-variant-autoscaler-webhook-service";
/// Service account whose tokens endpoint pickers receive.
pub const PICKER_READER: &str = "workload-variant-autoscaler-picker-reader";
/// Name of both webhook configurations.
pub const WEBHOOKS: &str = "workload-variant-autoscaler-system-workload-variant-autoscaler-webhook";
/// The `APIService` of the external metrics API.
pub const API_SERVICE: &str = "v1beta1.external.metrics.k8s.io";

/// Time limit for the program to start and register its webhooks.
pub(crate) const UP: Duration = Duration::from_mins(3);

/// Options of an install.
#[derive(Clone, Debug)]
pub struct InstallOptions {
    /// The program wva; the manager in the same folder is installed.
    pub wva: PathBuf,
    /// Additional settings, as environment variables.
    pub env: Vec<(String, String)>,
    /// CRD, if not that of the repository.
    pub crd: Option<String>,
    /// Webhook configurations (YAML or JSON documents), if not those of `config/base`.
    pub webhooks: Option<String>,
    /// Release name other than `workload-variant-autoscaler`, for several releases in one cluster: renames all
    /// objects ([`InstallOptions::named`]). Only the default release serves the external metrics API.
    pub release: Option<String>,
    /// Restricts the webhooks to this namespace, for several releases in one cluster.
    pub judges: Option<String>,
}

impl InstallOptions {
    /// An install with the default intervals.
    pub fn new(wva: impl Into<PathBuf>) -> Self {
        let env = Vec::new();
        Self { wva: wva.into(), env, crd: None, webhooks: None, release: None, judges: None }
    }

    /// An install that samples every second and decides every two, for short tests.
    pub fn quick(wva: impl Into<PathBuf>) -> Self {
        Self::every(wva, "1s").with(&[("GLOBAL_OPT_INTERVAL", "2s")])
    }

    /// An install with this interval.
    pub fn every(wva: impl Into<PathBuf>, interval: &str) -> Self {
        let all = [
            "GLOBAL_OPT_INTERVAL",
            "PROMETHEUS_METRICS_CACHE_FETCH_INTERVAL",
            "PROMETHEUS_METRICS_CACHE_TTL",
        ];
        Self::new(wva).with(&all.map(|key| (key, interval)))
    }

    /// Adds settings; a later value of a setting replaces an earlier one.
    pub fn with(mut self, env: &[(&str, &str)]) -> Self {
        self.env.extend(env.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())));
        self
    }

    /// Translates a name of `config/base`, or a text with such names, to this release: [`SYSTEM`], [`SERVICE`],
    /// [`WEBHOOKS`] and the manifests themselves.
    pub fn named(&self, text: &str) -> String {
        text.replace(RELEASE, self.release.as_deref().unwrap_or(RELEASE))
    }

    /// Whether this release serves the external metrics API.
    pub(crate) fn serves_metrics_api(&self) -> bool {
        self.release.is_none()
    }
}

impl Deref for Install {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.program
    }
}

/// A running install. Drop it to end the program; the objects stay.
#[derive(Debug)]
pub struct Install {
    options: InstallOptions,
    program: Program,
}

impl Install {
    /// Applies only the CRD.
    pub async fn crd(testbed: &Testbed) -> anyhow::Result<()> {
        manifests::crd(testbed).await
    }

    /// Applies everything, starts the program, and waits until it is ready and has registered its webhooks.
    pub async fn start(testbed: &Testbed, options: &InstallOptions) -> anyhow::Result<Self> {
        match &options.crd {
            Some(own) => manifests::apply_crd(testbed, own).await?,
            None => manifests::crd(testbed).await?,
        }
        let account = manifests::account(testbed, options).await?;
        let kubeconfig = testbed.service_account_kubeconfig(&options.named(SYSTEM), &account).await?;
        let log = options.release.as_deref().unwrap_or("wva");
        let program = Program::start(testbed, options, "testbed", log, &kubeconfig).await?;
        let external_metrics =
            options.serves_metrics_api().then(|| program.port("external metrics")).transpose()?;
        let ports = Ports { admission: program.port("admission")?, external_metrics };
        let install = Self { options: options.clone(), program };
        manifests::apply_webhooks(testbed, options, ports)
            .await
            .with_context(|| install.program.evidence())?;
        install.wait_ready().await?;
        install.wait_webhooks(testbed).await?;
        Ok(install)
    }

    /// Waits until `/readyz` succeeds.
    pub async fn wait_ready(&self) -> anyhow::Result<()> {
        eventually("wva to be ready", UP, async || self.program.is_ready().await)
            .await
            .with_context(|| self.program.evidence())
    }

    /// Waits until both webhook configurations and the APIService are registered, and kube-apiserver calls the
    /// webhooks.
    async fn wait_webhooks(&self, testbed: &Testbed) -> anyhow::Result<()> {
        eventually("wva to open its webhooks and its APIService", UP, async || {
            manifests::check_webhooks_registered(testbed, &self.options).await?;
            if self.options.serves_metrics_api() {
                let available = manifests::metrics_api_available(testbed).await?;
                ensure!(available == "True", "the APIService is not available");
            }
            manifests::check_webhooks_called(testbed, &self.options).await
        })
        .await
        .with_context(|| self.program.evidence())
    }

    /// Sends SIGTERM and waits for the exit.
    pub async fn stop(self) -> anyhow::Result<()> {
        self.process().signal(Signal::Term)?;
        let status = self.process().wait_exit(Program::GRACE).await?;
        ensure!(status.success(), "wva ended with {status} after SIGTERM; {}", self.program.evidence());
        Ok(())
    }
}

/// One GET with a limit of 10 seconds; returns status and text.
pub async fn get(url: &str) -> anyhow::Result<(u16, String)> {
    within(&format!("GET {url}"), Duration::from_secs(10), async {
        let answer = http_client(None)?.get(url).send().await?;
        let status = answer.status().as_u16();
        anyhow::Ok((status, answer.text().await?))
    })
    .await
}
