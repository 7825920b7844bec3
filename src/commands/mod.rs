//! Which words do what. Each command is a function from its arguments to an exit code: 0 fine, 1 a finding or a
//! failure; wrong usage (2) is clap's.

mod certs;
mod decide;
mod explain;
mod print_config;
mod start;
mod validate;

use std::process::ExitCode;

use anyhow::Context;
use clap::ArgMatches;

use crate::{run, telemetry};

pub(crate) use certs::command as certs_command;
pub(crate) use explain::command as explain_command;
pub(crate) use validate::command as validate_command;

/// Runs what the command line asks for.
pub(crate) fn dispatch(arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    match arguments.subcommand() {
        None => serve(arguments),
        Some(("run", own)) => serve(own),
        Some(("validate", own)) => validate::validate(own),
        Some(("decide", own)) => decide::decide(own),
        Some(("explain", own)) => explain::explain(own),
        Some(("certs", own)) => certs::certs(own),
        Some(("crd", _)) => crd(),
        Some((other, _)) => {
            anyhow::bail!("{other}: the command line knows this command and the program does not")
        }
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
        let mut signals = run::Signals::listen()?;
        let (settings, live) = tokio::select! {
            started = start::settings(arguments) => started?,
            () = signals.asked() => return Ok(()),
        };
        let level = telemetry::start(&settings.log);
        run::run(settings, live, level, signals).await
    });
    // Blocking work that nobody waits for any more must not hold up the end.
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    ended.map(|()| ExitCode::SUCCESS)
}

#[expect(clippy::print_stdout, reason = "the CRD is what this command is asked to print")]
fn crd() -> anyhow::Result<ExitCode> {
    print!("{}", wva_crds::manifest::crd_yaml()?);
    Ok(ExitCode::SUCCESS)
}
