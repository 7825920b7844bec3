//! The testbed itself: which programs run with which flags, in which order they start, and what is true once
//! [`Testbed::start`] has returned. The flags are the ones proven to work with these versions; each that is not
//! obvious says what fails without it.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::Api;
use kube::api::{ListParams, PostParams};

use crate::components::{Component, Plan, Ready, Running};
use crate::nodes::{NodeGroup, stages};
use crate::pki::Pki;
use crate::process::{Process, Signal};
use crate::tools::Tools;
use crate::wait::{eventually, within};
use crate::{access, prometheus};

const CALL: Duration = Duration::from_secs(20);
const WORKS_WITHIN: Duration = Duration::from_mins(1);

/// The controllers that tests need, by the long names of `--controllers`.
const CONTROLLERS: &str = "deployment-controller,replicaset-controller,statefulset-controller,\
    horizontal-pod-autoscaler-controller,namespace-controller,serviceaccount-controller,\
    serviceaccount-token-controller,root-ca-certificate-publisher-controller,garbage-collector-controller,\
    endpointslice-controller,disruption-controller,clusterrole-aggregation-controller";

/// What kind of control plane to start.
#[derive(Debug, Clone)]
pub struct Options {
    /// Name of the log folder, `target/testbed/<name>`, which is emptied first: lower-case letters, digits, `-`.
    pub name: String,
    /// Cold start of a pod: from being scheduled to ready, 0 to 1 s more than this. A pod's own annotation or label
    /// [`crate::START_SECONDS_KEY`] goes first.
    pub pod_start: Duration,
    /// The GPU nodes.
    pub nodes: Vec<NodeGroup>,
    /// How often Prometheus scrapes.
    pub scrape_interval: Duration,
    /// How often the HPA controller looks.
    pub hpa_sync: Duration,
    /// Keeps the data folder (etcd, Prometheus, kubeconfigs) when it ends. The logs are always kept.
    pub keep: bool,
    /// Starts Prometheus too.
    pub with_prometheus: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: "default".to_owned(),
            pod_start: Duration::from_secs(2),
            nodes: vec![
                NodeGroup::of("h100", 4, "NVIDIA-H100-80GB-HBM3"),
                NodeGroup::of("a100", 4, "NVIDIA-A100-SXM4-80GB"),
            ],
            scrape_interval: Duration::from_secs(1),
            hpa_sync: Duration::from_secs(2),
            keep: false,
            with_prometheus: true,
        }
    }
}

/// A running control plane. It holds no task, connection or client of the runtime that started it, so it may be a
/// static that tests with runtimes of their own share. Dropping it ends everything; so does the end of the process.
pub struct Testbed {
    // Fields are dropped in this order: the programs end before their data goes.
    running: BTreeMap<Component, Running>,
    pub(crate) data: Data,
    pub(crate) tools: Tools,
    pub(crate) ca: PathBuf,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) config: kube::Config,
    pub(crate) counter: AtomicU32,
    logs: PathBuf,
}

