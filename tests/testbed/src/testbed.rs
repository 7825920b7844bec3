//! The testbed: which programs run, in which order they start, what holds once [`Testbed::start`] has returned, and
//! how a test breaks and repairs them. Other modules hold command lines and folders.

pub(crate) mod access;
pub mod audit;
mod data;
mod etcd;
mod launcher;
mod plans;
pub(crate) mod prometheus;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::Api;
use kube::api::{ListParams, PostParams};

use self::data::log_folder;
use self::launcher::Launcher;
use crate::components::{Component, RunningProgram};
use crate::kubelet::Pods;
use crate::nodes::{NodeGroup, stages};
use crate::process::Process;
use crate::tools::Tools;
use crate::wait::{eventually, within};
use crate::{Signal, pki};

pub(crate) use self::data::Data;

/// File in the data folder: loopback port to which pod ports are forwarded.
const FORWARD: &str = "forward";
/// Socket in the data folder: [`crate::kubelet`] forwards the API server's connections to Services and pods.
pub(crate) const NETWORK: &str = "network.sock";

const CALL: Duration = Duration::from_secs(20);
const WORKS_WITHIN: Duration = Duration::from_mins(3);

/// Options of a control plane.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own, set by its name")]
pub struct Options {
    /// Name of the log folder, `target/testbed/<name>`, which is emptied at start: lower-case letters, digits, `-`.
    pub name: String,
    /// Cold start of a pod, from being scheduled to ready; it takes up to 1 s longer.
    pub pod_start: Duration,
    pub nodes: Vec<NodeGroup>,
    pub scrape_interval: Duration,
    /// Sync period of the HPA controller.
    pub hpa_sync: Duration,
    /// Keeps the data folder (etcd, Prometheus, kubeconfigs) at the end. Logs are always kept.
    pub keep: bool,
    pub with_prometheus: bool,
    /// etcd syncs each change to disk, as in a cluster. `false` makes tests faster.
    pub etcd_fsync: bool,
    /// kube-apiserver writes an audit log of changes or of all requests, for [`Testbed::audit`].
    pub audit: audit::Audit,
    /// Allows `minReplicas: 0` in HPAs (alpha feature gate).
    pub hpa_to_zero: bool,
    /// Lifts the client rate limits of controllers and scheduler, for thousands of pods.
    pub many_pods: bool,
    /// kube-apiserver presents a client certificate to webhooks; [`Testbed::webhook_client_ca`] is its CA.
    pub webhook_client: bool,
    /// Pods that a [`crate::Kubelet`] runs instead of kwok; the API server then reaches Services through it.
    pub kubelet: Option<Pods>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: "default".to_owned(),
            pod_start: Duration::from_secs(2),
            nodes: vec![
                NodeGroup::new("h100", 4, "NVIDIA-H100-80GB-HBM3"),
                NodeGroup::new("a100", 4, "NVIDIA-A100-SXM4-80GB"),
            ],
            scrape_interval: Duration::from_secs(1),
            hpa_sync: Duration::from_secs(2),
            keep: false,
            with_prometheus: true,
            etcd_fsync: false,
            audit: audit::Audit::Off,
            many_pods: false,
            hpa_to_zero: false,
            webhook_client: false,
            kubelet: None,
        }
    }
}

/// A running control plane. It holds no task, connection or client of the runtime that started it, so tests with
/// runtimes of their own may share a static. It ends when dropped and when the process ends.
pub struct Testbed {
    // Fields are dropped in this order: the programs end before their data goes.
    running: BTreeMap<Component, RunningProgram>,
    pub(crate) data: Data,
    pub(crate) tools: Tools,
    pub(crate) ca: PathBuf,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) token: String,
    pub(crate) config: kube::Config,
    pub(crate) counter: AtomicU32,
    /// Pods that [`crate::Kubelet`] runs.
    pub(crate) pods: Option<Pods>,
    logs: PathBuf,
}

impl Testbed {
    /// Starts everything. On return, nodes are ready, service accounts are created, and Prometheus answers. Takes
    /// about 15 s once the programs are built.
    pub async fn start(options: Options) -> anyhow::Result<Self> {
        let tools =
            tokio::task::spawn_blocking(Tools::ready).await.context("the build of the tools panicked")??;
        // The first installed provider wins; the whole program uses the same one.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let logs = log_folder(&options.name)?;
        let data = Data::create(options.keep)?;
        pki::write(&data.path)?;
        let ca = data.path.join(pki::CA);
        let token = secret()?;
        data.write("tokens.csv", &format!("{token},admin,admin,\"system:masters\"\n"))?;
        let stages = data.write("stages.yaml", &stages(options.pod_start, &data.path.join(FORWARD)))?;

        let launcher = Launcher { options: &options, data: &data, tools: &tools, logs: &logs };
        let etcd = launcher.etcd().await?;
        let server = launcher.apiserver(&token, etcd.port(0)).await?;
        let kubeconfig = access::write_kubeconfig(&data, "admin", server.port(0), &ca, &token)?;
        let config = access::load(&kubeconfig).await?;

        let (controllers, scheduler, kwok, prometheus, ()) = tokio::try_join!(
            launcher.controller_manager(&kubeconfig),
            launcher.scheduler(&kubeconfig),
            launcher.kwok(&kubeconfig, &stages),
            launcher.prometheus(),
            create_nodes(&config, &options.nodes),
        )?;
        let mut running = BTreeMap::from([
            (Component::Etcd, etcd),
            (Component::Apiserver, server),
            (Component::ControllerManager, controllers),
            (Component::Scheduler, scheduler),
            (Component::Kwok, kwok),
        ]);
        running.extend(prometheus.map(|prometheus| (Component::Prometheus, prometheus)));
        let counter = AtomicU32::new(0);
        let pods = options.kubelet;
        let testbed = Self { running, data, tools, ca, kubeconfig, token, config, counter, pods, logs };
        testbed.works().await?;
        Ok(testbed)
    }

