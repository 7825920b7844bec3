//! A small kubelet for pods of the project's image, without a container runtime. It runs what the objects declare:
//! command, arguments, variables, config maps, secrets, service account tokens, probes, restarts and grace periods,
//! on the image's root file system. A wrong flag, mount or permission in the chart fails as in a cluster.
//!
//! Two things differ. All pods share the machine's loopback, so each container port maps to another port there. An
//! argument or variable that ends with `:PORT` of a declared port is rewritten. The API server and the pods reach
//! Services and pods through [`network`], which replaces kube-proxy and the cluster's DNS.

mod container;
mod files;
mod network;
mod pod;
mod probe;
mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::Api;
use kube::api::ListParams;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::programs::manager;
use crate::testbed::NETWORK;
use crate::testbed::prometheus::write_targets;
use crate::{Testbed, run};

pub use self::network::NetworkProxy;

/// Pods that this kubelet runs and kwok ignores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pods {
    /// Pods of the controller and of its `helm test`.
    Controllers,
    /// Pods of every Deployment; all must use the project's image.
    Deployments,
}

impl Pods {
    /// Label selector of the pods.
    pub(crate) fn selector(self) -> &'static str {
        match self {
            Self::Controllers => "control-plane in (controller-manager,controller-manager-test)",
            // kwok ignores nodes that match, so the selector must not match every object.
            Self::Deployments => "pod-template-hash",
        }
    }
}

/// Poll interval of a pod and its process: shorter than every probe period.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Time limit of a helper program.
const HELPER: Duration = Duration::from_mins(1);
/// Time limit of an API call.
const CALL: Duration = Duration::from_secs(10);

/// Loopback ports of a pod, by container port.
type Ports = BTreeMap<u16, u16>;

/// State shared by the pods' tasks.
struct Node {
    client: kube::Client,
    runs: Pods,
    /// The program of the image of commands; that of the controller is in the same folder.
    wva: PathBuf,
    data: PathBuf,
    /// Data folder of the testbed, for Prometheus' targets, if Prometheus runs.
    targets_of: Option<PathBuf>,
    logs: PathBuf,
    apiserver: u16,
    next_ip: AtomicU16,
    /// Newest state of each pod, by UID.
    pods: Mutex<BTreeMap<String, Pod>>,
    /// Loopback ports of pods, by pod address.
    addresses: Mutex<BTreeMap<Ipv4Addr, Ports>>,
    /// Last error of each pod.
    troubles: Mutex<BTreeMap<String, String>>,
}

/// The kubelet. Drop it to end all containers; the pods stay as objects.
pub struct Kubelet {
    node: Arc<Node>,
    // Ends its tasks when it is dropped.
    _running: JoinSet<()>,
}

impl Kubelet {
    /// Starts the kubelet on a testbed with [`crate::Options::kubelet`], with this program and the manager of its folder in the images.
    pub async fn start(testbed: &Testbed, wva: &Path) -> anyhow::Result<Self> {
        container::supported().await?;
        let manager = manager(wva);
        ensure!(manager.exists(), "there is no {}", manager.display());
        let socket = testbed.data().join(NETWORK);
        let listener = tokio::net::UnixListener::bind(&socket)
            .with_context(|| format!("cannot listen on {}", socket.display()))?;
        let node = Arc::new(Node {
            client: testbed.admin()?,
            runs: testbed.pods.context("the testbed was started without Options::kubelet")?,
            wva: wva.to_owned(),
            data: testbed.data().join("pods"),
            targets_of: testbed.prometheus_url().is_ok().then(|| testbed.data().to_owned()),
            logs: testbed.logs().to_owned(),
            apiserver: testbed.apiserver_port()?,
            next_ip: AtomicU16::new(1),
            pods: Mutex::default(),
            addresses: Mutex::default(),
            troubles: Mutex::default(),
        });
        let mut running = JoinSet::new();
        running.spawn(network::serve(listener, node.clone()));
        running.spawn(watch(node.clone()));
        Ok(Self { node, _running: running })
    }

    /// Errors of pods and the ends of all pod logs, for test failures.
    pub fn evidence(&self) -> String {
        let mut lines: Vec<String> =
            self.node.troubles.lock().iter().map(|(pod, trouble)| format!("{pod}: {trouble}")).collect();
        for pod in self.node.pods.lock().values() {
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            let log = std::fs::read_to_string(self.node.log(name)).unwrap_or_default();
            let all: Vec<&str> = log.lines().collect();
            lines.push(format!("the end of the log of {name}:"));
            lines.extend(all[all.len().saturating_sub(15)..].iter().map(|line| (*line).to_owned()));
        }
        lines.join("\n")
    }

