//! A terminal session: commands with their output, printed as a transcript.

use anyhow::ensure;
use wva_testbed::{Testbed, eventually};

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
