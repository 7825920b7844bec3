//! Programs of other projects that use what wva publishes, as plain processes on a control plane of their own: KEDA
//! scales a workload, cert-manager issues the certificate of the webhooks, and the Prometheus operator turns the chart's
//! objects into a configuration of Prometheus. Prints a row for each promise, and fails where one is missed.

mod cert_manager;
mod keda;
mod programs;
mod prometheus_operator;
mod release;

use std::path::Path;

use anyhow::ensure;

use crate::command::say;
use crate::report::Report;

/// What can be run.
const NAMES: [&str; 3] = ["keda", "cert-manager", "prometheus-operator"];

/// Runs those whose names hold `only`, or all.
pub(crate) async fn run(wva: &Path, only: Option<&str>) -> anyhow::Result<()> {
    let wanted = |name: &&str| only.is_none_or(|only| name.contains(only));
    ensure!(NAMES.iter().any(wanted), "none of {NAMES:?} has {only:?} in its name");
    let mut report = Report::default();
    for name in NAMES.into_iter().filter(|name| wanted(name)) {
        say(&format!("\n== {name}"))?;
        let ran = match name {
            "keda" => Box::pin(keda::run(wva, &mut report)).await,
            "cert-manager" => Box::pin(cert_manager::run(wva, &mut report)).await,
            _ => Box::pin(prometheus_operator::run(wva, &mut report)).await,
        };
        // One that cannot be run leaves the others their turn.
        if let Err(error) = ran {
            error.chain().try_for_each(|cause| say(&format!("{cause}")))?;
            report.row(name, error.root_cause(), "it runs to its end", false)?;
        }
    }
    report.end()
}
