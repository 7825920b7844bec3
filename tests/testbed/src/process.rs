//! A child process that cannot outlive this one. It is started through a few lines of `sh` that leave a watcher on
//! a pipe held here: when the pipe closes, because the process is dropped or this program died even by SIGKILL, the
//! watcher kills the child's whole process group. No unsafe code and no signal handler is needed for it.

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

/// The shell becomes the program by `exec`, so that pid, signals and exit status are the program's own. The watcher
/// is a member of the group it kills, which keeps the group's number from being given to anybody else.
const WATCHDOG: &str = r#"exec 3<&0 </dev/null
( read -r _ <&3; kill -KILL -$$ ) &
exec "$@" 3<&-"#;

/// Bytes at the end of a log that are read.
const TAIL_BYTES: u64 = 1024 * 1024;

/// A running child process with its log. Dropping it kills it and everything it started.
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
    /// Starts `program` in a process group of its own (a Ctrl-C in the terminal does not reach it), with `env` added
    /// to this process's environment and both outputs appended to the file `log`. `name` is for messages. A program that
    /// does not exist ends with code 127 and a line in the log.
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
            // Everything here talks over loopback; a proxy of the machine's owner would be asked for it.
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

    /// The file with both outputs.
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// Everything this process (not an earlier one with the same log) wrote so far, at most the last MiB.
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

    /// The last `lines` lines of [`Process::log`].
    pub fn log_tail(&self, lines: usize) -> String {
        let log = self.log();
        let all: Vec<&str> = log.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// Its exit status if it has ended. Signals that ended it are in it too.
    pub fn exited(&self) -> Option<ExitStatus> {
        let mut state = self.state.lock();
        if state.exit.is_none()
            && let Ok(Some(status)) = state.child.try_wait()
        {
            state.exit = Some(status);
            // Ends the watcher, and whatever the program left behind.
            state.lifeline = None;
        }
        state.exit
    }

    /// Waits until it has ended.
    pub async fn wait_exit(&self, deadline: Duration) -> anyhow::Result<ExitStatus> {
        eventually(&format!("{} (pid {}) to end", self.name, self.pid), deadline, async || {
            self.exited().context("it still runs")
        })
        .await
        .with_context(|| self.evidence())
    }

    /// Sends a signal to the program.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        if let Some(status) = self.exited() {
            bail!("cannot send {signal:?} to {}: it has ended ({status})", self.name);
        }
        // The lock is kept so that the child is not reaped, which would free its number, before the signal is sent.
        let state = self.state.lock();
        kill_process(Pid::from_child(&state.child), signal)
            .with_context(|| format!("cannot send {signal:?} to {} (pid {})", self.name, self.pid))
    }

    /// Kills it and everything it started, and reaps it.
    pub fn kill(&self) {
        let mut state = self.state.lock();
        if state.exit.is_none() {
            // An error means that it has just ended by itself.
            let _ = state.child.kill();
            state.lifeline = None;
            state.exit = state.child.wait().ok();
        }
    }

    /// What to show when something about this process went wrong.
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
