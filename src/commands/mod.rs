//! Which words do what. Each command is a function from its arguments to an exit code: 0 fine, 1 a finding or a
//! failure; wrong usage (2) is clap's.

mod certs;
mod cluster;
mod decide;
mod doctor;
mod emulate;
mod explain;
mod leader;
mod migrate;
mod output;
mod print_config;
mod prometheus;
mod simulate;
mod start;
mod status;
mod validate;
mod webhook_config;
mod workloads;

use std::process::ExitCode;

use anyhow::Context;
use clap::ArgMatches;

use crate::{run, telemetry};

pub(crate) use certs::command as certs_command;
pub(crate) use doctor::command as doctor_command;
pub(crate) use emulate::command as emulate_command;
pub(crate) use explain::command as explain_command;
pub(crate) use migrate::command as migrate_command;
pub(crate) use simulate::command as simulate_command;
pub(crate) use status::command as status_command;
pub(crate) use validate::command as validate_command;
pub(crate) use webhook_config::command as webhook_config_command;

/// Runs what the command line asks for.
pub(crate) fn dispatch(arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    match arguments.subcommand() {
        None => serve(arguments),
        Some(("run", own)) => serve(own),
        Some(("validate", own)) => validate::validate(own),
        Some(("decide", own)) => decide::decide(own),
        Some(("explain", own)) => explain::explain(own),
        Some(("status", own)) => status::status(own),
        Some(("doctor", own)) => doctor::doctor(own),
        Some(("migrate", own)) => migrate::migrate(own),
        Some(("simulate", own)) => simulate::simulate(own),
        Some(("emulate", own)) => emulate::emulate(own),
        Some(("certs", own)) => certs::certs(own),
        Some(("crd", _)) => crd(),
        Some(("webhook-config", own)) => webhook_config::webhook_config(own),
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

fn crd() -> anyhow::Result<ExitCode> {
    output::print(&wva_crds::manifest::crd_yaml()?)?;
    Ok(ExitCode::SUCCESS)
}

/// Objects as YAML documents.
fn yaml(objects: &[serde_json::Value]) -> anyhow::Result<String> {
    let mut text = String::new();
    for object in objects {
        text.push_str("---\n");
        text.push_str(serde_saphyr::to_string(object)?.trim_end());
        text.push('\n');
    }
    Ok(text)
}

/// For commands that ask others: one thread is enough.
fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the async runtime")?
        .block_on(work)
}