    /// All output of pods with this name, including restarted containers.
    pub fn log(&self, pod: &str) -> String {
        std::fs::read_to_string(self.node.log(pod)).unwrap_or_default()
    }
}

impl Node {
    /// The program of a container's image, which is also its entry point: that of the commands, or the manager.
    fn image_program(&self, container: &Container) -> PathBuf {
        let image = container.image.as_deref().unwrap_or_default();
        let (_, name) = image.rsplit_once('/').unwrap_or(("", image));
        let name = name.split([':', '@']).next().unwrap_or_default();
        if name.ends_with("-cli") { self.wva.clone() } else { manager(&self.wva) }
    }

    fn log(&self, pod: &str) -> PathBuf {
        self.logs.join(format!("pod-{pod}.log"))
    }

    /// A new pod address. Nothing listens there: [`network`] maps it to loopback.
    fn new_ip(&self) -> Ipv4Addr {
        let [high, low] = self.next_ip.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        Ipv4Addr::new(10, 65, high, low)
    }

    /// Loopback port of a pod's port.
    fn local(&self, ip: Ipv4Addr, port: u16) -> anyhow::Result<u16> {
        let addresses = self.addresses.lock();
        let ports = addresses.get(&ip).with_context(|| format!("no pod has the address {ip}"))?;
        let known = || format!("the pod at {ip} declares no container port {port}, only {:?}", ports.keys());
        ports.get(&port).copied().with_context(known)
    }

    /// Scrape targets of pods with the annotation `prometheus.io/scrape`, with the labels that the Prometheus chart
    /// configures.
    fn targets(&self) -> Value {
        let pods = self.pods.lock();
        let target = |pod: &Pod| {
            let metadata = &pod.metadata;
            let annotation =
                |name: &str| metadata.annotations.as_ref()?.get(&format!("prometheus.io/{name}"));
            if annotation("scrape")? != "true" {
                return None;
            }
            let ip = pod.status.as_ref()?.pod_ip.as_ref()?.parse().ok()?;
            let port = self.local(ip, annotation("port")?.parse().ok()?).ok()?;
            let own = metadata.labels.iter().flatten().map(|(name, value)| (label(name), value.as_str()));
            let mut labels: BTreeMap<String, &str> = own.collect();
            labels.insert("namespace".to_owned(), metadata.namespace.as_deref()?);
            labels.insert("pod".to_owned(), metadata.name.as_deref()?);
            labels.insert("job".to_owned(), "kubernetes-pods");
            Some(json!({"targets": [format!("127.0.0.1:{port}")], "labels": labels}))
        };
        pods.values().filter_map(target).collect()
    }

    /// Pods bound to a node, by UID.
    async fn list_pods(&self) -> anyhow::Result<BTreeMap<String, Pod>> {
        let list = ListParams::default().labels(self.runs.selector());
        let pods = Api::<Pod>::all(self.client.clone());
        let found =
            tokio::time::timeout(CALL, pods.list(&list)).await.context("no list of pods in time")??;
        let bound = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        let found = found.items.into_iter().filter(bound);
        Ok(found.filter_map(|pod| Some((pod.metadata.uid.clone()?, pod))).collect())
    }
}

/// Tracks the pods, starts a task for each new one, and updates the scrape targets.
async fn watch(node: Arc<Node>) {
    let mut tasks = JoinSet::new();
    let mut scraped = Value::Null;
    let mut known = BTreeSet::new();
    loop {
        match node.list_pods().await {
            Ok(found) => {
                known.retain(|uid| found.contains_key(uid));
                let new: Vec<String> = found.keys().filter(|uid| !known.contains(*uid)).cloned().collect();
                *node.pods.lock() = found;
                for uid in new {
                    known.insert(uid.clone());
                    tasks.spawn(pod::run(node.clone(), uid));
                }
                node.troubles.lock().remove("the list of pods");
                let targets = node.targets();
                if let Some(data) = node.targets_of.as_ref().filter(|_| targets != scraped) {
                    if let Err(error) = write_targets(data, "annotated-pods", &targets) {
                        node.troubles.lock().insert("targets".to_owned(), format!("{error:#}"));
                    }
                    scraped = targets;
                }
            }
            Err(error) => {
                node.troubles.lock().insert("the list of pods".to_owned(), format!("{error:#}"));
            }
        }
        while tasks.try_join_next().is_some() {}
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// A name as a Prometheus label.
fn label(name: &str) -> String {
    name.replace(|c: char| !c.is_ascii_alphanumeric(), "_")
}

/// Runs a helper program to its end.
async fn run_helper(program: &Path, args: &[&str]) -> anyhow::Result<()> {
    let mut command = tokio::process::Command::new(program);
    command.args(args);
    let what = format!("{} {args:?}", program.display());
    run(&what, command, "", HELPER).await?.success().map(drop).context(what)
}
