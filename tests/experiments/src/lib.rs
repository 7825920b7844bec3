//! Runs the demo or measures the program, on the control plane of the testbed. This is a library because a library compiles
//! while those below it still generate code, and a program waits for them.

mod backtest;
mod bench;
mod command;
mod consumers;
mod demo;
mod engines;
mod faults;
mod from_zero;
mod history;
mod learned;
mod outages;
mod reaction;
mod replay;
mod report;
mod scale_down;
mod side_by_side;
mod soak;
mod throughput;
mod usage;
mod variants;
mod vegeta;
mod zero;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::ensure;
use clap::{Parser, Subcommand};
use futures::future::LocalBoxFuture;
use wva_testbed::programs::manager;
use wva_testbed::{Options, Testbed, Tools};

use self::command::{duration, print_line, until_signal};

/// Demo and experiments on a real control plane of plain processes
#[derive(Parser)]
#[command(name = "wva-experiments")]
struct Cli {
    /// Folder of the programs manager and wva; use a release build for measurements
    #[arg(long, global = true, default_value = "target/release")]
    programs: PathBuf,
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Builds the programs of the control plane and prints their paths
    Tools,
    /// Starts a control plane and keeps it until Ctrl-C or SIGTERM
    Up {
        /// Cold start of a pod: from scheduled to ready, such as `30s` or `2m`.
        #[arg(long, default_value = "30s", value_parser = duration)]
        pod_start: Duration,
        /// Name of the log folder below target/testbed.
        #[arg(long, default_value = "up")]
        name: String,
        /// Starts no Prometheus
        #[arg(long)]
        no_prometheus: bool,
        /// Keeps the data folder at the end
        #[arg(long)]
        keep: bool,
    },
    /// Shows the main use case of wva step by step, checks every step, and ends
    Demo {
        /// Cold start of a pod: from scheduled to ready
        #[arg(long, default_value = "30s", value_parser = duration)]
        pod_start: Duration,
        /// Keeps everything running after the last step, until Ctrl-C
        #[arg(long)]
        keep: bool,
        /// Folder for the recording and its report
        #[arg(long, default_value = "target/demo")]
        folder: PathBuf,
    },
    /// Fills a real Prometheus with recorded traffic as simulated fleets served it, and compares `wva backtest` with the truth
    BenchBacktest {
        /// Only the scenarios whose names contain this
        #[arg(long)]
        only: Option<String>,
        /// Policy of the scenarios that ran, in place of the HPA
        #[arg(long, conflicts_with_all = ["week", "parts"])]
        ran: Option<String>,
        /// A week of 20 models in place of the traces: time, queries, samples and memory
        #[arg(long)]
        week: bool,
        /// Without a Prometheus: the true parts in place of the reconstructed ones, one at a time
        #[arg(long, conflicts_with = "week")]
        parts: bool,
        /// Folder for the data and the answers
        #[arg(long, default_value = "target/backtest")]
        folder: PathBuf,
    },
    /// Measures the memory of an idle wva with 10 variants.
    Bench,
    /// Measures an idle wva with 1,000 variants: start, API requests, and memory
    BenchIdle {
        /// Duration of the idle phase
        #[arg(long, default_value = "10m", value_parser = duration)]
        lasts: Duration,
    },
    /// Measures reviews under load with 1,000 variants stored, and the webhooks' cost for a create
    BenchAdmission {
        /// Folder with the figures of `cargo bench -p wva-rules`
        #[arg(long, default_value = "target/criterion")]
        criterion: PathBuf,
        /// Folder for the report.
        #[arg(long, default_value = "target/bench")]
        folder: PathBuf,
    },
    /// Measures query rounds and cycles with 1,000 models and 4,000 pods
    BenchCycle {
        /// Namespaces of the models; a divisor of their number.
        #[arg(long, default_value_t = bench::NAMESPACES)]
        namespaces: usize,
        /// Models, one variant each.
        #[arg(long, default_value_t = bench::VARIANTS)]
        models: usize,
        /// Pods of each model.
        #[arg(long, default_value_t = 4)]
        replicas: usize,
        /// Folder for the report.
        #[arg(long, default_value = "target/bench")]
        folder: PathBuf,
    },
    /// Prints the table and the plot of the sizes that bench-cycle has measured
    Sizes {
        /// Folder of its reports
        #[arg(long, default_value = "target/bench")]
        folder: PathBuf,
    },
    /// Measures what large objects and hostile pages of tenants cost
    BenchTenants,
    /// Sends invalid input to the admission port during valid reviews, and checks the effect
    Faults {
        /// Only the kinds of input whose names contain this
        #[arg(long)]
        only: Option<String>,
    },
    /// Faults of Prometheus, pods, the API server, etcd, clocks and replicas under load, with a live HPA: nothing may scale
    /// down wrongly, and scaling must resume afterwards
    Outages {
        /// Duration of each fault
        #[arg(long, default_value = "3m", value_parser = duration)]
        lasts: Duration,
        /// Only the faults whose names contain this; may be repeated
        #[arg(long)]
        only: Vec<String>,
    },
    /// An hour of churn, faults and failovers over 300 variants: memory, descriptors, threads and series must stay flat
    Soak(soak::Plan),
    /// Fifty steps of the load: how long each leg takes, from the servers to a ready replica
    Reaction {
        /// Scrape interval of Prometheus
        #[arg(long, default_value = "15s", value_parser = duration)]
        scrape: Duration,
    },
    /// Replays recorded traffic in real time, and compares it with the simulator
    Replay {
        /// Scenarios with a trace, one variant and a policy `throughput`
        #[arg(required = true)]
        scenarios: Vec<PathBuf>,
        /// Only this much of each trace
        #[arg(long, default_value = "1h", value_parser = duration)]
        lasts: Duration,
        /// Percentage of the requests to keep within the objectives of the scenario, stated as `sloTarget`
        #[arg(long)]
        slo_target: Option<f64>,
    },
    /// Three controllers, two of them with an instance, while variants move between them
    SideBySide {
        /// Duration of the moves
        #[arg(long, default_value = "10m", value_parser = duration)]
        lasts: Duration,
    },
    /// Scales idle models to zero and back, with requests at random moments, outages and killed leaders
    Zero(zero::Plan),
    /// Scales busy models down where one replica is idle, and counts the requests that removed pods had
    ScaleDown(scale_down::Plan),
    /// Wakes hundreds of models from zero, and measures the cost of watching a hundred
    FromZero,
    /// Runs KEDA, cert-manager and the Prometheus operator as plain processes against what wva publishes
    Consumers {
        /// Only the consumers whose names contain this: `keda`, `cert-manager`, `prometheus-operator`
        #[arg(long)]
        only: Option<String>,
    },
    /// Real vLLM servers on the CPU under Poisson load: signals, arrivals, learned capacity, targets
    Engines {
        /// Folder that tests/engines/install.sh has filled
        #[arg(long, default_value = "target/engines")]
        folder: PathBuf,
    },
    /// Compares the throughput analyzer with a known emulated engine, under load that changes in steps
    Throughput {
        /// Total duration of all steps
        #[arg(long, default_value = "60m", value_parser = duration)]
        lasts: Duration,
    },
}

