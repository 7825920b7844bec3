//! Lifecycle of one pod: start, probe, restart, terminate, delete.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::jiff::Timestamp;
use tokio::time::{Instant, sleep};

use super::container::PreparedContainer;
use super::probe::Probe;
use super::status::{State, Status, delete, is_absent};
use super::{Node, POLL_INTERVAL};
use crate::{Process, Signal, ports};

/// Delay before a restart: a tenth of a kubelet's first back-off.
const PAUSE: Duration = Duration::from_secs(1);
/// Refresh interval of mounted config maps and secrets; a kubelet needs up to a minute.
const REFRESH: Duration = Duration::from_secs(2);

/// A running container.
struct RunningContainer {
    process: Process,
    since: Timestamp,
    liveness: Option<Probe>,
    readiness: Option<Probe>,
    ready: bool,
}

/// A pod and its current state.
struct PodLifecycle {
    node: Arc<Node>,
    uid: String,
    ip: Ipv4Addr,
    folder: PathBuf,
    prepared: Option<PreparedContainer>,
    running: Option<RunningContainer>,
    reported: Option<Status>,
    restarts: u32,
    last_code: Option<i32>,
    /// Another program had taken a port of the container.
    lost_port: bool,
    /// No start before this time.
    pause: Instant,
    refreshed: Instant,
    ended: Option<i32>,
}

/// Runs a pod until it is deleted.
pub(super) async fn run(node: Arc<Node>, uid: String) {
    let now = Instant::now();
    let mut lifecycle = PodLifecycle {
        ip: node.new_ip(),
        folder: node.data.join(&uid),
        prepared: None,
        running: None,
        reported: None,
        restarts: 0,
        last_code: None,
        lost_port: false,
        pause: now,
        refreshed: now,
        ended: None,
        uid,
        node,
    };
    loop {
        let newest = lifecycle.node.pods.lock().get(&lifecycle.uid).cloned();
        // Deleted by force: the container ends with it.
        let Some(pod) = newest else { break };
        let name = pod.metadata.name.clone().unwrap_or_default();
        match lifecycle.step(&pod).await {
            Ok(true) => {
                lifecycle.node.troubles.lock().remove(&name);
            }
            Ok(false) => break,
            Err(error) if is_absent(&error) => {}
            Err(error) => {
                lifecycle.node.troubles.lock().insert(name, format!("{error:#}"));
            }
        }
        sleep(POLL_INTERVAL).await;
    }
    lifecycle.node.addresses.lock().remove(&lifecycle.ip);
}

impl PodLifecycle {
    /// Checks the pod and its process once; returns false when the pod is gone.
    async fn step(&mut self, pod: &Pod) -> anyhow::Result<bool> {
        if pod.metadata.deletion_timestamp.is_some() {
            self.end(pod).await?;
            delete(&self.node, pod).await?;
            return Ok(false);
        }
        let spec = pod.spec.as_ref().context("a pod without a spec")?;
        ensure!(spec.containers.len() == 1, "only pods with one container are supported");
        let container = &spec.containers[0];
        if self.ended.is_none() {
            self.reap(spec.restart_policy.as_deref());
        }
        let state = if let Some(code) = self.ended {
            State::Ended { code }
        } else if self.running.is_none() {
            match self.start(pod, container).await {
                Ok(state) => state,
                Err(error) => self.failed_to_start(&error),
            }
        } else {
            self.probe().await?;
            self.refresh(pod).await?;
            self.state()
        };
        self.report(pod, state).await?;
        Ok(true)
    }

    /// Records the exit of a container.
    fn reap(&mut self, restart_policy: Option<&str>) {
        let Some(running) = &self.running else { return };
        let Some(status) = running.process.exited() else { return };
        self.lost_port = ports::was_taken(&running.process.log());
        // A signal has no exit code: any code other than 0 will do.
        let code = status.code().unwrap_or(128);
        self.running = None;
        self.last_code = Some(code);
        let again = match restart_policy {
            Some("Never") => false,
            Some("OnFailure") => code != 0,
            _ => true,
        };
        if again {
            self.restarts += 1;
            self.pause = Instant::now() + PAUSE;
        } else {
            self.ended = Some(code);
        }
    }

