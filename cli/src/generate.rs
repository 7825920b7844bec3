//! `wva generate`: prints a VariantAutoscaling and its autoscaler for a workload that serves a model. It changes nothing.

mod accelerator;
mod autoscaler;
mod command_line;
mod guess;
mod inputs;
mod kserve;
mod model;
mod options;
mod plan;
mod render;
mod replace;
mod server;
mod workload;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ArgMatches;

use crate::arguments::{output_format, value};
use crate::cluster::text;
use crate::output::{self, printable, wrong_usage};
use inputs::Inputs;
use options::{Options, WorkloadReference};
use render::Plan;
use server::Server;

pub(super) use options::command;
pub(crate) use replace::{Replacement, replace};

pub(super) fn generate(arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    let options = Options::new(arguments);
    if let (Some(min), Some(max)) = (options.min, options.max)
        && min > max
    {
        return Ok(wrong_usage(anyhow::anyhow!("--min {min} is above --max {max}; state at most {max}")));
    }
    let reference = match value(arguments, "workload").map(WorkloadReference::parse).transpose() {
        Ok(reference) => reference,
        Err(error) => return Ok(wrong_usage(error)),
    };
    let paths: Vec<PathBuf> = arguments.get_many("filename").into_iter().flatten().cloned().collect();
    let namespace = value(arguments, "namespace");
    let mut inputs = match &reference {
        Some(reference) if paths.is_empty() => super::block_on(inputs::read_cluster(arguments, reference))?,
        _ => match inputs::read_files(&paths, namespace.unwrap_or("default"), reference.as_ref()) {
            Ok(inputs) => inputs,
            Err(error) => return Ok(wrong_usage(error)),
        },
    };
    if reference.is_none() {
        keep_servers(&mut inputs);
    }
    if options.name_one_workload() && inputs.workloads.len() > 1 {
        let error = anyhow::anyhow!("--name with {} workloads: name one workload", inputs.workloads.len());
        return Ok(wrong_usage(error));
    }
    let (plans, problems) = plan_all(&inputs, &options);
    print_plans(&plans, &problems, output_format(arguments) == "json")
}

/// Drops the workloads of files that serve no model.
fn keep_servers(inputs: &mut Inputs) {
    let before = inputs.workloads.len();
    inputs.workloads.retain(|workload| {
        workload.declared_model.is_some() || Server::find(&workload.replica.leader).is_some()
    });
    if inputs.workloads.is_empty() {
        inputs.problems.push(match before {
            0 => "no Deployment, StatefulSet, LeaderWorkerSet or object of KServe in the files".to_owned(),
            _ => format!("no container of {} runs vLLM or names a model", output::count(before, "workload")),
        });
    }
}

/// Plans, and a problem for each workload without one.
fn plan_all(inputs: &Inputs, options: &Options) -> (Vec<Plan>, Vec<String>) {
    let (mut plans, mut problems, mut names) = (Vec::new(), inputs.problems.clone(), BTreeSet::new());
    for workload in &inputs.workloads {
        let problem = match plan::plan(workload, inputs, options) {
            Ok(plan) => {
                let name = text(&plan.documents[0].object, "/metadata/name").to_owned();
                if names.insert((workload.namespace.clone(), name)) {
                    plans.push(plan);
                    continue;
                }
                "another workload of this name comes first; run wva generate for each, with --name".to_owned()
            }
            Err(problem) => problem,
        };
        problems.push(format!("{}: {}: {problem}", workload.place, workload.title()));
    }
    (plans, problems)
}

/// Prints objects to standard output, and summaries and problems to standard error.
#[expect(clippy::print_stderr, reason = "the summary is not part of the manifests")]
fn print_plans(plans: &[Plan], problems: &[String], as_json: bool) -> anyhow::Result<ExitCode> {
    if !plans.is_empty() {
        output::print(&if as_json { render::json(plans)? } else { render::yaml(plans)? })?;
    }
    for plan in plans {
        eprint!("{}", render::summary(plan));
    }
    for problem in problems {
        eprintln!("wva: {}", printable(problem));
    }
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests;
