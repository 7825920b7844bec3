//! A person's terminal: commands with their output, printed as a transcript.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _};
use wva_testbed::{Testbed, eventually, within};

/// Longest wait for what has to happen: seconds usually, with room for a loaded machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(90);

/// What a command did.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The terminal.
pub(crate) struct Session<'a> {
    pub(crate) testbed: &'a Testbed,
    pub(crate) namespace: String,
}

impl Session<'_> {
    /// Begins a part of the transcript.
    #[expect(clippy::unused_self, reason = "it reads as what the session does")]
    pub(crate) fn step(&self, what: &str) {
        println!("\n== {what}");
    }

    /// Runs `wva` with the administrator's kubeconfig, and prints it.
    pub(crate) async fn wva(&self, args: &[&str]) -> anyhow::Result<Run> {
        self.wva_with(args, "").await
    }

    /// The same with this on its standard input.
    pub(crate) async fn wva_with(&self, args: &[&str], input: &str) -> anyhow::Result<Run> {
        let run = self.quietly(args, input).await?;
        show(args, &run);
        Ok(run)
    }

    /// The same without a word of it in the transcript.
    pub(crate) async fn quietly(&self, args: &[&str], input: &str) -> anyhow::Result<Run> {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_wva"));
        let mut child = command
            .args(args)
            .env("KUBECONFIG", self.testbed.admin_kubeconfig())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let mut stdin = child.stdin.take().context("no standard input")?;
        // A program that does not read its input may have closed it.
        let _ = stdin.write_all(input.as_bytes()).await;
        drop(stdin);
        let out =
            within("a command", DEADLINE, async { anyhow::Ok(child.wait_with_output().await?) }).await?;
        Ok(Run {
            code: out.status.code().context("it was killed")?,
            stdout: String::from_utf8_lossy(&out.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&out.stderr).into_owned(),
        })
    }

    /// Follows a command that prints again and again, until a line has come twice.
    pub(crate) async fn twice(&self, args: &[&str], line: &str) -> anyhow::Result<()> {
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

    /// Runs a command until its outcome is what is waited for, and prints that one.
    pub(crate) async fn until(
        &self,
        command: &str,
        what: &str,
        args: &[&str],
        wanted: impl Fn(&Run) -> bool,
    ) -> anyhow::Result<Run> {
        let run = eventually(&format!("{what} ({command})"), DEADLINE, async || {
            let run = self.quietly(args, "").await?;
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

    /// What the HPA of a variant is told.
    pub(crate) async fn external(&self, variant: &str) -> anyhow::Result<Vec<String>> {
        let path = format!(
            "/apis/external.metrics.k8s.io/v1beta1/namespaces/{}/wva_desired_replicas?labelSelector=variant_name%3D{variant}",
            self.namespace
        );
        let list: Value =
            serde_json::from_str(&self.testbed.kubectl(&["get", "--raw", &path]).await?.success()?)?;
        let items = list["items"].as_array().context("no items")?;
        Ok(items.iter().filter_map(|item| item["value"].as_str().map(str::to_owned)).collect())
    }

    /// Waits until Prometheus has no target of a publisher any more.
    pub(crate) async fn until_no_series(&self, pod: &str) -> anyhow::Result<()> {
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

fn show(args: &[&str], run: &Run) {
    println!("$ wva {}", args.join(" "));
    for line in run.stdout.lines().chain(run.stderr.lines()) {
        println!("{line}");
    }
    if run.code != 0 {
        println!("(exit code {})", run.code);
    }
}
