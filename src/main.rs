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

fn main() -> ExitCode {
    if rustls::crypto::aws_lc_rs::default_provider().install_default().is_err() {
        // Only a second call can fail.
        return ExitCode::FAILURE;
    }
    match dispatch(&cli::command().get_matches()) {
        Ok(code) => code,
        Err(error) => {
            wva_cli::print_error(&error);
            ExitCode::FAILURE
        }
    }
}

fn dispatch(arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    match arguments.subcommand() {
        None => serve(arguments),
        Some(("run", own)) => serve(own),
        Some((name, own)) => wva_cli::run(name, own)
            .unwrap_or_else(|| anyhow::bail!("command {name} is not implemented; please report this bug")),
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
            return print_config::print_config(arguments).await;
        }
        let mut signals = wva_runtime::Signals::listen().context("cannot listen for SIGTERM and SIGINT")?;
        let (settings, live) = tokio::select! {
            started = start::load_settings(arguments) => started?,
            _ = signals.recv() => return Ok(()),
        };
        let level = telemetry::init(&settings.log);
        run::run(settings, live, level, signals).await
    });
    // Unfinished blocking work must not delay the exit.
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended.map(|()| ExitCode::SUCCESS)
}
