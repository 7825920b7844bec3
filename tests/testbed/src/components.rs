//! Lifecycle of one control plane program: start on free ports, wait until it serves, stop, restart on the same
//! ports. Retries with other ports if a port was taken. `testbed/plans.rs` has the command lines.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use parking_lot::Mutex;

use crate::Signal;
use crate::ports::{self, PortReservation};
use crate::process::Process;
use crate::wait::eventually;

/// Time limit for a start. A cold page cache, parallel builds and 2 cores make starts slow.
const STARTS_WITHIN: Duration = Duration::from_mins(3);
const ENDS_WITHIN: Duration = Duration::from_secs(10);
/// Start attempts. A clash needs another program to take a port within a millisecond.
const ATTEMPTS: u32 = 5;

/// kwok 0.8.0 ends with this when its workers see their first nodes. It may start next time.
const CONCURRENT_WRITE: &str = "fatal error: concurrent map writes";

/// The programs a testbed runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Component {
    Etcd,
    Apiserver,
    ControllerManager,
    Scheduler,
    /// kwok simulates nodes and kubelets.
    Kwok,
    Prometheus,
}

impl Component {
    /// Name of the program and stem of its log file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::Apiserver => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Kwok => "kwok",
            Self::Prometheus => "prometheus",
        }
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How to detect that a program serves.
#[derive(Debug, Clone)]
pub(crate) enum Ready {
    /// The process runs. There is no endpoint to query.
    Runs,
    /// `GET` of this URL answers 2xx, with the bearer token and CA file if given.
    Answers { url: String, auth: Option<(String, PathBuf)> },
}

/// A command line with its probe, for given ports.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) args: Vec<String>,
    pub(crate) ready: Ready,
}

/// A started program.
pub(crate) struct RunningProgram {
    component: Component,
    program: PathBuf,
    log: PathBuf,
    plan: Plan,
    ports: Vec<u16>,
    state: Mutex<RunState>,
}

struct RunState {
    process: Arc<Process>,
    /// Ports reserved while the program is stopped, so that it finds them free again.
    held: Vec<PortReservation>,
}

impl RunningProgram {
    /// Starts the program on `ports` free ports and waits until it serves.
    pub(crate) async fn launch(
        component: Component,
        program: &Path,
        logs: &Path,
        ports: usize,
        plan: impl Fn(&[u16]) -> Plan,
    ) -> anyhow::Result<Self> {
        let log = logs.join(format!("{component}.log"));
        for attempt in 1.. {
            let held = (0..ports).map(|_| PortReservation::any()).collect::<anyhow::Result<Vec<_>>>()?;
            let numbers: Vec<u16> = held.iter().map(PortReservation::port).collect();
            let plan = plan(&numbers);
            held.into_iter().for_each(PortReservation::release);
            let process = Process::spawn(component.name(), program, &plan.args, &[], &log)?;
            match serves(&process, &plan.ready).await? {
                Ok(()) => {
                    let state = Mutex::new(RunState { process: Arc::new(process), held: Vec::new() });
                    return Ok(Self {
                        component,
                        program: program.to_owned(),
                        log,
                        plan,
                        ports: numbers,
                        state,
                    });
                }
                Err(_) if attempt < ATTEMPTS && may_start_next_time(&process.log()) => {}
                Err(status) => bail!("{component} ended while starting ({status})\n{}", process.evidence()),
            }
        }
        bail!("{component} ended while starting {ATTEMPTS} times in a row; see {}", log.display())
    }

    /// Ports in the order passed to the command line.
    pub(crate) fn port(&self, index: usize) -> u16 {
        self.ports.get(index).copied().unwrap_or_default()
    }

    pub(crate) fn process(&self) -> Arc<Process> {
        self.state.lock().process.clone()
    }

    /// Stops the program (SIGTERM, then SIGKILL) and reserves its ports: connections are refused until it restarts.
    pub(crate) async fn stop(&self) -> anyhow::Result<()> {
        let process = self.process();
        if process.exited().is_none() {
            // A frozen process handles SIGTERM only after SIGCONT.
            let asked = process.signal(Signal::Term).and_then(|()| process.signal(Signal::Cont));
            if asked.is_err() || process.wait_exit(ENDS_WITHIN).await.is_err() {
                process.kill();
            }
        }
        let what = format!("the ports of the stopped {}", self.component);
        let held = eventually(&what, ENDS_WITHIN, async || {
            self.ports.iter().map(|&port| PortReservation::exactly(port)).collect::<anyhow::Result<Vec<_>>>()
        })
        .await?;
        self.state.lock().held = held;
        Ok(())
    }

