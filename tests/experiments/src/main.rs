//! `wva-experiments`: shows the demo on the control plane of the testbed, or measures the program on it.

mod bench;
mod command;
mod demo;
mod faults;
mod from_zero;
mod outages;
mod side_by_side;
mod throughput;
mod zero;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};
use wva_testbed::{Options, Testbed, Tools};

use self::command::{duration, say, until_signal};

/// The demo and the experiments, on a real control plane of plain processes.
#[derive(Parser)]
#[command(name = "wva-experiments")]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Builds the programs of the control plane and prints where they are.
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
    /// Shows the main job of wva step by step, checks every step, and ends.
    Demo {
        /// The program to show.
        #[arg(long, default_value = "target/debug/wva")]
        wva: PathBuf,
        /// Cold start of a pod: from scheduled to ready.
        #[arg(long, default_value = "30s", value_parser = duration)]
        pod_start: Duration,
        /// Leaves everything running after the last step, until Ctrl-C.
        #[arg(long)]
        keep: bool,
    },
    /// Measures the memory of an idle wva with 10 variants.
    Bench {
        /// The program to measure: a release build.
        #[arg(long, default_value = "target/release/wva")]
        wva: PathBuf,
    },
    /// Measures an idle wva with 1,000 variants: its start, what it asks the API server for, and its memory.
    BenchIdle {
        /// The program to measure: a release build.
        #[arg(long, default_value = "target/release/wva")]
        wva: PathBuf,
        /// How long it idles.
        #[arg(long, default_value = "10m", value_parser = duration)]
        lasts: Duration,
    },
    /// Measures reviews under load with 1,000 variants stored, and what the webhooks cost a create.
    BenchAdmission {
        /// The program to measure: a release build.
        #[arg(long, default_value = "target/release/wva")]
        wva: PathBuf,
        /// Where `cargo bench -p wva-rules` left its figures.
        #[arg(long, default_value = "target/criterion")]
        criterion: PathBuf,
        /// Folder for the report.
        #[arg(long, default_value = "target/bench")]
        folder: PathBuf,
    },
    /// Measures rounds of queries and cycles with 1,000 models and 4,000 pods.
    BenchCycle {
        /// The program to measure: a release build.
        #[arg(long, default_value = "target/release/wva")]
        wva: PathBuf,
        /// Folder for the report.
        #[arg(long, default_value = "target/bench")]
        folder: PathBuf,
    },
    /// Throws bad input at the admission port while valid reviews come in, and judges how it is borne.
    Faults {
        /// The program to test: a release build.
        #[arg(long, default_value = "target/release/wva")]
        wva: PathBuf,
        /// Only the kinds of bad input whose names hold this.
        #[arg(long)]
        only: Option<String>,
    },
    /// Outages of Prometheus while the load falls: nothing may be scaled down, and all has to go on afterwards.
    Outages {
        /// The program to test: a release build.
        #[arg(long, default_value = "target/release/wva")]
        wva: PathBuf,
        /// How long each outage lasts.
        #[arg(long, default_value = "3m", value_parser = duration)]
        lasts: Duration,
        /// Only those whose names hold this.
        #[arg(long)]
        only: Option<String>,
    },
    /// Two controllers with an instance and one without, while variants move between them.
    SideBySide {
        /// The program to test.
        #[arg(long, default_value = "target/debug/wva")]
        wva: PathBuf,
        /// How long they move.
        #[arg(long, default_value = "10m", value_parser = duration)]
        lasts: Duration,
    },
    /// Idle models go to zero and back, with requests at random moments and an outage of Prometheus.
    Zero {
        /// The program to test.
        #[arg(long, default_value = "target/debug/wva")]
        wva: PathBuf,
        /// Turns to zero and back.
        #[arg(long, default_value_t = 200)]
        turns: usize,
        /// How long Prometheus is down, and after it the endpoint pickers.
        #[arg(long, default_value = "5m", value_parser = duration)]
        outage: Duration,
        /// How often a leader dies between a signal and its step, up and down each, and how often leaders change in all.
        #[arg(long, default_value_t = 50)]
        killed: usize,
        /// Where the random moments begin.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Only those of `turns`, `prometheus`, `pickers` and `killed` whose names hold this.
        #[arg(long)]
        only: Option<String>,
    },
    /// Hundreds of models woken from zero, and what it costs to watch a hundred.
    FromZero {
        /// The program to test: a release build.
        #[arg(long, default_value = "target/release/wva")]
        wva: PathBuf,
    },
    /// The throughput analyzer under load that comes in steps, held against an emulated engine that is known.
    Throughput {
        /// The program to test.
        #[arg(long, default_value = "target/debug/wva")]
        wva: PathBuf,
        /// How long all steps take together.
        #[arg(long, default_value = "60m", value_parser = duration)]
        lasts: Duration,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Task::Tools => tools(),
        Task::Up { pod_start, name, no_prometheus, keep } => {
            up(Options { name, pod_start, keep, with_prometheus: !no_prometheus, ..Options::default() }).await
        }
        Task::Demo { wva, pod_start, keep } => Box::pin(demo(demo::Demo { wva, pod_start }, keep)).await,
        Task::Bench { wva } => Box::pin(until_signal(bench::idle::run(&wva))).await.map(|_| ()),
        Task::BenchIdle { wva, lasts } => {
            Box::pin(until_signal(bench::idle_fleet::run(&wva, lasts))).await.map(|_| ())
        }
        Task::BenchAdmission { wva, criterion, folder } => {
            let plan = bench::admission::Plan { wva, criterion, folder };
            Box::pin(until_signal(bench::admission::run(&plan))).await.map(|_| ())
        }
        Task::BenchCycle { wva, folder } => {
            Box::pin(until_signal(bench::cycle::run(&wva, &folder))).await.map(|_| ())
        }
        Task::Faults { wva, only } => {
            Box::pin(until_signal(faults::run(&wva, only.as_deref()))).await.map(|_| ())
        }
        Task::Outages { wva, lasts, only } => {
            Box::pin(until_signal(outages::run(&wva, lasts, only.as_deref()))).await.map(|_| ())
        }
        Task::SideBySide { wva, lasts } => {
            Box::pin(until_signal(side_by_side::run(&wva, lasts))).await.map(|_| ())
        }
        Task::Zero { wva, turns, outage, killed, seed, only } => {
            let plan = zero::Plan { wva: &wva, turns, outage, killed, seed, only: only.as_deref() };
            Box::pin(until_signal(zero::run(&plan))).await.map(|_| ())
        }
        Task::FromZero { wva } => Box::pin(until_signal(from_zero::run(&wva))).await.map(|_| ()),
        Task::Throughput { wva, lasts } => {
            Box::pin(until_signal(throughput::run(&wva, lasts))).await.map(|_| ())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "wva-experiments: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn demo(demo: demo::Demo, keep: bool) -> anyhow::Result<()> {
    let Some((testbed, install, fleet)) = Box::pin(until_signal(demo.run())).await? else { return Ok(()) };
    if keep {
        say("\nEverything is left running, at rest. In another terminal:")?;
        say(&format!("  export KUBECONFIG={}", testbed.admin_kubeconfig().display()))?;
        say(&format!("  alias kubectl={}", testbed.tools().path("kubectl")?.display()))?;
        say(&format!("  Prometheus: {}", testbed.prometheus_url()?))?;
        say(&format!("  metrics:    http://{}/metrics", install.address("metrics")?))?;
        say(&format!("  explain:    wva explain --address {}", install.address("debug")?))?;
        say("Ctrl-C ends it.")?;
        until_signal(std::future::pending::<anyhow::Result<()>>()).await?;
    }
    drop((fleet, install, testbed));
    Ok(())
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
