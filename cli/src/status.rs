//! `wva status`: a table of all variants.

mod rows;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgMatches, Command};
use k8s_openapi::jiff::Timestamp;

use super::cluster::{Cluster, NAMESPACES, VARIANTS};
use super::leader::{self, Leaders};
use super::output;
use super::workloads::Workloads;
use crate::arguments::{flag, namespace_option, value};

const REFRESH_INTERVAL: Duration = Duration::from_secs(5);
const CLEAR: &str = "\x1b[2J\x1b[H";

const HELP: &str = "\
TARGET      decided replicas (status.desiredOptimizedAlloc.numReplicas)
CURRENT     spec.replicas of the workload
READY       ready replicas of the workload
SATURATION  mean load of the replicas in percent of the thresholds: KV cache use
            or queue, whichever is higher; - if no replica reports metrics or
            the leader cannot be reached
TTFT, ITL   share of the latencies of the last hour within the objectives of the
            model: times to first token, and times between tokens; - if there is
            no objective, or nothing is counted
CONDITION   reason of the condition Ready; NotManaged if no controller runs with
            the instance of the variant's label

Examples:
  wva status
  wva status -n prod --watch

You need `list` on variantautoscalings. Without `list` on workloads, CURRENT
comes from the status of the variant. SATURATION, TTFT and ITL come from the
leader: you need `list` on pods and `create` on pods/portforward in the
controller's namespace. A new leader counts TTFT and ITL again from the beginning.";

pub(crate) fn command() -> Command {
    let command = Command::new("status")
        .about(
            "List all variants with target, current and ready replicas, saturation, attainment and condition",
        )
        .after_help(HELP)
        .arg(namespace_option("Only variants of this namespace"))
        .arg(flag("watch", "Print the table again every 5 seconds").short('w'));
    leader::options(command)
}

pub(super) fn status(arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    super::block_on(async {
        let cluster = Cluster::connect(value(arguments, "namespace").map(str::to_owned)).await?;
        while print_table(&cluster, arguments).await? && arguments.get_flag("watch") {
            tokio::select! {
                () = tokio::time::sleep(REFRESH_INTERVAL) => {}
                _ = tokio::signal::ctrl_c() => break,
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

#[expect(clippy::print_stderr, reason = "notes on empty columns are not part of the table")]
async fn print_table(cluster: &Cluster, arguments: &ArgMatches) -> anyhow::Result<bool> {
    let variants = cluster.list(&VARIANTS).await?;
    let (workloads, leaders) = tokio::join!(Workloads::read(cluster), Leaders::fetch_snapshots(arguments));
    // Without the right to list namespaces, excluded variants look like any other.
    let namespaces = cluster.list(&NAMESPACES).await.unwrap_or_default();
    let leader_snapshots = &leaders.received;
    let state =
        rows::ClusterState { variants, workloads, namespaces, leader_snapshots, now: Timestamp::now() };
    let clear = arguments.get_flag("watch") && std::io::stdout().is_terminal();
    let is_open = output::print(&format!("{}{}", if clear { CLEAR } else { "" }, rows::render(&state)))?;
    if let Some(reason) = leaders.missing_reason() {
        eprintln!("wva: SATURATION, TTFT and ITL unavailable: no snapshot from a leader: {reason}");
    }
    for (kind, error) in &state.workloads.unreadable {
        eprintln!("wva: READY unavailable for kind {kind}: {error}");
    }
    Ok(is_open)
}
