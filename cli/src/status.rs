//! `wva status`: a table of all variants.

mod rows;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgMatches, Command};
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::cluster::{Cluster, NAMESPACES, id};
use super::leader::{self, Leaders};
use super::output::{self, object_name};
use super::workloads::Workloads;
use crate::arguments::{flag, names_argument, object_options, output_format, output_option};

const REFRESH_INTERVAL: Duration = Duration::from_secs(5);
const CLEAR: &str = "\x1b[2J\x1b[H";

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

-o wide adds model, accelerator, cost of a replica, bounds and age.

Examples:
  wva status
  wva status -A -o wide
  wva status -n prod llama-h100 --watch

Exit code: 0 listed, 1 the cluster cannot be read or a named variant does not
exist, 2 wrong usage.

You need `list` on variantautoscalings. Without `list` on workloads, CURRENT
comes from the status of the variant. SATURATION, TTFT and ITL come from the
leader: you need `list` on pods and `create` on pods/portforward in the
controller's namespace. A new leader counts TTFT and ITL again from the beginning.";

pub(crate) fn command() -> Command {
    let command = Command::new("status")
        .about("List variants with desired, current and ready replicas, saturation, attainment and condition")
        .after_help(HELP)
        .arg(names_argument())
        .arg(output_option(&["text", "wide", "json", "yaml", "name"]))
        .arg(flag("watch", "Print again every 5 seconds").short('w'));
    object_options(leader::options(command))
}

pub(super) fn status(arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    super::block_on(async {
        let cluster = Cluster::connect(arguments).await?;
        while print_variants(&cluster, arguments).await? && arguments.get_flag("watch") {
            tokio::select! {
                () = tokio::time::sleep(REFRESH_INTERVAL) => {}
                _ = tokio::signal::ctrl_c() => break,
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

#[expect(clippy::print_stderr, reason = "notes on empty columns are not part of the table")]
async fn print_variants(cluster: &Cluster, arguments: &ArgMatches) -> anyhow::Result<bool> {
    let variants = cluster.list_variants(arguments).await?;
    let format = output_format(arguments);
    if format == "name" {
        return output::print(
            &variants.iter().map(|variant| object_name(&id(variant).name)).collect::<String>(),
        );
    }
    let (workloads, leaders) = tokio::join!(Workloads::read(cluster), Leaders::fetch_snapshots(arguments));
    // Without the right to list namespaces, excluded variants look like any other.
    let namespaces = cluster.list(&NAMESPACES).await.unwrap_or_default();
    let leader_snapshots = &leaders.received;
    let state =
        rows::ClusterState { variants, workloads, namespaces, leader_snapshots, now: Timestamp::now() };
    let rows = state.rows();
    let text = match format {
        "json" | "yaml" => output::structured(&json!({ "variants": rows }), format)?,
        _ if rows.is_empty() => format!("no VariantAutoscalings {}\n", cluster.scope()),
        _ => rows::render(&rows, format == "wide"),
    };
    let clear = arguments.get_flag("watch") && std::io::stdout().is_terminal();
    let is_open = output::print(&format!("{}{text}", if clear { CLEAR } else { "" }))?;
    if let Some(reason) = leaders.missing_reason() {
        eprintln!("wva: SATURATION, TTFT and ITL unavailable: no snapshot from a leader: {reason}");
    }
    for (kind, error) in &state.workloads.unreadable {
        eprintln!("wva: READY unavailable for kind {kind}: {error}");
    }
    Ok(is_open)
}
