//! Installs `wva` on a control plane as a cluster would: CRD, RBAC, webhook configurations and APIService from the
//! repository's own manifests, and the program itself as a child process with the rights of its service account. The
//! one difference to a cluster: its Service leads to localhost, where the program listens on a free port.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::Value;
use wva_crds::settings::SETTINGS;

use crate::components::http_client;
use crate::{Process, Signal, Testbed, eventually, within};

/// Name of the release whose manifests `config/base` holds. Every name in them begins with it.
const RELEASE: &str = "workload-variant-autoscaler";
/// Namespace the program runs in.
pub const SYSTEM: &str = "workload-variant-autoscaler-system";
/// Its Service, which both webhook configurations and the APIService name.
pub const SERVICE: &str = "workload-variant-autoscaler-webhook-service";
/// Name of both webhook configurations.
pub const WEBHOOKS: &str = "workload-variant-autoscaler-system-workload-variant-autoscaler-webhook";

/// Longest wait for the program to come up and open its webhooks.
const UP: Duration = Duration::from_mins(1);

/// How to run the program.
#[derive(Clone, Debug)]
pub struct InstallOptions {
    /// The binary.
    pub wva: PathBuf,
    /// Settings beyond those every install has, as environment variables.
    pub env: Vec<(String, String)>,
    /// The webhook configurations, where they differ from those of `config/base`: YAML or JSON documents.
    pub webhooks: Option<String>,
    /// Another name than `workload-variant-autoscaler`, for one that runs beside others: all its objects have names
    /// of their own then ([`InstallOptions::named`]). The external metrics API, of which a cluster has one, is left to
    /// the release of that name.
    pub release: Option<String>,
}

impl InstallOptions {
    /// A program that samples every second and decides every two, so that nobody waits for a minute.
    #[must_use]
    pub fn quick(wva: impl Into<PathBuf>) -> Self {
        let env = [
            ("GLOBAL_OPT_INTERVAL", "2s"),
            ("PROMETHEUS_METRICS_CACHE_FETCH_INTERVAL", "1s"),
            ("PROMETHEUS_METRICS_CACHE_TTL", "1s"),
        ];
        let env = env.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        Self { wva: wva.into(), env, webhooks: None, release: None }
    }

    /// A name of `config/base`, or a text that holds such, as it is in this release: [`SYSTEM`], [`SERVICE`],
    /// [`WEBHOOKS`] and the manifests themselves.
    #[must_use]
    pub fn named(&self, text: &str) -> String {
        text.replace(RELEASE, self.release.as_deref().unwrap_or(RELEASE))
    }

    /// Whether this release serves the external metrics API.
    fn serves_metrics_api(&self) -> bool {
        self.release.is_none()
    }
}

/// A running install. Dropping it ends the program; the objects stay in the control plane.
#[derive(Debug)]
pub struct Install {
    options: InstallOptions,
    process: Process,
    addresses: BTreeMap<&'static str, String>,
}

/// What the program says it serves, by the name this file uses.
const SERVED: [(&str, &str); 5] = [
    ("admission", "Serving admission reviews"),
    ("external metrics", "Serving the external metrics API"),
    ("metrics", "Serving /metrics"),
    ("health", "Serving /healthz and /readyz"),
    ("debug", "Serving /explain and /snapshot"),
];

