//! `wva doctor`: follows the chain from each variant to its replicas in a running cluster, and says where it is broken,
//! what was found there, and what to do. It changes nothing.

mod around;
mod chain;
mod compare;
mod controllers;
mod facts;
mod links;
mod seen;
mod text;

use std::process::ExitCode;

use chain::{Followed, State, follow};
use clap::{ArgMatches, Command};
use facts::Facts;
use seen::Seen;
use serde_json::Value;

use super::cluster::{Cluster, id};
use super::{leader, output, prometheus};
use crate::arguments::{flag, name_argument, namespace_option, word};

const HELP: &str = "\
The chain: the variant itself, its workload, the pods, the scrape of their
metrics, the series, the decision, the signal (wva_desired_replicas), what
carries it (adapter, KEDA or the external metrics API), the selector of the HPA,
the bounds. Around it: the CRD, the controllers that are installed, the leader,
labels of instances that nobody runs. What is fine is one line; of what is not
the whole chain is shown, with what was found and -> what to do.

--prometheus lets it look at the series themselves: model names, and who
publishes what. Reach it with
  kubectl port-forward -n monitoring svc/prometheus 9090

--compare asks that Prometheus what another controller publishes for the same
variants, and prints it beside what the leader of this one decided: for the time
when the original acts and this one is in mode recommend.

Examples:
  wva doctor
  wva doctor -n prod llama-h100 --prometheus http://localhost:9090
  wva doctor --compare --prometheus http://localhost:9090

Exit code: 0 nothing is broken (with --compare: both say the same), 1 something
is, 2 wrong usage.";

/// The command line of `wva doctor`.
pub(crate) fn command() -> Command {
    let command = Command::new("doctor")
        .about("Follows the chain from each variant to its replicas, and says where it is broken")
        .after_help(HELP)
        .args([name_argument(), namespace_option("Only variants of this namespace")])
        .arg(flag("verbose", "Show the whole chain of every variant"))
        .arg(
            flag("compare", "What another controller publishes, beside what this one decided")
                .requires("prometheus"),
        );
    prometheus::options(leader::options(command))
}

/// Runs the command.
pub(super) fn doctor(arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    super::block_on(async {
        let (namespace, name) = (word(arguments, "namespace"), word(arguments, "name"));
        let cluster = Cluster::connect(namespace.map(str::to_owned)).await?;
        let facts = Facts::read(&cluster, arguments).await?;
        let variants = asked(&facts, name);
        anyhow::ensure!(
            !variants.is_empty() || name.is_none(),
            "there is no such VariantAutoscaling: kubectl get va -A lists them"
        );
        let seen: Vec<Seen<'_>> = variants.into_iter().map(|variant| Seen::of(&facts, variant)).collect();
        let report = if arguments.get_flag("compare") {
            compare::compare(&facts, &seen)?
        } else {
            examine(&facts, &seen, arguments)
        };
        output::print(&report.text)?;
        Ok(if report.is_fine { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}

/// The variants that are asked for, in order.
fn asked<'a>(facts: &'a Facts, name: Option<&str>) -> Vec<&'a Value> {
    let mut all: Vec<&Value> = facts.variants.iter().collect();
    all.sort_by_key(|variant| id(variant));
    all.retain(|variant| name.is_none_or(|name| id(variant).name == name));
    all
}

/// What the command prints.
struct Report {
    text: String,
    /// Nothing is broken, or both controllers agree: the exit code is 0.
    is_fine: bool,
}

fn examine(facts: &Facts, seen: &[Seen<'_>], arguments: &ArgMatches) -> Report {
    let around = around::look(facts);
    let all: Vec<Followed> = seen.iter().map(follow).collect();
    let broken = around.iter().map(|(_, found)| found.state).chain(all.iter().map(Followed::state));
    let is_fine = broken.max().is_none_or(|worst| worst < State::Broken);
    Report { text: text::render(&around, &all, arguments.get_flag("verbose")), is_fine }
}

#[cfg(test)]
mod tests;
