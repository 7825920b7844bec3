//! `wva migrate`: reads the objects of the original controller, in files or in a cluster, and prints what to apply so
//! that this one serves the same workloads. It changes nothing itself.

mod annotated;
mod maps;
mod objects;
mod plan;
mod variant;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgMatches, Command};
use plan::{Plan, Wanted, plan};
use serde_json::{Value, json};
use wva_rules::{MapNames, MapRole};

use super::cluster::{AUTOSCALERS, CONFIG_MAPS, Cluster, ObjectId, SCALED_OBJECTS, VARIANTS, id, text};
use super::output::{self, count, printable};
use super::validate::{FoundObject, objects_in};
use super::workloads::Workloads;
use crate::arguments::{flag, namespace_option, paths, word};

const HELP: &str = "\
PATH is a file, a directory (all *.yaml, *.yml and *.json below it), a quoted
pattern or - for standard input. Without a PATH the cluster is read. Looked at
are VariantAutoscalings of v0.5 to v0.8 (and older ones), and HPAs and
ScaledObjects with the annotations of v0.9: llm-d.ai/managed, llm-d.ai/model-id,
llm-d.ai/variant-cost. What need not change is not printed. Saturation
ConfigMaps that name no analyzer get analyzerName: percentage, which is what they
mean. Check other ConfigMaps with `wva validate`.

To try this controller beside the original, --recommend adds the annotation
wva.llmd.ai/mode: recommend to every variant: then it decides and explains, and
publishes nothing. docs/migration.md has the whole procedure.

Examples:
  wva migrate manifests/ > migrated.yaml && wva validate migrated.yaml
  wva migrate -n prod --recommend | kubectl apply -f -
  kubectl get hpa -n prod -o yaml | wva migrate -

Exit code: 0 all is in what is printed, 1 something needs a person first (it is
named on standard error), 2 wrong usage or a path that cannot be read.";

/// The command line of `wva migrate`.
pub(crate) fn command() -> Command {
    Command::new("migrate")
        .about("What to apply so that objects of the original are served; changes nothing itself")
        .after_help(HELP)
        .arg(paths(0, "Objects of the original; the cluster is read where it is left out"))
        .arg(namespace_option("Of a cluster: only this namespace; of files: that of objects that name none"))
        .arg(flag(
            "recommend",
            "Set wva.llmd.ai/mode: recommend on every variant, also on those that need nothing else",
        ))
}

/// Runs the command.
pub(super) fn migrate(arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    let paths: Vec<PathBuf> = arguments.get_many("path").into_iter().flatten().cloned().collect();
    let namespace = word(arguments, "namespace");
    let wanted = Wanted { recommend: arguments.get_flag("recommend"), in_cluster: paths.is_empty() };
    if paths.is_empty() {
        let (originals, workloads) = super::block_on(in_cluster(namespace.map(str::to_owned)))?;
        return tell(&plan(&originals, &workloads, wanted));
    }
    match objects_in(&paths, namespace.unwrap_or("default")) {
        Ok((originals, problems)) => {
            let mut plan = plan(&originals, &in_files(&originals), wanted);
            plan.open.extend(problems);
            tell(&plan)
        }
        Err(error) => Ok(output::wrong_usage(error)),
    }
}

/// The workloads among the objects of files.
fn in_files(originals: &[FoundObject]) -> Workloads {
    let mut workloads = Workloads::default();
    for original in originals {
        let mut object = original.object.clone();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("namespace".to_owned(), json!(original.namespace));
        }
        workloads.add(object);
    }
    workloads
}

/// What a cluster holds of the original.
#[expect(clippy::print_stderr, reason = "notes are no part of what is to be applied")]
async fn in_cluster(namespace: Option<String>) -> anyhow::Result<(Vec<FoundObject>, Workloads)> {
    let cluster = Cluster::connect(namespace).await?;
    let mut found = Vec::new();
    for kind in [&VARIANTS, &AUTOSCALERS, &SCALED_OBJECTS] {
        match cluster.list(kind).await {
            Err(error) if error.is_no_kind() => {}
            listed => found.extend(listed?),
        }
    }
    for name in MapNames::default().global_names(MapRole::Saturation) {
        found.extend(cluster.with_name(&CONFIG_MAPS, name).await?);
    }
    let originals = found.into_iter().map(|object| {
        let ObjectId { namespace, name } = id(&object);
        FoundObject { place: format!("{} {namespace}/{name}", text(&object, "/kind")), namespace, object }
    });
    let originals = originals.collect();
    match wva_controller::missing_fields(&cluster.client).await {
        Ok(missing) if missing.is_empty() => {}
        Ok(missing) => eprintln!(
            "wva: the CustomResourceDefinition that is installed is an older one, without {}: before all else,\n  wva \
             crd | kubectl apply --server-side --force-conflicts -f -",
            missing.join(", ")
        ),
        Err(error) => {
            eprintln!("wva: {error}: before all else,\n  wva crd | kubectl apply --server-side -f -");
        }
    }
    let workloads = Workloads::read(&cluster).await;
    Ok((originals, workloads))
}

/// Prints the plan: what is to be applied to standard output, the rest to standard error.
#[expect(clippy::print_stderr, reason = "the summary is no part of what is to be applied")]
fn tell(plan: &Plan) -> anyhow::Result<ExitCode> {
    output::print(&manifests(plan)?)?;
    eprint!("{}", summary(plan));
    Ok(if plan.open.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The objects to apply, each below what is different about it.
fn manifests(plan: &Plan) -> anyhow::Result<String> {
    let mut out = String::new();
    for step in &plan.steps {
        out.push_str("---\n");
        // A String never refuses to grow.
        let _ = writeln!(out, "# from {}:", printable(&step.place));
        for change in &step.changes {
            let _ = writeln!(out, "# - {}", printable(change));
        }
        out.push_str(&output::yaml(&step.object)?);
    }
    Ok(out)
}

fn summary(plan: &Plan) -> String {
    let mut out = format!(
        "wva: {} of the original read: {} to apply, {} as they should be. Nothing was changed.\n",
        count(plan.read, "object"),
        plan.steps.len(),
        plan.fine
    );
    if !plan.open.is_empty() {
        let _ =
            writeln!(out, "{} for a person to settle, then run this again:", count(plan.open.len(), "thing"));
    }
    for open in &plan.open {
        let _ = writeln!(out, "  {}", printable(open));
    }
    out
}

#[cfg(test)]
mod tests;
