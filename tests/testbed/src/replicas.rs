//! Replicas of the program, as a Deployment runs them, behind one Service. Each has its own pod name, token and link
//! to kube-apiserver. Leader election is fast enough for tests.

mod balancer;
mod link;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::future::try_join_all;

use self::balancer::{Balancer, Endpoint, ServicePort};
use self::link::Link;
use crate::install::manifests::{self, Ports};
use crate::install::program::Program;
use crate::install::{API_SERVICE, InstallOptions, RELEASE, SERVICE, SYSTEM, UP, WEBHOOKS};
use crate::testbed::audit::credential_id;
use crate::{Process, Signal, Testbed, eventually};

pub use self::balancer::Connections;

/// Duration of a lease, renewal interval and renewal deadline.
pub const LEASE: Duration = Duration::from_secs(6);
const RENEW: Duration = Duration::from_secs(4);
const RETRY: Duration = Duration::from_secs(1);
pub const LEASE_NAME: &str = "72dd1cf1.llm-d.ai";
/// Time until a cluster knows that a pod is terminating.
const PROPAGATION: Duration = Duration::from_secs(1);

/// State of one replica that survives restarts.
#[derive(Debug)]
struct Pod {
    name: String,
    kubeconfig: PathBuf,
    credential: String,
    link: Link,
    /// Settings of this replica, for its next start.
    env: Vec<(String, String)>,
    /// Program of this replica, if not that of the release.
    wva: Option<PathBuf>,
}

/// Replicas of one release. Drop to end them; the objects stay in the control plane.
pub struct Replicas<'a> {
    testbed: &'a Testbed,
    options: InstallOptions,
    namespace: String,
    account: String,
    balancer: Balancer,
    pods: Vec<Pod>,
    running: BTreeMap<usize, Program>,
}

impl<'a> Replicas<'a> {
    /// Installs everything except the program: CRD, RBAC, Service and webhook configurations without rules. Removes
    /// CA and Lease of an earlier install. The webhooks cover only a new namespace, `<name>-<number>`, so
    /// configurations left behind affect no other test. No replica runs yet.
    pub async fn install(testbed: &'a Testbed, options: InstallOptions, name: &str) -> anyhow::Result<Self> {
        manifests::crd(testbed).await?;
        let namespace = testbed.namespace(name).await?;
        let options = InstallOptions { judges: Some(namespace.clone()), ..elected(options) };
        let account = manifests::account(testbed, &options).await?;
        let balancer = Balancer::start(PROPAGATION).await?;
        let (pods, running) = (Vec::new(), BTreeMap::new());
        let replicas = Self { testbed, options, namespace, account, balancer, pods, running };
        replicas.reset().await?;
        Ok(replicas)
    }

    /// Removes CA and Lease of earlier replicas, and applies the webhook configurations without rules again.
    pub async fn reset(&self) -> anyhow::Result<()> {
        let (webhooks, secret) = (self.name(WEBHOOKS), format!("{}-ca", self.name(SERVICE)));
        let mut registrations = vec![
            format!("mutatingwebhookconfiguration/{webhooks}"),
            format!("validatingwebhookconfiguration/{webhooks}"),
        ];
        if self.options.serves_metrics_api() {
            registrations.push(format!("apiservice/{API_SERVICE}"));
        }
        self.delete(&registrations).await?;
        self.delete(&["-n".to_owned(), self.system(), format!("secret/{secret}")]).await?;
        self.delete_lease().await?;
        let external_metrics =
            self.options.serves_metrics_api().then(|| self.balancer.port(ServicePort::ExternalMetrics));
        let ports = Ports { admission: self.balancer.port(ServicePort::Admission), external_metrics };
        manifests::apply_webhooks(self.testbed, &self.options, ports).await
    }

    /// Deletes the Lease, if there is one.
    pub async fn delete_lease(&self) -> anyhow::Result<()> {
        self.delete(&["-n".to_owned(), self.system(), format!("lease/{LEASE_NAME}")]).await
    }

    /// Sets an environment variable for later starts of pod `index`.
    pub async fn set(&mut self, index: usize, key: &str, value: &str) -> anyhow::Result<()> {
        self.pod(index).await?;
        let env = &mut self.pods[index].env;
        env.retain(|(known, _)| known != key);
        env.push((key.to_owned(), value.to_owned()));
        Ok(())
    }

