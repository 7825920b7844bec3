//! `wva-testbed`: builds the programs of the test control plane, or starts one and keeps it until it is told to end.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};
use wva_testbed::{Options, Testbed, Tools};

/// A real Kubernetes control plane as plain processes on loopback.
#[derive(Parser)]
#[command(name = "wva-testbed")]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Builds the programs and prints where they are.
    Tools,
    /// Starts a control plane and keeps it until Ctrl-C or SIGTERM.
    Up {
        /// Cold start of a pod: from scheduled to ready, such as `30s` or `2m`.
        #[arg(long, default_value = "30s", value_parser = duration)]
        pod_start: Duration,
        /// Name of the log folder below target/testbed.
        #[arg(long, default_value = "up")]
        name: String,
        /// Leaves Prometheus out.
        #[arg(long)]
        no_prometheus: bool,
        /// Keeps the data folder at the end.
        #[arg(long)]
        keep: bool,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Task::Tools => tools(),
        Task::Up { pod_start, name, no_prometheus, keep } => {
            up(Options { name, pod_start, keep, with_prometheus: !no_prometheus, ..Options::default() }).await
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "wva-testbed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn tools() -> anyhow::Result<()> {
    for (name, path) in Tools::ready()?.all() {
        say(&format!("{name}={}", path.display()))?;
    }
    Ok(())
}

async fn up(options: Options) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let prometheus = options.with_prometheus;
    let testbed = tokio::select! {
        started = Testbed::start(options) => started?,
        _ = interrupt.recv() => return Ok(()),
        _ = terminate.recv() => return Ok(()),
    };
    for (component, pid) in testbed.pids() {
        say(&format!("{component}: pid {pid}"))?;
    }
    if prometheus {
        say(&format!("Prometheus: {}", testbed.prometheus_url()?))?;
    }
    say(&format!("logs: {}", testbed.logs().display()))?;
    say(&format!("export KUBECONFIG={}", testbed.admin_kubeconfig().display()))?;
    say("The control plane is up. Ctrl-C ends it.")?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    say("Ending.")
}

fn say(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("cannot write to standard output")
}

fn duration(text: &str) -> Result<Duration, String> {
    let signed: k8s_openapi::jiff::SignedDuration = text.parse().map_err(|error| format!("{error}"))?;
    Duration::try_from(signed).map_err(|error| format!("{error}"))
}