    async fn start(&mut self, pod: &Pod, container: &Container) -> anyhow::Result<State> {
        if Instant::now() < self.pause {
            let message = format!("exit code {:?}", self.last_code);
            return Ok(State::Waiting { reason: "CrashLoopBackOff", message });
        }
        if self.prepared.is_none() {
            std::fs::create_dir_all(&self.folder)?;
            self.prepared = Some(PreparedContainer::new(&self.node, pod, container, &self.folder).await?);
        }
        let prepared = self.prepared.as_mut().context("not prepared")?;
        if std::mem::take(&mut self.lost_port) {
            prepared.take_ports(container)?;
        }
        self.node.addresses.lock().insert(self.ip, prepared.ports().clone());
        let process = prepared.start(&self.node, pod, container).await?;
        let probe = |declared| Probe::new(declared, container, prepared.ports());
        let (liveness, readiness) =
            (probe(container.liveness_probe.as_ref())?, probe(container.readiness_probe.as_ref())?);
        ensure!(container.startup_probe.is_none(), "startupProbe is not supported");
        let ready = readiness.is_none();
        self.running =
            Some(RunningContainer { process, since: Timestamp::now(), liveness, readiness, ready });
        Ok(self.state())
    }

    fn failed_to_start(&mut self, error: &anyhow::Error) -> State {
        self.pause = Instant::now() + PAUSE;
        State::Waiting { reason: "CreateContainerConfigError", message: format!("{error:#}") }
    }

    fn state(&self) -> State {
        let waiting = State::Waiting { reason: "ContainerCreating", message: String::new() };
        self.running.as_ref().map_or(waiting, |running| State::Running { since: running.since })
    }

    /// Readiness follows the probe. A failed liveness probe kills the container, which then restarts.
    async fn probe(&mut self) -> anyhow::Result<()> {
        let Some(running) = &mut self.running else { return Ok(()) };
        if let Some(readiness) = &mut running.readiness
            && let Some(ready) = readiness.run_if_due().await
        {
            running.ready = ready;
        }
        if let Some(liveness) = &mut running.liveness
            && liveness.run_if_due().await == Some(false)
        {
            running.process.kill();
        }
        Ok(())
    }

    async fn refresh(&mut self, pod: &Pod) -> anyhow::Result<()> {
        let now = Instant::now();
        if now < self.refreshed + REFRESH {
            return Ok(());
        }
        self.refreshed = now;
        match &mut self.prepared {
            Some(prepared) => prepared.refresh(&self.node, pod).await,
            None => Ok(()),
        }
    }

    async fn report(&mut self, pod: &Pod, state: State) -> anyhow::Result<()> {
        let ready = self.running.as_ref().is_some_and(|running| running.ready);
        let status = Status { ip: self.ip, state, ready, restarts: self.restarts, last_code: self.last_code };
        if self.reported.as_ref() == Some(&status) {
            return Ok(());
        }
        status.report(&self.node, pod).await?;
        self.reported = Some(status);
        Ok(())
    }

    /// SIGTERM, the grace period, SIGKILL.
    async fn end(&mut self, pod: &Pod) -> anyhow::Result<()> {
        let Some(running) = self.running.take() else { return Ok(()) };
        if running.process.exited().is_some() {
            return Ok(());
        }
        running.process.signal(Signal::Term)?;
        let grace = pod.metadata.deletion_grace_period_seconds.and_then(|seconds| seconds.try_into().ok());
        let deadline = Instant::now() + Duration::from_secs(grace.unwrap_or(30));
        while running.process.exited().is_none() && Instant::now() < deadline {
            sleep(POLL_INTERVAL).await;
        }
        running.process.kill();
        Ok(())
    }
}