    /// Restarts the program with the same ports and data, after [`RunningProgram::stop`] or a crash, and waits until it
    /// serves.
    pub(crate) async fn start_again(&self) -> anyhow::Result<()> {
        if self.process().exited().is_none() {
            bail!("{} runs already: stop it first", self.component);
        }
        let process = {
            let mut state = self.state.lock();
            state.held.drain(..).for_each(PortReservation::release);
            state.process = Arc::new(Process::spawn(
                self.component.name(),
                &self.program,
                &self.plan.args,
                &[],
                &self.log,
            )?);
            state.process.clone()
        };
        match serves(&process, &self.plan.ready).await? {
            Ok(()) => Ok(()),
            Err(status) => {
                bail!("{} ended while starting again ({status})\n{}", self.component, process.evidence())
            }
        }
    }
}

fn may_start_next_time(log: &str) -> bool {
    ports::was_taken(log) || log.contains(CONCURRENT_WRITE)
}

/// Waits until the process serves or exits.
async fn serves(process: &Process, ready: &Ready) -> anyhow::Result<Result<(), ExitStatus>> {
    let what = format!("{} to serve", process.name());
    let seen = eventually(&what, STARTS_WITHIN, async || {
        if let Some(status) = process.exited() {
            return Ok(Err(status));
        }
        match ready {
            Ready::Runs => Ok(Ok(())),
            Ready::Answers { url, auth } => {
                let client = http_client(auth.as_ref().map(|(_, ca)| ca.as_path()))?;
                let request = client.get(url).timeout(Duration::from_secs(2));
                let request = match auth {
                    Some((token, _)) => request.bearer_auth(token),
                    None => request,
                };
                request.send().await?.error_for_status()?;
                Ok(Ok(()))
            }
        }
    });
    seen.await.with_context(|| process.evidence())
}

/// HTTP client for loopback: no proxy, trusts this CA only. Each use builds a new client, since connections belong to
/// the runtime of the test that opened them.
pub(crate) fn http_client(ca: Option<&Path>) -> anyhow::Result<reqwest::Client> {
    let mut builder = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(10));
    if let Some(path) = ca {
        let pem = std::fs::read(path).with_context(|| format!("cannot read the CA {}", path.display()))?;
        builder = builder.tls_certs_only([reqwest::Certificate::from_pem(&pem)?]);
    }
    builder.build().context("cannot make an HTTP client")
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    async fn launch(name: &str, plan: impl Fn(&[u16]) -> Plan) -> anyhow::Result<RunningProgram> {
        let logs = std::env::temp_dir().join(format!("wva-testbed-launch-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&logs);
        let launched = RunningProgram::launch(Component::Kwok, Path::new("sh"), &logs, 1, plan).await;
        std::fs::remove_dir_all(&logs)?;
        launched
    }

    fn plan(script: &str, url: String) -> Plan {
        Plan { args: vec!["-c".to_owned(), script.to_owned()], ready: Ready::Answers { url, auth: None } }
    }

    /// Launches a program that fails the first `deaths` times; returns the number of attempts.
    async fn attempts_after(name: &'static str, deaths: u32, script: &str) -> anyhow::Result<u32> {
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let serving = format!("http://{}", server.local_addr()?);
        let answers =
            tokio::spawn(async move { axum::serve(server, axum::Router::new().fallback(|| async {})).await });
        let closed = PortReservation::any()?;
        let attempts = Cell::new(0);
        let running = launch(name, |_| {
            attempts.set(attempts.get() + 1);
            if attempts.get() <= deaths {
                plan(script, format!("http://127.0.0.1:{}", closed.port()))
            } else {
                plan("exec sleep 60", serving.clone())
            }
        })
        .await?;
        assert_eq!(running.process().exited(), None);
        answers.abort();
        Ok(attempts.get())
    }

    #[tokio::test]
    async fn retries_with_other_port_if_port_is_taken() -> anyhow::Result<()> {
        let taken = "echo listen: bind: address already in use; exit 1";
        assert_eq!(attempts_after("clash", 2, taken).await?, 3);
        Ok(())
    }

    #[tokio::test]
    async fn retries_start_after_kwok_race() -> anyhow::Result<()> {
        let race = "echo fatal error: concurrent map writes; exit 2";
        assert_eq!(attempts_after("race", 1, race).await?, 2);
        Ok(())
    }

    #[tokio::test]
    async fn reports_other_exit_at_once_with_log() -> anyhow::Result<()> {
        let closed = PortReservation::any()?;
        let url = format!("http://127.0.0.1:{}", closed.port());
        let attempts = Cell::new(0);
        let launched = launch("death", |_| {
            attempts.set(attempts.get() + 1);
            plan("echo unknown flag: --sleek; exit 3", url.clone())
        })
        .await;
        let text = format!("{:#}", launched.err().context("it must not start")?);
        assert!(
            text.contains("kwok ended") && text.contains("--sleek") && text.contains("status: 3"),
            "{text}"
        );
        assert_eq!(attempts.get(), 1);
        Ok(())
    }
}