    /// Sets the program for later starts of pod `index`, as during an upgrade.
    pub async fn set_program(&mut self, index: usize, wva: &Path) -> anyhow::Result<()> {
        self.pod(index).await?;
        self.pods[index].wva = Some(wva.to_owned());
        Ok(())
    }

    async fn delete(&self, what: &[String]) -> anyhow::Result<()> {
        let mut args = vec!["delete", "--ignore-not-found", "--wait=false"];
        args.extend(what.iter().map(String::as_str));
        self.testbed.kubectl(&args).await?.success().map(|_| ())
    }

    /// Starts pod `index` and waits until it logs its addresses. It may not be ready yet.
    pub async fn start(&mut self, index: usize) -> anyhow::Result<()> {
        self.start_all(&[index]).await
    }

    pub async fn start_all(&mut self, indexes: &[usize]) -> anyhow::Result<()> {
        for &index in indexes {
            let ended = self.running.get(&index).is_none_or(|program| program.process().exited().is_some());
            ensure!(ended, "wva-{index} runs already");
            self.pod(index).await?;
        }
        let (testbed, options, pods) = (self.testbed, &self.options, &self.pods);
        let starts = indexes.iter().map(|&index| async move {
            let Pod { name, kubeconfig, env, wva, .. } = &pods[index];
            let mut options = options.clone();
            options.env.extend(env.iter().cloned());
            if let Some(wva) = wva {
                options.wva.clone_from(wva);
            }
            // Two releases may have pods of the same name, and addresses are read from logs.
            let log = options.named(&format!("{RELEASE}-{name}"));
            let program = Program::start(testbed, &options, name, &log, kubeconfig).await?;
            anyhow::Ok((index, program))
        });
        for (index, program) in try_join_all(starts).await? {
            let external_metrics =
                self.options.serves_metrics_api().then(|| program.port("external metrics")).transpose()?;
            let health = program.address("health")?.to_owned();
            let endpoint = Endpoint { admission: program.port("admission")?, external_metrics, health };
            self.balancer.add(&self.pods[index].name, endpoint);
            self.running.insert(index, program);
        }
        Ok(())
    }

    /// State of pod `index`, created with those before it if missing.
    async fn pod(&mut self, index: usize) -> anyhow::Result<()> {
        while self.pods.len() <= index {
            let name = format!("wva-{}", self.pods.len());
            let link = Link::to(self.testbed.apiserver_port()?).await?;
            let token = self.testbed.service_account_token(&self.system(), &self.account).await?;
            let kubeconfig = self.testbed.kubeconfig_of(&name, link.port(), &token)?;
            let (credential, env) = (credential_id(&token)?, Vec::new());
            self.pods.push(Pod { name, kubeconfig, credential, link, env, wva: None });
        }
        Ok(())
    }

    /// Sends SIGTERM, as a kubelet does when the pod is deleted. New connections still arrive for a moment.
    pub fn terminate(&self, index: usize) -> anyhow::Result<()> {
        let program = self.program(index)?;
        // Signal first: the kubelet may be faster than kube-proxy.
        program.process().signal(Signal::Term)?;
        self.balancer.leaves(&self.pods[index].name);
        Ok(())
    }

    /// Waits until a replica has exited, and removes its endpoint.
    pub async fn ended(&mut self, index: usize) -> anyhow::Result<ExitStatus> {
        let status = self.program(index)?.process().wait_exit(Program::GRACE).await?;
        self.balancer.remove(&self.pods[index].name);
        self.running.remove(&index);
        Ok(status)
    }

    /// Kills a replica without a grace period.
    pub fn kill(&mut self, index: usize) -> anyhow::Result<()> {
        self.program(index)?.process().kill();
        self.balancer.remove(&self.pods[index].name);
        self.running.remove(&index);
        Ok(())
    }

    pub fn kill_all(&mut self) {
        for (index, program) in std::mem::take(&mut self.running) {
            program.process().kill();
            self.balancer.remove(&self.pods[index].name);
        }
    }

    /// Sends a signal: [`Signal::Stop`] freezes the replica, [`Signal::Cont`] resumes it.
    pub fn signal(&self, index: usize, signal: Signal) -> anyhow::Result<()> {
        self.program(index)?.process().signal(signal)
    }

    /// Cuts the link between a replica and kube-apiserver in both directions. Neither end notices.
    pub fn cut(&self, index: usize) {
        if let Some(pod) = self.pods.get(index) {
            pod.link.cut();
        }
    }

