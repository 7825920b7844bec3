//! `wva doctor`: checks the chain from each variant to its replicas. It changes nothing.

mod chain;
mod checks;
mod cluster_checks;
mod compare;
mod controllers;
mod facts;
mod text;
mod variant_state;

use std::process::ExitCode;

use chain::{State, VariantFindings, check_variant};
use clap::{ArgMatches, Command};
use facts::Facts;
use serde_json::Value;
use variant_state::VariantState;

use super::cluster::{Cluster, id};
use super::{leader, output, prometheus};
use crate::arguments::{flag, name_argument, namespace_option, value};

const HELP: &str = "\
Checks for each variant: the object, its workload, its pods, the scrape of their
metrics, the series in Prometheus, the decision, the signal
(wva_desired_replicas), its path to the HPA (adapter, KEDA or the external
metrics API), the selector of the HPA, the bounds. Checks of the cluster: the
CRD, the installed controllers, the leader, instance labels without a
controller. A healthy variant takes one line. For any other variant you see every
check, with what was found and, after ->, what to do.

--prometheus also checks the series: model names, and who publishes the signal.
To reach Prometheus:
  kubectl port-forward -n monitoring svc/prometheus 9090

--compare prints the targets that another controller publishes next to the
decisions of this controller's leader. Use it while llm-d WVA scales and this
controller runs in mode recommend.

Examples:
  wva doctor
  wva doctor -n prod llama-h100 --prometheus http://localhost:9090
  wva doctor --compare --prometheus http://localhost:9090

Exit code: 0 nothing is broken (with --compare: all targets agree), 1 something
is broken (with --compare: targets differ), 2 wrong usage.";

pub(crate) fn command() -> Command {
    let command = Command::new("doctor")
        .about("Check the chain from each variant to its replicas, and show where it is broken")
        .after_help(HELP)
        .args([name_argument(), namespace_option("Only variants of this namespace")])
        .arg(flag("verbose", "Show every check of every variant"))
        .arg(
            flag("compare", "Compare the targets of another controller with the decisions of this one")
                .requires("prometheus"),
        );
    prometheus::options(leader::options(command))
}

pub(super) fn doctor(arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    super::block_on(async {
        let (namespace, name) = (value(arguments, "namespace"), value(arguments, "name"));
        let cluster = Cluster::connect(namespace.map(str::to_owned)).await?;
        let facts = Facts::read(&cluster, arguments).await?;
        let objects = select_variants(&facts, name);
        anyhow::ensure!(
            !objects.is_empty() || name.is_none(),
            "no such VariantAutoscaling: list them with `kubectl get va -A`"
        );
        let variants: Vec<VariantState<'_>> =
            objects.into_iter().map(|object| VariantState::new(&facts, object)).collect();
        let report = if arguments.get_flag("compare") {
            compare::compare(&facts, &variants)?
        } else {
            examine(&facts, &variants, arguments)
        };
        output::print(&report.text)?;
        Ok(if report.is_fine { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}

fn select_variants<'a>(facts: &'a Facts, name: Option<&str>) -> Vec<&'a Value> {
    let mut all: Vec<&Value> = facts.variants.iter().collect();
    all.sort_by_key(|variant| id(variant));
    all.retain(|variant| name.is_none_or(|name| id(variant).name == name));
    all
}

struct Report {
    text: String,
    /// The exit code is 0.
    is_fine: bool,
}

fn examine(facts: &Facts, variants: &[VariantState<'_>], arguments: &ArgMatches) -> Report {
    let cluster = cluster_checks::check_cluster(facts);
    let all: Vec<VariantFindings> = variants.iter().map(check_variant).collect();
    let states =
        cluster.iter().map(|(_, finding)| finding.state).chain(all.iter().map(VariantFindings::state));
    let is_fine = states.max().is_none_or(|worst| worst < State::Broken);
    Report { text: text::render(&cluster, &all, arguments.get_flag("verbose")), is_fine }
}

#[cfg(test)]
mod tests;
