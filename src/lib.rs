//! The manager: admission webhook and controller of the Workload-Variant-Autoscaler in one process, and its command line.
//! It is what the image starts. `wva run` starts the same for development.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::ArgMatches;
use wva_runtime::terminal;

pub mod command_line;
mod endpoints;
mod facts;
mod print_config;
mod run;
mod settings;
mod start;
mod telemetry;

/// Release of the program, such as `0.1.0`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Commit of the build, or `unknown`.
pub const REVISION: &str = env!("WVA_REVISION");
/// Release of the compiler, or `unknown`.
pub const RUSTC: &str = env!("WVA_RUSTC");

pub use telemetry::LONG_VERSION;

/// Exit code of wrong usage, as clap's.
const WRONG_USAGE: u8 = 2;

/// Chooses the cryptography of every TLS connection of the process. Call it once, first.
///
/// # Errors
/// A second call.
pub fn install_cryptography() -> anyhow::Result<()> {
    let installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
    installed.map_err(|_| anyhow::anyhow!("the cryptography of TLS is already chosen"))
}

/// Runs webhook and controller until SIGTERM or SIGINT, or prints the settings, as the arguments of
/// [`command_line::with_settings`] say. The exit code is 2 if it refuses to lead.
///
/// # Errors
/// All invalid settings, and what a server or client cannot start with.
pub fn serve(arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
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
            terminal::print_error(&refused);
            return Ok(ExitCode::from(WRONG_USAGE));
        }
        let level = telemetry::init(&settings.log);
        run::run(settings, live, level, signals).await.map(|()| ExitCode::SUCCESS)
    });
    // Unfinished blocking work must not delay the exit.
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended
}
