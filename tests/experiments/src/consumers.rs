//! Other projects' programs that use what wva publishes, as plain processes, each on its own control plane. KEDA
//! scales a workload, cert-manager issues the webhooks' certificate, and the Prometheus operator generates a
//! Prometheus configuration from the chart's objects. Prints one row per check and fails if one is missed.

mod cert_manager;
mod keda;
mod programs;
mod prometheus_operator;
mod release;

use std::path::Path;

use anyhow::ensure;

use crate::command::print_line;
use crate::report::Report;

/// Names of the consumers.
const NAMES: [&str; 3] = ["keda", "cert-manager", "prometheus-operator"];

/// Runs the consumers whose names contain `only`, or all.
pub(crate) async fn run(wva: &Path, only: Option<&str>) -> anyhow::Result<()> {
    let wanted = |name: &&str| only.is_none_or(|only| name.contains(only));
    ensure!(NAMES.iter().any(wanted), "none of {NAMES:?} has {only:?} in its name");
    let mut report = Report::default();
    for name in NAMES.into_iter().filter(|name| wanted(name)) {
        print_line(&format!("\n== {name}"))?;
        let ran = match name {
            "keda" => Box::pin(keda::run(wva, &mut report)).await,
            "cert-manager" => Box::pin(cert_manager::run(wva, &mut report)).await,
            _ => Box::pin(prometheus_operator::run(wva, &mut report)).await,
        };
        // A failure of one does not stop the others.
        if let Err(error) = ran {
            error.chain().try_for_each(|cause| print_line(&format!("{cause}")))?;
            report.row(name, error.root_cause(), "it runs to its end", false)?;
        }
    }
    report.end()
}