    /// Ends [`Replicas::cut`]: bytes in flight are lost, old connections are reset.
    pub fn heal(&self, index: usize) {
        if let Some(pod) = self.pods.get(index) {
            pod.link.heal();
        }
    }

    /// Ends [`Replicas::cut`]: bytes in flight arrive late, including requests that the sender gave up.
    pub fn heal_and_deliver(&self, index: usize) {
        if let Some(pod) = self.pods.get(index) {
            pod.link.heal_and_deliver();
        }
    }

    /// Waits until these replicas are ready.
    pub async fn wait_ready(&self, indexes: &[usize]) -> anyhow::Result<()> {
        for &index in indexes {
            let program = self.program(index)?;
            eventually(&format!("wva-{index} to be ready"), UP, async || program.is_ready().await)
                .await
                .with_context(|| program.evidence())?;
        }
        Ok(())
    }

    /// Whether a replica's `/readyz` succeeds.
    pub async fn ready(&self, index: usize) -> anyhow::Result<()> {
        self.program(index)?.is_ready().await
    }

    /// Waits until the webhooks are registered and kube-apiserver calls them.
    pub async fn wait_webhooks(&self) -> anyhow::Result<()> {
        eventually("the webhooks to be open", UP, async || {
            manifests::check_webhooks_registered(self.testbed, &self.options).await?;
            manifests::check_webhooks_called(self.testbed, &self.options).await
        })
        .await
        .with_context(|| self.evidence())
    }

    /// `wva_leader` of a replica; `None` if there is no such series.
    pub async fn leads(&self, index: usize) -> anyhow::Result<Option<bool>> {
        Ok(self.program(index)?.series("wva_leader", &[]).await?.map(|value| value > 0.0))
    }

    /// Page at `/metrics` of a replica.
    pub async fn metrics(&self, index: usize) -> anyhow::Result<String> {
        self.program(index)?.metrics().await
    }

    pub fn process(&self, index: usize) -> anyhow::Result<&Process> {
        Ok(self.program(index)?.process())
    }

    /// Address of a server of a replica, by the names of [`crate::install::Install::address`].
    pub fn port(&self, index: usize, what: &str) -> anyhow::Result<u16> {
        self.program(index)?.port(what)
    }

    /// Id of the replica's token in the audit log.
    pub fn credential(&self, index: usize) -> anyhow::Result<&str> {
        Ok(&self.pods.get(index).with_context(|| format!("replica wva-{index} does not exist"))?.credential)
    }

    /// Connections through the Service so far.
    pub fn connections(&self) -> Connections {
        self.balancer.connections()
    }

    /// Longest pause of the balancer, caused by a lack of CPU.
    pub fn longest_pause(&self) -> Duration {
        self.balancer.longest_pause()
    }

    pub fn testbed(&self) -> &'a Testbed {
        self.testbed
    }

    /// Translates a name of `config/base` to this release.
    pub fn name(&self, base: &str) -> String {
        self.options.named(base)
    }

    /// Whether this release serves the external metrics API.
    pub fn serves_metrics_api(&self) -> bool {
        self.options.serves_metrics_api()
    }

    /// Namespace that the webhooks cover.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Namespace of the program.
    pub fn system(&self) -> String {
        self.name(SYSTEM)
    }

    /// End of each log, for error messages.
    pub fn evidence(&self) -> String {
        self.running.values().map(Program::evidence).collect::<Vec<_>>().join("\n")
    }

    fn program(&self, index: usize) -> anyhow::Result<&Program> {
        self.running.get(&index).with_context(|| format!("wva-{index} does not run"))
    }
}

/// These options with leader election.
fn elected(mut options: InstallOptions) -> InstallOptions {
    let seconds = |time: Duration| format!("{}s", time.as_secs());
    let settings = [
        ("LEADER_ELECT", "true".to_owned()),
        ("LEADER_ELECTION_ID", LEASE_NAME.to_owned()),
        ("LEADER_ELECTION_LEASE_DURATION", seconds(LEASE)),
        ("LEADER_ELECTION_RENEW_DEADLINE", seconds(RENEW)),
        ("LEADER_ELECTION_RETRY_PERIOD", seconds(RETRY)),
        ("WVA_TAKEOVER_DELAY", "1s".to_owned()),
    ];
    let settings = settings.each_ref().map(|(key, value)| (*key, value.as_str()));
    // Later settings win, so the caller's come last.
    let own = std::mem::take(&mut options.env);
    options = options.with(&settings);
    options.env.extend(own);
    options
}