impl Install {
    /// Applies the CRD alone.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn crd(testbed: &Testbed) -> anyhow::Result<()> {
        testbed.apply(&read("crds/llmd.ai_variantautoscalings.yaml")?).await?;
        let established =
            ["wait", "--for=condition=Established", "crd/variantautoscalings.llmd.ai", "--timeout=30s"];
        testbed.kubectl(&established).await?.success()?;
        Ok(())
    }

    /// Applies everything, starts the program, and waits until it is ready and has opened its webhooks.
    ///
    /// # Errors
    /// When any of this fails or takes over a minute: with the end of the program's log.
    pub async fn start(testbed: &Testbed, options: &InstallOptions) -> anyhow::Result<Self> {
        Self::crd(testbed).await?;
        let system = options.named(SYSTEM);
        let namespace = format!("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {system}\n");
        testbed.apply(&namespace).await?;
        testbed.apply(&options.named(&read("config/base/rbac.yaml")?)).await?;
        let account = options.named(&format!("{RELEASE}-controller-manager"));
        let kubeconfig = testbed.service_account_kubeconfig(&system, &account).await?;
        let install = Self::spawn(testbed, options, &kubeconfig).await?;
        install.doors(testbed).await.with_context(|| install.evidence())?;
        install.wait_ready().await?;
        install.wait_open(testbed).await?;
        Ok(install)
    }

    async fn spawn(testbed: &Testbed, options: &InstallOptions, kubeconfig: &Path) -> anyhow::Result<Self> {
        let kubeconfig = kubeconfig.to_str().context("the kubeconfig's path is not UTF-8")?;
        let prometheus = testbed.prometheus_url()?;
        let [system, service, webhooks] = [SYSTEM, SERVICE, WEBHOOKS].map(|name| options.named(name));
        let external = if options.serves_metrics_api() { "127.0.0.1:0" } else { "0" };
        let mut env = vec![
            ("KUBECONFIG", kubeconfig),
            ("PROMETHEUS_BASE_URL", prometheus.as_str()),
            ("POD_NAMESPACE", system.as_str()),
            ("POD_NAME", "testbed"),
            ("WEBHOOK_SERVICE", service.as_str()),
            ("WEBHOOK_CONFIGURATION", webhooks.as_str()),
            ("WEBHOOK_BIND_ADDRESS", "127.0.0.1:0"),
            ("EXTERNAL_METRICS_BIND_ADDRESS", external),
            ("METRICS_BIND_ADDRESS", "127.0.0.1:0"),
            ("METRICS_SECURE", "false"),
            ("HEALTH_PROBE_BIND_ADDRESS", "127.0.0.1:0"),
            ("WVA_DEBUG_BIND_ADDRESS", "127.0.0.1:0"),
            ("LOG_FORMAT", "json"),
        ];
        // A setting in the environment of whoever runs the tests must not be one of the program under test: an empty
        // variable counts as unset.
        env.extend(
            SETTINGS
                .iter()
                .map(|s| (s.key, ""))
                .filter(|(key, _)| env.iter().all(|(k, _)| k != key))
                .collect::<Vec<_>>(),
        );
        env.extend(options.env.iter().map(|(k, v)| (k.as_str(), v.as_str())));
        let name = options.release.as_deref().unwrap_or("wva");
        let log = testbed.logs().join(format!("{name}.log"));
        let process = Process::spawn(name, &options.wva, &["run"], &env, &log)?;
        let addresses = eventually("wva to say where it listens", UP, async || {
            if let Some(status) = process.exited() {
                anyhow::bail!("wva ended ({status})");
            }
            addresses(&process.log(), options.serves_metrics_api())
        })
        .await
        .with_context(|| format!("the end of its log:\n{}", process.log_tail(20)))?;
        Ok(Self { options: options.clone(), process, addresses })
    }

    /// Service, webhook configurations and APIService, with the ports the program has got.
    async fn doors(&self, testbed: &Testbed) -> anyhow::Result<()> {
        let admission = self.port("admission")?;
        let [system, service] = [SYSTEM, SERVICE].map(|name| self.options.named(name));
        let service = format!(
            "apiVersion: v1\nkind: Service\nmetadata:\n  name: {service}\n  namespace: {system}\nspec:\n  type: ExternalName\n  externalName: localhost\n  ports:\n  - name: admission\n    port: {admission}\n"
        );
        testbed.apply(&service).await?;
        let webhooks = match &self.options.webhooks {
            Some(own) => own.clone(),
            None => self.options.named(&read("config/base/webhook.yaml")?),
        };
        for mut document in documents(&webhooks)? {
            for webhook in
                document["webhooks"].as_array_mut().context("a webhook configuration without webhooks")?
            {
                webhook["clientConfig"]["service"]["port"] = admission.into();
            }
            testbed.apply(&document.to_string()).await?;
        }
        let apiservice = self.options.serves_metrics_api().then(|| read("config/base/apiservice.yaml"));
        for mut document in documents(&apiservice.transpose()?.unwrap_or_default())? {
            document["spec"]["service"]["port"] = self.port("external metrics")?.into();
            testbed.apply(&document.to_string()).await?;
        }
        Ok(())
    }

    /// Waits until `/readyz` says so.
    ///
    /// # Errors
    /// When it does not within a minute.
    pub async fn wait_ready(&self) -> anyhow::Result<()> {
        let url = format!("http://{}/readyz", self.address("health")?);
        eventually("wva to be ready", UP, async || {
            let answer = get(&url).await?;
            ensure!(answer.0 == 200, "it says {answer:?}");
            Ok(())
        })
        .await
        .with_context(|| self.evidence())
    }

    /// Waits until both webhook configurations and the APIService are open.
    async fn wait_open(&self, testbed: &Testbed) -> anyhow::Result<()> {
        let webhooks = self.options.named(WEBHOOKS);
        eventually("wva to open its webhooks and its APIService", UP, async || {
            for kind in ["mutatingwebhookconfiguration", "validatingwebhookconfiguration"] {
                let path = "jsonpath={.webhooks[*].rules[*].resources[*]}";
                let open = testbed.kubectl(&["get", kind, &webhooks, "-o", path]).await?.success()?;
                ensure!(open.contains("variantautoscalings"), "{kind} has no rules: {open:?}");
            }
            if !self.options.serves_metrics_api() {
                return Ok(());
            }
            let available = "jsonpath={.status.conditions[?(@.type==\"Available\")].status}";
            let open = testbed
                .kubectl(&["get", "apiservice", "v1beta1.external.metrics.k8s.io", "-o", available])
                .await?
                .success()?;
            ensure!(open == "True", "the APIService is not available");
            Ok(())
        })
        .await
        .with_context(|| self.evidence())
    }

    /// Where the program serves something: `admission`, `external metrics`, `metrics`, `health` or `debug`.
    ///
    /// # Errors
    /// When it does not serve that.
    pub fn address(&self, what: &str) -> anyhow::Result<&str> {
        self.addresses.get(what).map(String::as_str).with_context(|| format!("wva does not serve {what}"))
    }

    fn port(&self, what: &str) -> anyhow::Result<u16> {
        let address = self.address(what)?;
        address
            .rsplit_once(':')
            .and_then(|(_, port)| port.parse().ok())
            .with_context(|| format!("{address} has no port"))
    }

    /// The value of a series on `/metrics` whose line starts with this name and holds all of these labels.
    ///
    /// # Errors
    /// When `/metrics` does not answer. A series that is not there is `None`.
    pub async fn series(&self, name: &str, labels: &[(&str, &str)]) -> anyhow::Result<Option<f64>> {
        let (status, text) = get(&format!("http://{}/metrics", self.address("metrics")?)).await?;
        ensure!(status == 200, "/metrics answered {status}: {text}");
        let is_it = |line: &&str| {
            line.starts_with(&format!("{name}{{"))
                && labels.iter().all(|(k, v)| line.contains(&format!("{k}=\"{v}\"")))
        };
        text.lines()
            .find(is_it)
            .and_then(|line| line.rsplit_once(' '))
            .map(|(_, v)| v.parse().context("no number"))
            .transpose()
    }

    /// The process itself.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Asks it to end and waits until it has.
    ///
    /// # Errors
    /// When it does not end within half a minute, or not with success.
    pub async fn stop(self) -> anyhow::Result<()> {
        self.process.signal(Signal::Term)?;
        let status = self.process.wait_exit(Duration::from_secs(30)).await?;
        ensure!(status.success(), "wva ended with {status} after SIGTERM; {}", self.evidence());
        Ok(())
    }

    fn evidence(&self) -> String {
        format!("the end of wva's log:\n{}", self.process.log_tail(20))
    }
}

