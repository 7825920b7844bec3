//! Installs `wva` on a control plane as a cluster would: CRD, RBAC, webhook configurations and APIService from the
//! repository's own manifests, and the program itself as a child process with the rights of its service account. The
//! one difference to a cluster: its Service leads to localhost, where the program listens on a free port.

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

/// Name of the release whose manifests `config/base` holds. Every name in them begins with it.
pub const RELEASE: &str = "workload-variant-autoscaler";
/// Namespace the program runs in.
pub const SYSTEM: &str = "workload-variant-autoscaler-system";
/// Its Service, which both webhook configurations and the APIService name.
pub const SERVICE: &str = "workload-variant-autoscaler-webhook-service";
/// The service account whose tokens endpoint pickers get.
pub const METRICS_READER: &str = "workload-variant-autoscaler-metrics-reader";
/// Name of both webhook configurations.
pub const WEBHOOKS: &str = "workload-variant-autoscaler-system-workload-variant-autoscaler-webhook";
/// The `APIService` of the external metrics API.
pub const API_SERVICE: &str = "v1beta1.external.metrics.k8s.io";

/// Longest wait for the program to come up and open its webhooks.
pub(crate) const UP: Duration = Duration::from_mins(3);

/// How to run the program.
#[derive(Clone, Debug)]
pub struct InstallOptions {
    pub wva: PathBuf,
    /// Settings beyond those every install has, as environment variables.
    pub env: Vec<(String, String)>,
    /// The CRD, where it is not that of the repository.
    pub crd: Option<String>,
    /// The webhook configurations, where they differ from those of `config/base`: YAML or JSON documents.
    pub webhooks: Option<String>,
    /// Another name than `workload-variant-autoscaler`, for one that runs beside others: all its objects have names
    /// of their own then ([`InstallOptions::named`]). The external metrics API, of which a cluster has one, is left to
    /// the release of that name.
    pub release: Option<String>,
    /// The one namespace whose objects are judged, for one that runs beside others.
    pub judges: Option<String>,
}

impl InstallOptions {
    /// A program with the intervals of an install.
    pub fn new(wva: impl Into<PathBuf>) -> Self {
        let env = Vec::new();
        Self { wva: wva.into(), env, crd: None, webhooks: None, release: None, judges: None }
    }

    /// A program that samples every second and decides every two, so that no test waits for a minute.
    pub fn quick(wva: impl Into<PathBuf>) -> Self {
        Self::every(wva, "1s").with(&[("GLOBAL_OPT_INTERVAL", "2s")])
    }

    /// A program that samples and decides this often.
    pub fn every(wva: impl Into<PathBuf>, interval: &str) -> Self {
        let all = [
            "GLOBAL_OPT_INTERVAL",
            "PROMETHEUS_METRICS_CACHE_FETCH_INTERVAL",
            "PROMETHEUS_METRICS_CACHE_TTL",
        ];
        Self::new(wva).with(&all.map(|key| (key, interval)))
    }

    /// The same with these settings too; a later value of a setting replaces an earlier one.
    pub fn with(mut self, env: &[(&str, &str)]) -> Self {
        self.env.extend(env.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())));
        self
    }

    /// A name of `config/base`, or a text that holds such, as it is in this release: [`SYSTEM`], [`SERVICE`],
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

/// A running install. Dropping it ends the program; the objects stay in the control plane.
#[derive(Debug)]
pub struct Install {
    options: InstallOptions,
    program: Program,
}

impl Install {
    /// Applies the CRD alone.
    pub async fn crd(testbed: &Testbed) -> anyhow::Result<()> {
        manifests::crd(testbed).await
    }

    /// Applies everything, starts the program, and waits until it is ready and has opened its webhooks.
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
        manifests::doors(testbed, options, ports).await.with_context(|| install.program.evidence())?;
        install.wait_ready().await?;
        install.wait_open(testbed).await?;
        Ok(install)
    }

    /// Waits until `/readyz` says so.
    pub async fn wait_ready(&self) -> anyhow::Result<()> {
        eventually("wva to be ready", UP, async || self.program.is_ready().await)
            .await
            .with_context(|| self.program.evidence())
    }

    /// Waits until both webhook configurations and the APIService are open, and kube-apiserver calls the webhooks.
    async fn wait_open(&self, testbed: &Testbed) -> anyhow::Result<()> {
        eventually("wva to open its webhooks and its APIService", UP, async || {
            manifests::webhooks_are_open(testbed, &self.options).await?;
            if self.options.serves_metrics_api() {
                let available = manifests::metrics_api_available(testbed).await?;
                ensure!(available == "True", "the APIService is not available");
            }
            manifests::webhooks_are_called(testbed, &self.options).await
        })
        .await
        .with_context(|| self.program.evidence())
    }

    /// Asks it to end and waits until it has.
    pub async fn stop(self) -> anyhow::Result<()> {
        self.process().signal(Signal::Term)?;
        let status = self.process().wait_exit(Program::GRACE).await?;
        ensure!(status.success(), "wva ended with {status} after SIGTERM; {}", self.program.evidence());
        Ok(())
    }
}

/// One GET within 10 seconds; status and text.
pub async fn get(url: &str) -> anyhow::Result<(u16, String)> {
    within(&format!("GET {url}"), Duration::from_secs(10), async {
        let answer = http_client(None)?.get(url).send().await?;
        let status = answer.status().as_u16();
        anyhow::Ok((status, answer.text().await?))
    })
    .await
}
