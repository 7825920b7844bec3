//! `wva`: admission webhook and controller of the Workload-Variant-Autoscaler, and its commands.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::ArgMatches;

mod cli;
mod endpoints;
mod facts;
mod print_config;
mod run;
mod settings;
mod start;
mod telemetry;

use cli::ProgramName;

fn main() -> ExitCode {
    if rustls::crypto::aws_lc_rs::default_provider().install_default().is_err() {
        // Only a second call can fail.
        return ExitCode::FAILURE;
    }
    let name = ProgramName::from_path(std::env::args_os().next().as_deref());
    dispatch(name, &cli::command(name).get_matches()).unwrap_or_else(|error| wva_cli::fail(&error))
}

fn dispatch(name: ProgramName, arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    match arguments.subcommand() {
        None if name == ProgramName::Manager => serve(arguments),
        None => {
            cli::command(name).print_help().context("cannot write to standard output")?;
            Ok(ExitCode::SUCCESS)
        }
        Some(("run", own)) => serve(own),
        Some((command, own)) => wva_cli::run(command, own, &cli::program(name))
            .unwrap_or_else(|| anyhow::bail!("command {command} is not implemented; please report this bug")),
    }
}

fn serve(arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the async runtime")?;
    let ended = runtime.block_on(async {
        if arguments.get_flag("print-config") {
            return print_config::print_config(arguments).await.map(|()| ExitCode::SUCCESS);
        }
        let mut signals = wva_runtime::Signals::listen().context("cannot listen for SIGTERM and SIGINT")?;
        let (settings, live) = tokio::select! {
            started = start::load_settings(arguments) => started?,
            _ = signals.recv() => return Ok(ExitCode::SUCCESS),
        };
        if let Err(refused) = start::ensure_leading_is_safe(arguments, &settings) {
            return Ok(wva_cli::wrong_usage(refused));
        }
        let level = telemetry::init(&settings.log);
        run::run(settings, live, level, signals).await.map(|()| ExitCode::SUCCESS)
    });
    // Unfinished blocking work must not delay the exit.
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended
}