impl Testbed {
    /// Starts everything. When it returns, the nodes are ready, service accounts are being made and Prometheus
    /// answers. Takes about 15 s once the programs are built.
    ///
    /// # Errors
    ///
    /// When a program cannot be built or does not start in time: names it, what was awaited, and the end of its log.
    pub async fn start(options: Options) -> anyhow::Result<Self> {
        let tools =
            tokio::task::spawn_blocking(Tools::ready).await.context("the build of the tools panicked")??;
        // The first provider installed wins; it is the same one in every part of this program.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let logs = log_folder(&options.name)?;
        let data = Data::create(options.keep)?;
        let pki = Pki::write(&data.path)?;
        let token = secret()?;
        data.write("tokens.csv", &format!("{token},admin,admin,\"system:masters\"\n"))?;
        let stages = data.write("stages.yaml", &stages(options.pod_start))?;

        let etcd =
            Running::launch(Component::Etcd, tools.path("etcd")?, &logs, 2, |ports| etcd(&data, ports))
                .await?;
        let plan = |ports: &[u16]| apiserver(&data, &pki, &token, etcd.port(0), ports);
        let server =
            Running::launch(Component::Apiserver, tools.path("kube-apiserver")?, &logs, 1, plan).await?;
        let kubeconfig = access::write_kubeconfig(&data, "admin", server.port(0), &pki.ca, &token)?;
        let config = access::load(&kubeconfig).await?;

        let (controllers, scheduler, kwok, prometheus, ()) = tokio::try_join!(
            async {
                let plan = |_: &[u16]| controller_manager(&options, &pki, &kubeconfig);
                let program = tools.path("kube-controller-manager")?;
                Running::launch(Component::ControllerManager, program, &logs, 0, plan).await
            },
            async {
                let plan = |_: &[u16]| scheduler(&kubeconfig);
                Running::launch(Component::Scheduler, tools.path("kube-scheduler")?, &logs, 0, plan).await
            },
            async {
                let plan = |ports: &[u16]| kwok(&kubeconfig, &stages, ports);
                Running::launch(Component::Kwok, tools.path("kwok")?, &logs, 1, plan).await
            },
            async {
                if !options.with_prometheus {
                    return Ok(None);
                }
                let config = prometheus::write_config(&data, options.scrape_interval)?;
                let plan = |ports: &[u16]| prometheus::plan(&data, &config, ports);
                let program = tools.path("prometheus")?;
                Running::launch(Component::Prometheus, program, &logs, 1, plan).await.map(Some)
            },
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
        let testbed =
            Self { running, data, tools, ca: pki.ca, kubeconfig, config, counter: AtomicU32::new(0), logs };
        testbed.works().await?;
        Ok(testbed)
    }

    /// The folder with one log file for each process; tests put theirs here too.
    #[must_use]
    pub fn logs(&self) -> &Path {
        &self.logs
    }

    /// The folder for files that end with the testbed.
    #[must_use]
    pub fn data(&self) -> &Path {
        &self.data.path
    }

    /// The programs, `kubectl` among them.
    #[must_use]
    pub fn tools(&self) -> &Tools {
        &self.tools
    }

    /// The components that were started and their process ids.
    #[must_use]
    pub fn pids(&self) -> BTreeMap<Component, u32> {
        self.running.iter().map(|(&component, running)| (component, running.process().pid())).collect()
    }

    /// Ends a component and keeps its ports reserved: connections to it are refused.
    ///
    /// # Errors
    ///
    /// When it was not started at all, or cannot be ended.
    pub async fn stop(&self, component: Component) -> anyhow::Result<()> {
        self.running(component)?.stop().await
    }

    /// Starts a component that was stopped or died again, with the same ports and data, and waits until it serves.
    ///
    /// # Errors
    ///
    /// When it runs, or does not start.
    pub async fn start_again(&self, component: Component) -> anyhow::Result<()> {
        self.running(component)?.start_again().await
    }

    /// Freezes a component: connections stay open and nothing answers, until [`Testbed::resume`].
    ///
    /// # Errors
    ///
    /// When it does not run.
    pub fn pause(&self, component: Component) -> anyhow::Result<()> {
        self.process(component)?.signal(Signal::Stop)
    }

    /// Ends [`Testbed::pause`].
    ///
    /// # Errors
    ///
    /// When it does not run.
    pub fn resume(&self, component: Component) -> anyhow::Result<()> {
        self.process(component)?.signal(Signal::Cont)
    }

    /// The process of a component, for its log or a signal.
    ///
    /// # Errors
    ///
    /// When it was not started at all.
    pub fn process(&self, component: Component) -> anyhow::Result<Arc<Process>> {
        Ok(self.running(component)?.process())
    }

    /// A number that this testbed has not given out yet, for names.
    pub(crate) fn next(&self) -> u32 {
        self.counter.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn running(&self, component: Component) -> anyhow::Result<&Running> {
        self.running.get(&component).with_context(|| format!("{component} is not part of this testbed"))
    }

    /// Waits for what only a working whole brings about: ready nodes (kwok) and a service account (controllers).
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

fn etcd(data: &Data, ports: &[u16]) -> Plan {
    let (client, peer) = (url(ports[0]), url(ports[1]));
    let args = [
        "--name=testbed".to_owned(),
        format!("--data-dir={}", data.path.join("etcd").display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=testbed={peer}"),
        "--unsafe-no-fsync".to_owned(),
        "--log-level=warn".to_owned(),
    ];
    Plan { args: args.into(), ready: Ready::Answers { url: format!("{client}/health"), auth: None } }
}

fn apiserver(data: &Data, pki: &Pki, token: &str, etcd: u16, ports: &[u16]) -> Plan {
    let args = [
        format!("--etcd-servers={}", url(etcd)),
        format!("--secure-port={}", ports[0]),
        "--bind-address=127.0.0.1".to_owned(),
        "--advertise-address=127.0.0.1".to_owned(),
        // A loopback address is not accepted as an endpoint of the service "kubernetes".
        "--endpoint-reconciler-type=none".to_owned(),
        format!("--cert-dir={}", data.path.join("apiserver").display()),
        format!("--tls-cert-file={}", pki.serving_cert.display()),
        format!("--tls-private-key-file={}", pki.serving_key.display()),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--service-account-key-file={}", pki.service_account_public.display()),
        format!("--service-account-signing-key-file={}", pki.service_account_key.display()),
        "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        format!("--token-auth-file={}", data.path.join("tokens.csv").display()),
        "--authorization-mode=RBAC".to_owned(),
        // Nodes would keep a not-ready taint that nobody here takes away.
        "--disable-admission-plugins=TaintNodesByCondition".to_owned(),
        // Services of type ExternalName are resolved by name, which leads to programs on loopback.
        "--enable-aggregator-routing=false".to_owned(),
        format!("--requestheader-client-ca-file={}", pki.front_proxy_ca.display()),
        "--requestheader-username-headers=X-Remote-User".to_owned(),
        "--requestheader-group-headers=X-Remote-Group".to_owned(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
        "--requestheader-allowed-names=front-proxy-client".to_owned(),
        format!("--proxy-client-cert-file={}", pki.front_proxy_cert.display()),
        format!("--proxy-client-key-file={}", pki.front_proxy_key.display()),
    ];
    let url = format!("https://127.0.0.1:{}/readyz", ports[0]);
    Plan { args: args.into(), ready: Ready::Answers { url, auth: Some((token.to_owned(), pki.ca.clone())) } }
}

fn controller_manager(options: &Options, pki: &Pki, kubeconfig: &Path) -> Plan {
    let args = [
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--controllers={CONTROLLERS}"),
        format!("--horizontal-pod-autoscaler-sync-period={}ms", options.hpa_sync.as_millis()),
        "--leader-elect=false".to_owned(),
        "--secure-port=0".to_owned(),
        "--use-service-account-credentials=true".to_owned(),
        format!("--service-account-private-key-file={}", pki.service_account_key.display()),
        format!("--root-ca-file={}", pki.ca.display()),
    ];
    Plan { args: args.into(), ready: Ready::Runs }
}

fn scheduler(kubeconfig: &Path) -> Plan {
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    let args = [kubeconfig, "--leader-elect=false".to_owned(), "--secure-port=0".to_owned()];
    Plan { args: args.into(), ready: Ready::Runs }
}

fn kwok(kubeconfig: &Path, stages: &Path, ports: &[u16]) -> Plan {
    let args = [
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--config={}", stages.display()),
        "--manage-all-nodes=true".to_owned(),
        "--cidr=10.64.0.0/16".to_owned(),
        "--node-ip=127.0.0.1".to_owned(),
        // No node leases: nothing here watches them, and kwok plays no pod before it holds the lease of its node.
        "--node-lease-duration-seconds=0".to_owned(),
        format!("--server-address=127.0.0.1:{}", ports[0]),
    ];
    Plan {
        args: args.into(),
        ready: Ready::Answers { url: format!("{}/healthz", url(ports[0])), auth: None },
    }
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

/// A token that nobody can guess, from the system's random source by way of a fresh key.
fn secret() -> anyhow::Result<String> {
    let key = rcgen::KeyPair::generate().context("cannot make a token")?;
    let (first, second) = key.public_key_raw().split_at(16);
    let hex = |bytes: &[u8]| bytes.iter().fold(0_u128, |number, &byte| number << 8 | u128::from(byte));
    Ok(format!("{:032x}{:032x}", hex(first), hex(&second[..16])))
}

fn log_folder(name: &str) -> anyhow::Result<PathBuf> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || !name.chars().all(fits) {
        bail!("the testbed's name {name:?} must consist of lower-case letters, digits and '-'");
    }
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"), PathBuf::from);
    let folder = target.join("testbed").join(name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    folder.canonicalize().with_context(|| format!("cannot resolve {}", folder.display()))
}

/// The folder of all data. A shell on a pipe removes it when this process is gone, however it went.
pub(crate) struct Data {
    pub(crate) path: PathBuf,
    janitor: Option<Child>,
}

impl Data {
    fn create(keep: bool) -> anyhow::Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("wva-testbed-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path)
            .with_context(|| format!("cannot create the data folder {}", path.display()))?;
        let mut data = Self { path, janitor: None };
        if !keep {
            // More than one round, for programs that still write while their watchdogs end them.
            let script =
                r#"read -r _; for _ in 1 2 3 4 5; do rm -rf -- "$1"; [ -e "$1" ] || exit 0; sleep 1; done"#;
            let janitor = Command::new("sh")
                .args(["-c", script, "janitor"])
                .arg(&data.path)
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .process_group(0)
                .spawn()
                .context("cannot start sh as the janitor of the data folder")?;
            data.janitor = Some(janitor);
        }
        Ok(data)
    }

    /// Writes a file that only this user can read.
    pub(crate) fn write(&self, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        let path = self.path.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        if let Some(mut janitor) = self.janitor.take() {
            // Waiting closes the pipe first, which is what the janitor waits for.
            let _ = janitor.wait();
        }
    }
}
