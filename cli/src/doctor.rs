//! `wva doctor`: checks the chain from each variant to its replicas. It changes nothing.

mod annotation_facts;
mod annotations;
mod chain;
mod checks;
mod cluster_checks;
mod compare;
mod config_map_facts;
mod config_maps;
mod controllers;
mod facts;
mod json;
mod pre;
mod pre_facts;
mod text;
mod unread_maps;
mod unreadable;
mod variant_state;
mod wait_limits;

use std::process::ExitCode;

use chain::{Finding, State, VariantFindings, check_variant};
use clap::{ArgMatches, Command};
use facts::Facts;
use pre_facts::PreFacts;
use variant_state::VariantState;
use wva_crds::envelope::FileKind;

pub(crate) use json::schema;

use super::cluster::Cluster;
use super::{leader, output, prometheus};
use crate::arguments::{flag, names_argument, object_options, output_format, output_option};

const HELP: &str = "\
Checks for each variant: the object, its workload, its pods, the GPUs of a
replica and what the cluster has of them, the scrape of the metrics, the series
in Prometheus, the decision, the signal (wva_desired_replicas), whether an
autoscaler follows it, its path to the HPA (adapter, KEDA or the external
metrics API), the selector of the HPA, the bounds. Checks of the cluster: the
CRD, the installed controllers, the leader, instance labels without a
controller, ConfigMaps that nothing reads, autoscalers with the annotations of
llm-d WVA v0.9. A healthy variant takes one line. For any other variant you see
every check, with what was found and, after ->, what to do.

--prometheus also checks the series: model names, and who publishes the signal.
To reach Prometheus:
  kubectl port-forward -n monitoring svc/prometheus 9090

--pre checks a cluster before you install wva: versions, your rights, a
controller that is there already, who serves the external metrics API, the
Prometheus of --prometheus and its series of model servers, labels of GPUs,
policies and proxies. -n names the namespace of the future release.

--compare prints the targets that another controller publishes next to the
decisions of this controller's leader. Use it while llm-d WVA scales and this
controller runs in mode recommend.

-o json and -o yaml print a report for programs, also if the cluster does not
answer; its schema is docs/reference/doctor.schema.json. -o wide shows every
check of every variant.

Examples:
  wva doctor --pre --prometheus http://localhost:9090
  wva doctor
  wva doctor -A -o json
  wva doctor -n prod llama-h100 --prometheus http://localhost:9090
  wva doctor --compare --prometheus http://localhost:9090

Exit code: 0 nothing is broken (with --compare: all targets agree), 1 something
is broken (with --compare: targets differ), 2 wrong usage, 3 the cluster cannot
be read, so that nothing is known.";

pub(crate) fn command() -> Command {
    let command = Command::new("doctor")
        .about("Find the broken link between each variant and its replicas")
        .after_help(HELP)
        .arg(names_argument())
        .arg(output_option(&["text", "wide", "json", "yaml", "name"]))
        .arg(flag("verbose", "Show every check of every variant, as -o wide").short('v'))
        .arg(
            flag("pre", "Check the cluster before wva is installed")
                .conflicts_with_all(["name", "compare", "all-namespaces", "selector"]),
        )
        .arg(
            flag("compare", "Compare the targets of another controller with the decisions of this one")
                .requires("prometheus")
                .conflicts_with("output"),
        );
    object_options(leader::options(prometheus::options(command)))
}

pub(super) fn doctor(arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    // Before the cluster is asked.
    prometheus::Prometheus::from_options(arguments)?;
    super::block_on(async {
        if arguments.get_flag("pre") {
            return examine_before_install(arguments).await;
        }
        let cluster = Cluster::connect(arguments).await?;
        let facts = match Facts::read(&cluster, arguments).await {
            Err(error) if output::is_no_answer(&error) => {
                print_without_answer(&error, output_format(arguments))?;
                return Err(error);
            }
            facts => facts?,
        };
        let variants: Vec<VariantState<'_>> =
            facts.objects.variants.iter().map(|object| VariantState::new(&facts, object)).collect();
        let report = if arguments.get_flag("compare") {
            compare::compare(&facts, &variants)?
        } else {
            examine(&facts, &variants, arguments)?
        };
        output::print_coloured(&report.text)?;
        Ok(if report.is_fine { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}

async fn examine_before_install(arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    let findings = pre::check(&PreFacts::read(arguments).await?);
    let text = match output_format(arguments) {
        format @ ("json" | "yaml") => {
            output::report(FileKind::DoctorReport, json::DoctorReport::new(&findings, &[]), format)?
        }
        _ => text::render_cluster(&findings, output::use_colours()),
    };
    output::print_coloured(&text)?;
    let is_fine = findings.iter().all(|(_, finding)| finding.state < State::Broken);
    Ok(if is_fine { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Programs get a report in any case.
fn print_without_answer(error: &anyhow::Error, format: &str) -> anyhow::Result<()> {
    if matches!(format, "json" | "yaml") {
        let finding =
            Finding::unknown(format!("the cluster was not read, so no variant was checked: {error:#}"));
        let report = json::DoctorReport::new(&[("cluster", finding)], &[]);
        output::print(&output::report(FileKind::DoctorReport, report, format)?)?;
    }
    Ok(())
}

struct Report {
    text: String,
    /// The exit code is 0.
    is_fine: bool,
}

fn examine(facts: &Facts, variants: &[VariantState<'_>], arguments: &ArgMatches) -> anyhow::Result<Report> {
    let cluster = cluster_checks::check_cluster(facts);
    let all: Vec<VariantFindings> = variants.iter().map(check_variant).collect();
    let states =
        cluster.iter().map(|(_, finding)| finding.state).chain(all.iter().map(VariantFindings::state));
    let is_fine = states.max().is_none_or(|worst| worst < State::Broken);
    let text = match output_format(arguments) {
        format @ ("json" | "yaml") => {
            output::report(FileKind::DoctorReport, json::DoctorReport::new(&cluster, &all), format)?
        }
        "name" => variants.iter().map(|variant| output::object_name(&variant.name)).collect(),
        format => {
            let is_verbose = format == "wide" || arguments.get_flag("verbose");
            text::render(&cluster, &all, text::Style { is_verbose, is_coloured: output::use_colours() })
        }
    };
    Ok(Report { text, is_fine })
}

#[cfg(test)]
mod tests;
