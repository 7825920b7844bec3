//! The program under test as a command, and the outcome of an experiment with it.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context as _, ensure};
use tokio::io::AsyncWriteExt as _;
use wva_testbed::{Testbed, within};

use super::DEADLINE;

/// Exit code and output of a command.
#[derive(Clone, Debug)]
pub(crate) struct ProgramOutput {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs `wva` with the kubeconfig of the administrator and this standard input.
pub(crate) async fn run_wva(testbed: &Testbed, args: &[&str], input: &str) -> anyhow::Result<ProgramOutput> {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_wva"));
    command.args(args).env("KUBECONFIG", testbed.admin_kubeconfig()).kill_on_drop(true);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut stdin = child.stdin.take().context("no standard input")?;
    // A program that does not read its input may have closed it.
    let _ = stdin.write_all(input.as_bytes()).await;
    drop(stdin);
    let out = within(&format!("wva {}", args.join(" ")), DEADLINE, child.wait_with_output()).await?;
    Ok(ProgramOutput {
        code: out.status.code().context("it was killed")?,
        stdout: String::from_utf8_lossy(&out.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&out.stderr).into_owned(),
    })
}

/// Outcome of an experiment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// Measured figures, for the log.
    pub(crate) figures: String,
    /// Contracts that did not hold.
    pub(crate) faults: Vec<String>,
}

impl Outcome {
    /// The figures, or an error with all faults.
    pub(crate) fn into_result(self) -> anyhow::Result<String> {
        ensure!(self.faults.is_empty(), "{}; {}", self.faults.join("; "), self.figures);
        Ok(self.figures)
    }
}

/// Whether experiments run in full: `FULL=1`, which the `make test-*` targets set.
pub(crate) fn is_full_run() -> bool {
    std::env::var_os("FULL").is_some_and(|full| full == "1")
}

/// The program wva, in a folder with the manager: `WVA_PROGRAMS`, such as that of a release build, or the debug
/// build of these tests.
pub(crate) fn program_path() -> PathBuf {
    let folder = std::env::var_os("WVA_PROGRAMS").map(PathBuf::from);
    folder.map_or_else(|| env!("CARGO_BIN_EXE_wva").into(), |folder| folder.join("wva"))
}
