//! Output of the demo: numbered steps with times, commands with output, and a line for each change during a wait.

use std::path::Path;
use std::time::{Duration, Instant};

use wva_testbed::{Options, Testbed, eventually, run};

use crate::command::print_line;
use crate::variants::{VariantState, variants};

/// Time limit of a wait. Most take seconds, a scale-down a minute (see step 8).
pub(super) const WAIT_LIMIT: Duration = Duration::from_secs(150);

/// Output of the demo, and its control plane.
pub(super) struct Stage {
    pub(super) testbed: Testbed,
    began: Instant,
    step_began: Instant,
    /// Steps so far.
    steps: Vec<Step>,
}

struct Step {
    title: String,
    took: Duration,
}

impl Step {
    fn new(title: &str) -> Self {
        Self { title: title.to_owned(), took: Duration::ZERO }
    }
}

impl Stage {
    /// Starts the control plane, as the first step.
    pub(super) async fn start(about: &str, options: Options) -> anyhow::Result<Self> {
        let (began, first) = (Instant::now(), "A control plane");
        print_line(&format!("\n== 1. {first}\n{about}"))?;
        let testbed = Testbed::start(options).await?;
        Ok(Self { testbed, began, step_began: began, steps: vec![Step::new(first)] })
    }

    /// Begins a step.
    pub(super) fn step(&mut self, title: &str, about: &str) -> anyhow::Result<()> {
        self.close();
        self.steps.push(Step::new(title));
        print_line(&format!("\n== {}. {title}\n{about}", self.steps.len()))
    }

    fn close(&mut self) {
        if let Some(last) = self.steps.last_mut() {
            last.took = self.step_began.elapsed();
        }
        self.step_began = Instant::now();
    }

    /// Ends the last step and prints the duration of each.
    pub(super) fn end(&mut self) -> anyhow::Result<()> {
        self.close();
        print_line("\n== All steps completed and were checked")?;
        for (i, Step { title, took }) in self.steps.iter().enumerate() {
            print_line(&format!("{:>5} s  {}. {title}", took.as_secs(), i + 1))?;
        }
        print_line(&format!("{:>5} s  in all", self.began.elapsed().as_secs()))
    }

    /// Indents the output of a command.
    pub(super) fn print(text: &str) -> anyhow::Result<()> {
        text.trim_end().lines().try_for_each(|line| print_line(&format!("    {line}")))
    }

    /// Prints the input of a command.
    pub(super) fn print_input(text: &str) -> anyhow::Result<()> {
        print_line("  $ kubectl apply -f - <<EOF")?;
        Self::print(text)?;
        print_line("  EOF")
    }

    /// Runs kubectl and prints its output.
    pub(super) async fn kubectl(&self, args: &[&str]) -> anyhow::Result<()> {
        print_line(&format!("  $ kubectl {}", args.join(" ")))?;
        Self::print(&self.testbed.kubectl(args).await?.success()?)
    }

    /// Applies objects and prints the API server's answer, including warnings.
    pub(super) async fn apply(&self, yaml: &str) -> anyhow::Result<()> {
        let ran = self.testbed.kubectl_with(&["apply", "-f", "-"], yaml).await?;
        Self::print(&ran.stderr)?;
        Self::print(&ran.success()?)
    }

    /// Runs a command and prints its output.
    pub(super) async fn command(program: &Path, args: &[&str]) -> anyhow::Result<String> {
        print_line(&format!("  $ wva {}", args.join(" ")))?;
        let mut command = tokio::process::Command::new(program);
        command.args(args);
        let text = run("wva", command, "", Duration::from_secs(30)).await?.success()?;
        Self::print(&text)?;
        Ok(text)
    }

    /// Waits for a condition on the variants and prints each change.
    pub(super) async fn follow(
        &self,
        what: &str,
        mut holds: impl AsyncFnMut(&[VariantState]) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut last: Vec<VariantState> = Vec::new();
        eventually(what, WAIT_LIMIT, async || {
            let now = variants(&self.testbed, "demo").await?;
            for seen in &now {
                let before = last.iter().find(|l| l.name == seen.name);
                if before.is_none_or(|b| {
                    (b.target, b.replicas, b.ready) != (seen.target, seen.replicas, seen.ready)
                }) {
                    let target = seen.target.map_or("-".to_owned(), |t| t.to_string());
                    print_line(&format!(
                        "  {:>4} s  {}: target {target}, replicas {}, ready {}  {}",
                        self.began.elapsed().as_secs(),
                        seen.name,
                        seen.replicas,
                        seen.ready,
                        seen.condition("OptimizationReady", "message")
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
