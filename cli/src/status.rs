//! `wva status`: a table of all variants, from the cluster, and from the leader what only it knows.

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
use crate::arguments::{flag, namespace_option, word};

/// Between two tables of `--watch`.
const EVERY: Duration = Duration::from_secs(5);
/// Clears a terminal and goes to its first line.
const CLEAR: &str = "\x1b[2J\x1b[H";

const HELP: &str = "\
TARGET      replicas decided (status.desiredOptimizedAlloc.numReplicas)
CURRENT     replicas the workload asks for
READY       those of them that are ready
SATURATION  how near the mean replica is to its thresholds, in percent: KV cache
            use or queue, whichever is nearer; - where no replica reports, or the
            leader cannot be reached
CONDITION   the reason of Ready; NotManaged where no controller serves the label

Examples:
  wva status
  wva status -n prod --watch

It needs `list` on variantautoscalings; without it on workloads CURRENT is from
the status. SATURATION is the leader's: it needs `list` on pods and `create` on
pods/portforward in the controller's namespace.";

/// The command line of `wva status`.
pub(crate) fn command() -> Command {
    let command = Command::new("status")
        .about("A table of all variants: target, current and ready replicas, saturation, condition")
        .after_help(HELP)
        .arg(namespace_option("Only variants of this namespace"))
        .arg(flag("watch", "Print it again every 5 seconds").short('w'));
    leader::options(command)
}

/// Runs the command.
pub(super) fn status(arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    super::block_on(async {
        let cluster = Cluster::connect(word(arguments, "namespace").map(str::to_owned)).await?;
        while show(&cluster, arguments).await? && arguments.get_flag("watch") {
            tokio::select! {
                () = tokio::time::sleep(EVERY) => {}
                _ = tokio::signal::ctrl_c() => break,
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Prints the table once; false where nobody reads it.
#[expect(clippy::print_stderr, reason = "why a column is empty is no part of the table")]
async fn show(cluster: &Cluster, arguments: &ArgMatches) -> anyhow::Result<bool> {
    let variants = cluster.list(&VARIANTS).await?;
    let (workloads, leaders) = tokio::join!(Workloads::read(cluster), Leaders::ask(arguments));
    // Who may not see namespaces sees excluded ones as any other.
    let namespaces = cluster.list(&NAMESPACES).await.unwrap_or_default();
    let read = rows::Read { variants, workloads, namespaces, leaders: &leaders.seen, now: Timestamp::now() };
    let clear = arguments.get_flag("watch") && std::io::stdout().is_terminal();
    let told = output::print(&format!("{}{}", if clear { CLEAR } else { "" }, rows::text(&read)))?;
    if let Some(why) = leaders.nobody() {
        eprintln!("wva: SATURATION is not known, for no leader told it: {why}");
    }
    for (kind, why) in &read.workloads.unseen {
        eprintln!("wva: READY is not known of every {kind}: {why}");
    }
    Ok(told)
}
