//! Child process that cannot outlive this one. A few lines of `sh` start it and leave a watcher on a pipe held here.
//! The pipe closes when the process is dropped or this program dies, even by SIGKILL; then the watcher kills the
//! child's process group. It needs no unsafe code and no signal handler.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};

use crate::wait::eventually;

/// The shell execs the program, so that pid, signals and exit status are the program's. The watcher is a member of
/// the group it kills, so the system cannot reuse the group's number.
const WATCHDOG: &str = r#"exec 3<&0 </dev/null
( read -r _ <&3; kill -KILL -$$ ) &
exec "$@" 3<&-"#;

/// Bytes read from the end of a log.
const TAIL_BYTES: u64 = 1024 * 1024;

/// A running child process with its log. Drop it to kill it and its children.
#[derive(Debug)]
pub struct Process {
    name: String,
    pid: u32,
    log: PathBuf,
    log_begin: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    child: Child,
    lifeline: Option<ChildStdin>,
    exit: Option<ExitStatus>,
}

const PROXIES: [&str; 4] = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"];

impl Process {
    /// Starts `program` in its own process group, which a Ctrl-C in the terminal does not reach. `env` adds to this
    /// process's environment; both outputs are appended to the file `log`; `name` is for messages. A missing program
    /// exits with code 127 and a line in the log.
    pub fn spawn<A: AsRef<OsStr>>(
        name: &str,
        program: &Path,
        args: &[A],
        env: &[(&str, &str)],
        log: &Path,
    ) -> anyhow::Result<Self> {
        if let Some(folder) = log.parent() {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("cannot create the log folder {}", folder.display()))?;
        }
        let out = OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("cannot open the log {} of {name}", log.display()))?;
        let log_begin = out.metadata().map_or(0, |meta| meta.len());
        let err =
            out.try_clone().with_context(|| format!("cannot share the log {} of {name}", log.display()))?;
        let mut command = Command::new("sh");
        for proxy in PROXIES {
            // All traffic is on loopback; ignore the machine's proxy settings.
            command.env_remove(proxy).env_remove(proxy.to_lowercase());
        }
        let mut child = command
            .args(["-c", WATCHDOG, "watchdog"])
            .arg(program)
            .args(args)
            .envs(env.iter().copied())
            .stdin(Stdio::piped())
            .stdout(out)
            .stderr(err)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start sh as the watchdog of {name}"))?;
        let lifeline = child.stdin.take();
        Ok(Self {
            name: name.to_owned(),
            pid: child.id(),
            log: log.to_owned(),
            log_begin,
            state: Mutex::new(State { child, lifeline, exit: None }),
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// File with both outputs.
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// Output of this process, not of an earlier one with the same log; at most the last MiB.
    pub fn log(&self) -> String {
        let read = || -> std::io::Result<String> {
            let mut file = File::open(&self.log)?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(self.log_begin.max(length.saturating_sub(TAIL_BYTES))))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        read().unwrap_or_else(|error| format!("(the log {} cannot be read: {error})", self.log.display()))
    }

    /// Last `lines` lines of [`Process::log`].
    pub fn log_tail(&self, lines: usize) -> String {
        let log = self.log();
        let all: Vec<&str> = log.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// Exit status, including a signal, if it has ended.
    pub fn exited(&self) -> Option<ExitStatus> {
        let mut state = self.state.lock();
        if state.exit.is_none()
            && let Ok(Some(status)) = state.child.try_wait()
        {
            state.exit = Some(status);
            // Ends the watcher and remaining children.
            state.lifeline = None;
        }
        state.exit
    }

    /// Waits for the exit.
    pub async fn wait_exit(&self, deadline: Duration) -> anyhow::Result<ExitStatus> {
        eventually(&format!("{} (pid {}) to end", self.name, self.pid), deadline, async || {
            self.exited().context("it still runs")
        })
        .await
        .with_context(|| self.evidence())
    }

    /// Waits until a line of the log has all of these parts.
    pub async fn wait_logged(&self, deadline: Duration, parts: &[&str]) -> anyhow::Result<()> {
        eventually(&format!("{} to log {parts:?}", self.name), deadline, async || {
            let has_all = |line: &str| parts.iter().all(|part| line.contains(part));
            self.log().lines().any(has_all).then_some(()).context("it has not")
        })
        .await
        .with_context(|| self.evidence())
    }

    /// Sends a signal to the program.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        if let Some(status) = self.exited() {
            bail!("cannot send {signal:?} to {}: it has ended ({status})", self.name);
        }
        // The lock prevents reaping, which would free the process id before the signal is sent.
        let state = self.state.lock();
        kill_process(Pid::from_child(&state.child), signal)
            .with_context(|| format!("cannot send {signal:?} to {} (pid {})", self.name, self.pid))
    }

    /// Kills the process and its children, and reaps it.
    pub fn kill(&self) {
        let mut state = self.state.lock();
        if state.exit.is_none() {
            // An error means that it has just exited.
            let _ = state.child.kill();
            state.lifeline = None;
            state.exit = state.child.wait().ok();
        }
    }

    /// Context for error messages about this process.
    pub(crate) fn evidence(&self) -> String {
        let fate = match self.exited() {
            Some(status) => format!("ended: {status}"),
            None => format!("runs, pid {}", self.pid),
        };
        format!("{} {fate}; the end of {}:\n{}\n", self.name, self.log.display(), self.log_tail(15))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