/// Runs the task of the command line.
pub async fn run() -> ExitCode {
    let Cli { programs, command } = Cli::parse();
    let wva = programs.join("wva");
    // A command that runs until a signal succeeds when one arrives.
    let stays = matches!(command, Task::Up { .. } | Task::Demo { keep: true, .. });
    let done = until_signal(command.run(&wva)).await.and_then(|ended| {
        ensure!(ended || stays, "interrupted");
        Ok(())
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "wva-experiments: {error:#}");
            ExitCode::FAILURE
        }
    }
}

impl Task {
    async fn run(self, wva: &Path) -> anyhow::Result<()> {
        let needs_none =
            matches!(self, Self::Tools | Self::Up { .. } | Self::Sizes { .. } | Self::BenchBacktest { .. });
        let manager = manager(wva);
        ensure!(needs_none || manager.exists(), "{} does not exist; build it first", manager.display());
        let work: LocalBoxFuture<'_, anyhow::Result<()>> = match &self {
            Self::Tools => Box::pin(std::future::ready(tools())),
            Self::Up { pod_start, name, no_prometheus, keep } => Box::pin(up(Options {
                name: name.clone(),
                pod_start: *pod_start,
                keep: *keep,
                with_prometheus: !no_prometheus,
                ..Options::default()
            })),
            Self::Demo { pod_start, keep, folder } => Box::pin(demo::run(wva, *pod_start, *keep, folder)),
            Self::BenchBacktest { week: true, folder, .. } => Box::pin(backtest::run_week(wva, folder)),
            Self::BenchBacktest { parts: true, only, .. } => {
                Box::pin(std::future::ready(backtest::run_parts(only.as_deref())))
            }
            Self::BenchBacktest { only, ran, folder, .. } => {
                Box::pin(backtest::run(wva, only.as_deref(), ran.as_deref(), folder))
            }
            Self::Bench => Box::pin(bench::idle::run(wva)),
            Self::BenchIdle { lasts } => Box::pin(bench::idle_fleet::run(wva, *lasts)),
            Self::BenchAdmission { criterion, folder } => {
                Box::pin(bench::admission::run(wva, criterion, folder))
            }
            Self::BenchCycle { folder, namespaces, models, replicas } => {
                let fleet = bench::Fleet { namespaces: *namespaces, variants: *models, replicas: *replicas };
                Box::pin(bench::cycle::run(wva, folder, fleet))
            }
            Self::Sizes { folder } => Box::pin(std::future::ready(bench::sizes::print(folder))),
            Self::BenchTenants => Box::pin(bench::tenants::run(wva)),
            Self::Faults { only } => Box::pin(faults::run(wva, only.as_deref())),
            Self::Soak(plan) => Box::pin(soak::run(wva, plan)),
            Self::Outages { lasts, only } => Box::pin(outages::run(wva, *lasts, only)),
            Self::Reaction { scrape } => Box::pin(reaction::run(wva, *scrape)),
            Self::Replay { scenarios, lasts, slo_target } => {
                Box::pin(replay::run(wva, scenarios, *lasts, *slo_target))
            }
            Self::SideBySide { lasts } => Box::pin(side_by_side::run(wva, *lasts)),
            Self::Zero(plan) => Box::pin(zero::run(wva, plan)),
            Self::ScaleDown(plan) => Box::pin(scale_down::run(wva, plan)),
            Self::FromZero => Box::pin(from_zero::run(wva)),
            Self::Consumers { only } => Box::pin(consumers::run(wva, only.as_deref())),
            Self::Engines { folder } => Box::pin(engines::run(wva, folder)),
            Self::Throughput { lasts } => Box::pin(throughput::run(wva, *lasts)),
        };
        work.await
    }
}

fn tools() -> anyhow::Result<()> {
    for (name, path) in Tools::ready()?.all() {
        print_line(&format!("{name}={}", path.display()))?;
    }
    Ok(())
}

async fn up(options: Options) -> anyhow::Result<()> {
    let prometheus = options.with_prometheus;
    let testbed = Testbed::start(options).await?;
    for (component, pid) in testbed.pids() {
        print_line(&format!("{component}: pid {pid}"))?;
    }
    if prometheus {
        print_line(&format!("Prometheus: {}", testbed.prometheus_url()?))?;
    }
    print_line(&format!("logs: {}", testbed.logs().display()))?;
    print_line(&format!("export KUBECONFIG={}", testbed.admin_kubeconfig().display()))?;
    print_line("The control plane is up. Ctrl-C ends it.")?;
    std::future::pending().await
}
