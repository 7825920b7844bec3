//! A terminal session: commands with their output, printed as a transcript.

use std::process::Stdio;

use anyhow::{Context as _, ensure};
use tokio::io::AsyncBufReadExt as _;
use wva_testbed::{Testbed, eventually, within};

use crate::support::{DEADLINE, ProgramOutput, run_wva};

/// A terminal session.
pub(crate) struct Session<'a> {
    pub(crate) testbed: &'a Testbed,
    pub(crate) namespace: String,
}

impl Session<'_> {
    /// Runs `wva` with the administrator's kubeconfig, and prints it.
    pub(crate) async fn wva(&self, args: &[&str]) -> anyhow::Result<ProgramOutput> {
        self.wva_with(args, "").await
    }

    /// The same with this on its standard input.
    pub(crate) async fn wva_with(&self, args: &[&str], input: &str) -> anyhow::Result<ProgramOutput> {
        let run = run_wva(self.testbed, args, input).await?;
        show(args, &run);
        Ok(run)
    }

    /// Runs a command that prints repeatedly, until a line has come twice.
    pub(crate) async fn wait_for_repetition(&self, args: &[&str], line: &str) -> anyhow::Result<()> {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_wva"));
        let mut child = command
            .args(args)
            .env("KUBECONFIG", self.testbed.admin_kubeconfig())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let mut lines = tokio::io::BufReader::new(child.stdout.take().context("no output")?).lines();
        within(&format!("wva {} to print twice", args.join(" ")), DEADLINE, async {
            let mut seen = 0;
            while seen < 2 {
                let next = lines.next_line().await?.context("it ended")?;
                seen += usize::from(next.starts_with(line));
            }
            anyhow::Ok(())
        })
        .await
    }

    /// Runs a command until its outcome is `wanted`, and prints that outcome.
    pub(crate) async fn until(
        &self,
        what: &str,
        args: &[&str],
        wanted: impl Fn(&ProgramOutput) -> bool,
    ) -> anyhow::Result<ProgramOutput> {
        let run = eventually(&format!("{what} (wva {})", args.join(" ")), DEADLINE, async || {
            let run = run_wva(self.testbed, args, "").await?;
            ensure!(wanted(&run), "exit code {}\n{}{}", run.code, run.stdout, run.stderr);
            Ok(run)
        })
        .await?;
        show(args, &run);
        Ok(run)
    }

    /// Runs kubectl, and prints it.
    pub(crate) async fn kubectl(&self, args: &[&str]) -> anyhow::Result<()> {
        self.kubectl_with(args, "").await
    }

    /// The same with this on its standard input.
    pub(crate) async fn kubectl_with(&self, args: &[&str], input: &str) -> anyhow::Result<()> {
        let out = self.testbed.kubectl_with(args, input).await?.success()?;
        println!("$ kubectl {}\n{}", args.join(" "), out.trim_end());
        Ok(())
    }

    /// Waits until Prometheus has no series of a publisher.
    pub(crate) async fn wait_until_no_series(&self, pod: &str) -> anyhow::Result<()> {
        let query = format!("{{__name__=~\"(wva|inferno)_desired_replicas\",pod=\"{pod}\"}}");
        eventually(&format!("the series of {pod} to go"), DEADLINE, async || {
            let series = self.testbed.prometheus_query(&query).await?;
            ensure!(series.is_empty(), "{series:?}");
            Ok(())
        })
        .await?;
        println!("# Prometheus has no series of pod {pod} any more");
        Ok(())
    }
}

fn show(args: &[&str], run: &ProgramOutput) {
    println!("$ wva {}", args.join(" "));
    for line in run.stdout.lines().chain(run.stderr.lines()) {
        println!("{line}");
    }
    if run.code != 0 {
        println!("(exit code {})", run.code);
    }
}

/// Prints a heading.
pub(crate) fn step(what: &str) {
    println!("\n== {what}");
}
