//! A small kubelet for pods of the project's image, since there is no container runtime here. It runs what the live
//! objects say: command, arguments and variables of the container, config maps, secrets and service account tokens as
//! mounted files, on the root file system that the image has, with probes, restarts and grace periods. A wrong flag,
//! mount or permission in the chart fails here as it would in a cluster.
//!
//! Two things differ. All pods share the machine's loopback, so each declared container port gets another one there, and
//! an argument or variable that ends with `:PORT` of a declared port is led to it. And the API server and the pods reach
//! Services and pods by [`network`], which plays kube-proxy and the cluster's DNS.

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

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::testbed::NETWORK;
use crate::testbed::prometheus::write_targets;
use crate::{Testbed, run};

pub use self::network::NetworkProxy;

/// Pods that are run here and left alone by kwok.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pods {
    /// The controller's, and those of its `helm test`.
    Controllers,
    /// Those of every Deployment, so each has to be of the project's image.
    Deployments,
}

impl Pods {
    /// As a label selector.
    pub(crate) fn selector(self) -> &'static str {
        match self {
            Self::Controllers => "control-plane in (controller-manager,controller-manager-test)",
            // kwok leaves nodes alone that match, so it must not be one that every object matches.
            Self::Deployments => "pod-template-hash",
        }
    }
}

/// Time between two looks at a pod and its process: short against every period of a probe.
const LOOK: Duration = Duration::from_millis(200);
/// Longest time for a helper of the system.
const HELPER: Duration = Duration::from_mins(1);
/// Longest wait for the API server.
const CALL: Duration = Duration::from_secs(10);

/// Where ports of a pod are on loopback, by container port.
type Ports = BTreeMap<u16, u16>;

/// What the pods' tasks share.
struct Node {
    client: kube::Client,
    runs: Pods,
    /// The program of the image.
    wva: PathBuf,
    data: PathBuf,
    /// The testbed's folder, for Prometheus' targets.
    targets_of: PathBuf,
    logs: PathBuf,
    apiserver: u16,
    next_ip: AtomicU16,
    /// The newest state of each pod, by UID.
    pods: Mutex<BTreeMap<String, Pod>>,
    /// Where pods can be reached, by their addresses.
    addresses: Mutex<BTreeMap<Ipv4Addr, Ports>>,
    /// What could not be done, by pod.
    troubles: Mutex<BTreeMap<String, String>>,
}

/// The kubelet. Dropping it ends all its containers; the pods stay as objects.
pub struct Kubelet {
    node: Arc<Node>,
    // Ends its tasks when it is dropped.
    _running: JoinSet<()>,
}

impl Kubelet {
    /// Starts it on a testbed with [`crate::Options::kubelet`], with this program in the image.
    pub async fn start(testbed: &Testbed, wva: &Path) -> anyhow::Result<Self> {
        container::supported().await?;
        let wva = wva.canonicalize().with_context(|| format!("there is no {}", wva.display()))?;
        let socket = testbed.data().join(NETWORK);
        let listener = tokio::net::UnixListener::bind(&socket)
            .with_context(|| format!("cannot listen on {}", socket.display()))?;
        let node = Arc::new(Node {
            client: testbed.admin()?,
            runs: testbed.pods.context("the testbed was started without Options::kubelet")?,
            wva,
            data: testbed.data().join("pods"),
            targets_of: testbed.data().to_owned(),
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

    /// What could not be done for a pod, and the ends of the logs of all pods that there are: to show when something
    /// went wrong.
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

    /// All that pods of this name wrote, containers that were restarted included.
    pub fn log(&self, pod: &str) -> String {
        std::fs::read_to_string(self.node.log(pod)).unwrap_or_default()
    }
}

impl Node {
    fn log(&self, pod: &str) -> PathBuf {
        self.logs.join(format!("pod-{pod}.log"))
    }

    /// An address that no pod has had. Nothing listens there: [`network`] knows where a pod really is.
    fn new_ip(&self) -> Ipv4Addr {
        let [high, low] = self.next_ip.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        Ipv4Addr::new(10, 65, high, low)
    }

    /// The port on loopback behind a port of a pod.
    fn local(&self, ip: Ipv4Addr, port: u16) -> anyhow::Result<u16> {
        let addresses = self.addresses.lock();
        let ports = addresses.get(&ip).with_context(|| format!("no pod has the address {ip}"))?;
        let known = || format!("the pod at {ip} declares no container port {port}, only {:?}", ports.keys());
        ports.get(&port).copied().with_context(known)
    }

    /// The scrape targets of pods with the annotation `prometheus.io/scrape`, with the labels that the scrape configuration
    /// of the Prometheus chart gives them.
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

    /// The pods that are bound to a node, by UID.
    async fn look(&self) -> anyhow::Result<BTreeMap<String, Pod>> {
        let list = ListParams::default().labels(self.runs.selector());
        let pods = Api::<Pod>::all(self.client.clone());
        let found =
            tokio::time::timeout(CALL, pods.list(&list)).await.context("no list of pods in time")??;
        let bound = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        let found = found.items.into_iter().filter(bound);
        Ok(found.filter_map(|pod| Some((pod.metadata.uid.clone()?, pod))).collect())
    }
}

/// Keeps the list of pods, starts a task for each new one, and has Prometheus scrape those that ask for it.
async fn watch(node: Arc<Node>) {
    let mut tasks = JoinSet::new();
    let mut scraped = Value::Null;
    let mut known = BTreeSet::new();
    loop {
        match node.look().await {
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
                if targets != scraped {
                    if let Err(error) = write_targets(&node.targets_of, "annotated-pods", &targets) {
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
        tokio::time::sleep(LOOK).await;
    }
}

/// A name as a label of Prometheus.
fn label(name: &str) -> String {
    name.replace(|c: char| !c.is_ascii_alphanumeric(), "_")
}

/// Runs a helper of the system to its end.
async fn ran(program: &Path, args: &[&str]) -> anyhow::Result<()> {
    let mut command = tokio::process::Command::new(program);
    command.args(args);
    let what = format!("{} {args:?}", program.display());
    run(&what, command, "", HELPER).await?.success().map(drop).context(what)
}
