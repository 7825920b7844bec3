//! `wva status`: a table of all variants.

mod changes;
mod frame;
mod rows;
mod watch;

use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgMatches, Command};
use k8s_openapi::jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use wva_crds::GoDuration;
use wva_crds::envelope::{self, FileKind};

use super::cluster::{Cluster, NAMESPACES, id};
use super::leader::{self, Leaders};
use super::output::{self, object_name};
use super::workloads::Workloads;
use crate::arguments::{flag, names_argument, object_options, option, output_format, output_option};
use rows::{GpuRow, Row};

/// Shorter intervals would only load the API server.
const MIN_INTERVAL: Duration = Duration::from_millis(500);

const HELP: &str = "\
DESIRED     decided replicas (status.desiredOptimizedAlloc.numReplicas)
CURRENT     spec.replicas of the workload
READY       ready replicas of the workload
SATURATION  mean load of the replicas in percent of the thresholds: KV cache use
            or queue, whichever is higher; - if no replica reports metrics or
            the leader cannot be reached
TTFT, ITL   share of the latencies of the last hour within the objectives of the
            model: times to first token, and times between tokens; - if there is
            no objective, or nothing is counted
CONDITION   reason of the condition Ready, and that of SignalFollowed if no
            autoscaler follows the target; NotManaged if no controller runs with
            the instance of the variant's label

-o wide adds model, accelerator, GPUs and cost of a replica, the pods of a
replica that is a group, bounds and age. With a limit on scale-ups it also lists
the GPUs of the cluster by accelerator.

--watch redraws the table in a terminal, with a bar for the load, until Ctrl-C.
Elsewhere it prints the table once and then each row that changes. After a
failed read it tries again, at the latest after 30 seconds.

Examples:
  wva status
  wva status -A -o wide
  wva status -n prod llama-h100 --watch
  wva status -A -w --interval 10s

Exit code: 0 listed, 1 a named variant does not exist, 2 wrong usage, 3 the
cluster cannot be read.

You need `list` on variantautoscalings. Without `list` on workloads, CURRENT
comes from the status of the variant. SATURATION, TTFT and ITL come from the
leader: you need `list` on pods and `create` on pods/portforward in the
controller's namespace. A new leader counts TTFT and ITL again from the
beginning.";

pub(crate) fn command() -> Command {
    let command = Command::new("status")
        .about("List variants: replicas, load, objectives, conditions")
        .after_help(HELP)
        .arg(names_argument())
        .arg(output_option(&["text", "wide", "json", "yaml", "name"]))
        .arg(flag("watch", "Redraw on a terminal, elsewhere print rows that change").short('w'))
        .arg(
            option("interval", "DURATION", "Time between two reads of --watch, at least 500ms")
                .value_parser(parse_interval)
                .default_value("2s")
                .requires("watch"),
        );
    object_options(leader::options(command))
}

fn parse_interval(text: &str) -> Result<GoDuration, String> {
    let interval: GoDuration = text.parse().map_err(|error| format!("{error}"))?;
    if interval.get() < MIN_INTERVAL {
        return Err(format!(
            "the API server would be read too often: use {} ms or more",
            MIN_INTERVAL.as_millis()
        ));
    }
    Ok(interval)
}

pub(super) fn status(arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    super::block_on(async {
        let cluster = Cluster::connect(arguments).await?;
        if arguments.get_flag("watch") {
            let interval = arguments.get_one::<GoDuration>("interval").map_or(MIN_INTERVAL, |it| it.get());
            watch::watch(output_format(arguments), interval, async || read(&cluster, arguments).await)
                .await?;
        } else {
            print_once(&cluster, arguments).await?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

async fn print_once(cluster: &Cluster, arguments: &ArgMatches) -> anyhow::Result<()> {
    let format = output_format(arguments);
    if format == "name" {
        // Names need nothing else of the cluster.
        let variants = cluster.list_variants(arguments).await?;
        output::print(&variants.iter().map(|variant| object_name(&id(variant).name)).collect::<String>())?;
        return Ok(());
    }
    let reading = read(cluster, arguments).await?;
    output::print(&reading.render(format)?)?;
    print_notes(&reading.notes);
    Ok(())
}

#[expect(clippy::print_stderr, reason = "notes on empty columns are not part of the table")]
fn print_notes(notes: &[String]) {
    for note in notes {
        eprintln!("wva: {note}");
    }
}

/// Report of `wva status -o json`.
#[derive(Serialize, JsonSchema)]
struct StatusReport<'a> {
    /// Chosen variants, by namespace and name. With `--watch`: those that changed.
    variants: &'a [Row],
    /// GPUs of the cluster by accelerator, if scale-ups are limited to them.
    gpus: &'a [GpuRow],
}

/// JSON Schema of the report.
pub(crate) fn schema() -> Value {
    envelope::schema::<StatusReport<'_>>(FileKind::StatusReport, false)
}

/// State of the variants at one time.
struct Reading {
    rows: Vec<Row>,
    gpus: Vec<GpuRow>,
    /// Why columns are empty.
    notes: Vec<String>,
    /// `in namespace prod`.
    scope: String,
    now: Timestamp,
}

impl Reading {
    fn render(&self, format: &str) -> anyhow::Result<String> {
        let Self { rows, gpus, scope, .. } = self;
        Ok(match format {
            "json" | "yaml" => {
                output::report(FileKind::StatusReport, StatusReport { variants: rows, gpus }, format)?
            }
            "name" => rows.iter().map(|row| object_name(row.name())).collect(),
            _ if rows.is_empty() => format!("no VariantAutoscalings {scope}\n"),
            _ => rows::render(rows, gpus, format == "wide"),
        })
    }
}

async fn read(cluster: &Cluster, arguments: &ArgMatches) -> anyhow::Result<Reading> {
    let variants = cluster.list_variants(arguments).await?;
    let (workloads, leaders) = tokio::join!(Workloads::read(cluster), Leaders::fetch_snapshots(arguments));
    // Without the right to list namespaces, excluded variants look like any other.
    let namespaces = cluster.list(&NAMESPACES).await.unwrap_or_default();
    let (leader_snapshots, now) = (&leaders.received, Timestamp::now());
    let state = rows::ClusterState { variants, workloads, namespaces, leader_snapshots, now };
    let missing = leaders.missing_reason();
    let missing = missing
        .map(|reason| format!("SATURATION, TTFT and ITL unavailable: no snapshot from a leader: {reason}"));
    let unreadable = state.workloads.unreadable.iter();
    let unreadable = unreadable.map(|(kind, error)| format!("READY unavailable for kind {kind}: {error}"));
    Ok(Reading {
        rows: state.rows(),
        gpus: rows::gpu_rows(leader_snapshots),
        notes: missing.into_iter().chain(unreadable).collect(),
        scope: cluster.scope(),
        now,
    })
}

#[cfg(test)]
mod tests;
