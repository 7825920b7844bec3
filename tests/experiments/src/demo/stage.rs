//! How the demo talks: numbered steps with their times, commands with their output, and a line for each change while
//! something is awaited.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::Value;
use wva_testbed::{Testbed, eventually};

/// The demo's output.
pub(crate) struct Stage {
    out: std::io::Stdout,
    began: Instant,
    step: u32,
    step_began: Instant,
    times: Vec<(String, Duration)>,
}

/// One variant as the API server shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) name: String,
    pub(crate) target: Option<u64>,
    pub(crate) replicas: u64,
    pub(crate) ready: u64,
    pub(crate) metrics: String,
    why: String,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self { out: std::io::stdout(), began: now, step: 0, step_began: now, times: Vec::new() }
    }

    /// Begins a step.
    pub(crate) fn step(&mut self, title: &str, about: &str) -> anyhow::Result<()> {
        self.close();
        self.step += 1;
        self.times.push((title.to_owned(), Duration::ZERO));
        self.say(&format!("\n== {}. {title}\n{about}", self.step))
    }

    fn close(&mut self) {
        if let Some(last) = self.times.last_mut() {
            last.1 = self.step_began.elapsed();
        }
        self.step_began = Instant::now();
    }

    /// Ends the last step and says how long each took.
    pub(crate) fn end(&mut self) -> anyhow::Result<()> {
        self.close();
        self.say("\n== Every step happened and was checked")?;
        for (i, (title, took)) in std::mem::take(&mut self.times).iter().enumerate() {
            self.say(&format!("{:>5} s  {}. {title}", took.as_secs(), i + 1))?;
        }
        self.say(&format!("{:>5} s  in all", self.began.elapsed().as_secs()))
    }

    /// One line, at once.
    pub(crate) fn say(&mut self, line: &str) -> anyhow::Result<()> {
        writeln!(self.out, "{line}")
            .and_then(|()| self.out.flush())
            .context("cannot write to standard output")
    }

    /// Output of a command, indented.
    pub(crate) fn print(&mut self, text: &str) -> anyhow::Result<()> {
        text.trim_end().lines().try_for_each(|line| self.say(&format!("    {line}")))
    }

    /// What a command reads.
    pub(crate) fn print_input(&mut self, text: &str) -> anyhow::Result<()> {
        self.say("  $ kubectl apply -f - <<EOF")?;
        self.print(text)?;
        self.say("  EOF")
    }

    /// Runs kubectl and shows its output.
    pub(crate) async fn kubectl(&mut self, testbed: &Testbed, args: &[&str]) -> anyhow::Result<()> {
        self.say(&format!("  $ kubectl {}", args.join(" ")))?;
        self.print(&testbed.kubectl(args).await?.success()?)
    }

    /// Applies objects and shows what the API server says of them, warnings included.
    pub(crate) async fn apply(&mut self, testbed: &Testbed, yaml: &str) -> anyhow::Result<()> {
        let ran = testbed.kubectl_with(&["apply", "-f", "-"], yaml).await?;
        self.print(&ran.stderr)?;
        self.print(&ran.success()?)
    }

    /// Runs a command and shows its output.
    pub(crate) async fn command(&mut self, program: &Path, args: &[&str]) -> anyhow::Result<String> {
        self.say(&format!("  $ wva {}", args.join(" ")))?;
        let out = tokio::time::timeout(
            Duration::from_secs(30),
            tokio::process::Command::new(program).args(args).kill_on_drop(true).output(),
        )
        .await
        .with_context(|| format!("wva {} did not end within 30 s", args.join(" ")))??;
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        self.print(&text)?;
        anyhow::ensure!(out.status.success(), "it failed: {}", String::from_utf8_lossy(&out.stderr));
        Ok(text)
    }

    /// Waits for a condition on the variants and says each change on the way.
    pub(crate) async fn follow(
        &mut self,
        testbed: &Testbed,
        deadline: Duration,
        what: &str,
        mut holds: impl AsyncFnMut(&[Seen]) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut last: Vec<Seen> = Vec::new();
        eventually(what, deadline, async || {
            let now = look(testbed).await?;
            for seen in &now {
                let before = last.iter().find(|l| l.name == seen.name);
                if before.is_none_or(|b| {
                    (b.target, b.replicas, b.ready) != (seen.target, seen.replicas, seen.ready)
                }) {
                    let target = seen.target.map_or("-".to_owned(), |t| t.to_string());
                    self.say(&format!(
                        "  {:>4} s  {}: target {target}, replicas {}, ready {}  {}",
                        self.began.elapsed().as_secs(),
                        seen.name,
                        seen.replicas,
                        seen.ready,
                        seen.why
                    ))?;
                }
            }
            let outcome = holds(&now).await;
            last = now;
            outcome
        })
        .await
    }
}

/// The variants of the demo and their Deployments, from the API server.
async fn look(testbed: &Testbed) -> anyhow::Result<Vec<Seen>> {
    let json = testbed.kubectl(&["get", "va,deploy", "-n", "demo", "-o", "json"]).await?.success()?;
    let list: Value = serde_json::from_str(&json)?;
    let items = list["items"].as_array().context("no items")?;
    let deployments: Vec<_> = items.iter().filter(|i| i["kind"] == "Deployment").collect();
    let variants = items.iter().filter(|i| i["kind"] == "VariantAutoscaling");
    Ok(variants
        .map(|v| {
            let name = v["metadata"]["name"].as_str().unwrap_or_default();
            let deployment = deployments.iter().find(|d| d["metadata"]["name"] == name);
            let number =
                |path: &str| deployment.and_then(|d| d.pointer(path)).and_then(Value::as_u64).unwrap_or(0);
            let conditions = v.pointer("/status/conditions").and_then(Value::as_array);
            let condition = |kind: &str, field: &str| {
                let found = conditions.and_then(|c| c.iter().find(|c| c["type"] == kind));
                found.and_then(|c| c[field].as_str()).unwrap_or_default().to_owned()
            };
            Seen {
                name: name.to_owned(),
                target: v.pointer("/status/desiredOptimizedAlloc/numReplicas").and_then(Value::as_u64),
                replicas: number("/spec/replicas"),
                ready: number("/status/readyReplicas"),
                metrics: condition("MetricsAvailable", "status"),
                why: condition("OptimizationReady", "message"),
            }
        })
        .collect())
}