    /// Folder with one log file per process; tests may add theirs.
    pub fn logs(&self) -> &Path {
        &self.logs
    }

    /// Folder for files that are deleted with the testbed.
    pub fn data(&self) -> &Path {
        &self.data.path
    }

    /// CA of kube-apiserver's client certificate for webhooks, with [`Options::webhook_client`].
    pub fn webhook_client_ca(&self) -> PathBuf {
        self.data.path.join(pki::WEBHOOK_CLIENT_CA)
    }

    /// Programs, including `kubectl`.
    pub fn tools(&self) -> &Tools {
        &self.tools
    }

    /// Forwards every pod port to this loopback port from now on.
    pub fn forward_pods_to(&self, port: u16) -> anyhow::Result<()> {
        self.data.write(FORWARD, &port.to_string()).map(drop)
    }

    /// Started components and their process ids.
    pub fn pids(&self) -> BTreeMap<Component, u32> {
        self.running.iter().map(|(&component, running)| (component, running.process().pid())).collect()
    }

    /// Stops a component and reserves its ports: connections are refused.
    pub async fn stop(&self, component: Component) -> anyhow::Result<()> {
        self.running(component)?.stop().await
    }

    /// Restarts a component that was stopped or crashed, with the same ports and data, and waits until it serves.
    pub async fn start_again(&self, component: Component) -> anyhow::Result<()> {
        self.running(component)?.start_again().await
    }

    /// Freezes a component: connections stay open and nothing answers, until [`Testbed::resume`].
    pub fn pause(&self, component: Component) -> anyhow::Result<()> {
        self.process(component)?.signal(Signal::Stop)
    }

    /// Resumes a component after [`Testbed::pause`].
    pub fn resume(&self, component: Component) -> anyhow::Result<()> {
        self.process(component)?.signal(Signal::Cont)
    }

    /// Process of a component, for its log or a signal.
    pub fn process(&self, component: Component) -> anyhow::Result<Arc<Process>> {
        Ok(self.running(component)?.process())
    }

    /// A number unique in this testbed, for names.
    pub(crate) fn next(&self) -> u32 {
        self.counter.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn running(&self, component: Component) -> anyhow::Result<&RunningProgram> {
        self.running.get(&component).with_context(|| format!("{component} is not part of this testbed"))
    }

    /// Waits for ready nodes (kwok) and a service account (controllers), which need the whole control plane.
    async fn works(&self) -> anyhow::Result<()> {
        let client = self.admin()?;
        let nodes = Api::<Node>::all(client.clone());
        let accounts = Api::<ServiceAccount>::namespaced(client, "default");
        let seen = eventually("the nodes to be ready", WORKS_WITHIN, async || {
            let nodes = nodes.list(&ListParams::default()).await?;
            let unready: Vec<_> = nodes.items.iter().filter(|node| !is_ready(node)).collect();
            if let Some(node) = unready.first() {
                bail!("{} of {} are not, {:?} for one", unready.len(), nodes.items.len(), node.metadata.name);
            }
            Ok(())
        });
        self.or_evidence(Component::Kwok, seen.await)?;
        let seen = eventually("the service account default/default", WORKS_WITHIN, async || {
            accounts.get("default").await.context("it cannot be read")
        });
        self.or_evidence(Component::ControllerManager, seen.await)?;
        for running in self.running.values() {
            let process = running.process();
            if process.exited().is_some() {
                bail!("a program ended right after it started\n{}", process.evidence());
            }
        }
        Ok(())
    }

    fn or_evidence<T>(&self, component: Component, seen: anyhow::Result<T>) -> anyhow::Result<T> {
        let process = self.process(component)?;
        seen.with_context(|| process.evidence())
    }
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

async fn create_nodes(config: &kube::Config, groups: &[NodeGroup]) -> anyhow::Result<()> {
    let nodes = Api::<Node>::all(kube::Client::try_from(config.clone())?);
    for group in groups {
        for node in group.nodes().context("cannot build a Node object")? {
            within("creating a node", CALL, nodes.create(&PostParams::default(), &node)).await?;
        }
    }
    Ok(())
}

/// An unpredictable token, from a freshly generated key.
fn secret() -> anyhow::Result<String> {
    let key = rcgen::KeyPair::generate().context("cannot make a token")?;
    let (first, second) = key.public_key_raw().split_at(16);
    let hex = |bytes: &[u8]| bytes.iter().fold(0_u128, |number, &byte| number << 8 | u128::from(byte));
    Ok(format!("{:032x}{:032x}", hex(first), hex(&second[..16])))
}