/// One GET, bounded; status and text.
///
/// # Errors
/// When there is no answer within 10 seconds.
pub async fn get(url: &str) -> anyhow::Result<(u16, String)> {
    within(&format!("GET {url}"), Duration::from_secs(10), async {
        let answer = http_client(None)?.get(url).send().await?;
        let status = answer.status().as_u16();
        anyhow::Ok((status, answer.text().await?))
    })
    .await
}

/// The addresses in the program's own log lines.
fn addresses(log: &str, metrics_api: bool) -> anyhow::Result<BTreeMap<&'static str, String>> {
    let lines: Vec<Value> = log.lines().filter_map(|l| serde_json::from_str(l).ok()).collect();
    let address = |(what, msg): (&'static str, &str)| {
        let line = lines.iter().find(|l| l["msg"] == msg).with_context(|| format!("no line {msg:?} yet"))?;
        Ok((what, line["address"].as_str().context("a line without an address")?.to_owned()))
    };
    let served = SERVED.into_iter().filter(|(what, _)| metrics_api || *what != "external metrics");
    served.map(address).collect()
}

/// A file of the repository.
fn read(path: &str) -> anyhow::Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// The documents of a YAML text.
fn documents(yaml: &str) -> anyhow::Result<Vec<Value>> {
    serde_saphyr::from_multiple(yaml).map_err(|e| anyhow::anyhow!("a manifest is no YAML: {e}"))
}
