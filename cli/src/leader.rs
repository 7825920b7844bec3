//! The controllers that run, for the commands that ask what they know: where they can be asked, and what the one that
//! leads saw in its last cycle.

mod endpoint;
mod search;

use clap::{Arg, ArgMatches, Command};
use wva_scaling::Snapshot;

pub(super) use endpoint::{Answer, DebugEndpoint};
pub(super) use search::Search;

/// Adds the options that say which controller is asked.
pub(super) fn options(command: Command) -> Command {
    command
        .arg(
            Arg::new("address")
                .long("address")
                .value_name("HOST:PORT")
                .value_parser(address)
                .conflicts_with_all(["controller-namespace", "selector"])
                .help("Debug address of a controller that runs outside the cluster, or of a port-forward of your own"),
        )
        .arg(
            Arg::new("controller-namespace")
                .long("controller-namespace")
                .value_name("NAMESPACE")
                .help("Namespace of the controller; all are searched where it is left out"),
        )
        .arg(
            Arg::new("selector")
                .short('l')
                .long("selector")
                .value_name("SELECTOR")
                .default_value("app.kubernetes.io/name=workload-variant-autoscaler")
                .help("Labels of the controller's pods"),
        )
}

/// A host and a port, and no URL, of which a name server would be asked.
fn address(text: &str) -> Result<String, String> {
    let fits = text.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    if fits { Ok(text.to_owned()) } else { Err("write a host and a port, such as 127.0.0.1:8082".to_owned()) }
}

/// Where the controllers can be asked that the options name; at least one.
pub(super) async fn endpoints(arguments: &ArgMatches) -> anyhow::Result<Vec<DebugEndpoint>> {
    let word = |name: &str| arguments.get_one::<String>(name).cloned();
    if let Some(address) = word("address") {
        return Ok(vec![DebugEndpoint::Address(address)]);
    }
    let search =
        Search { namespace: word("controller-namespace"), selector: word("selector").unwrap_or_default() };
    search.endpoints().await
}

/// What a leader saw in its last cycle.
pub(super) struct Seen {
    /// Who told it.
    pub(super) who: String,
    pub(super) snapshot: Snapshot,
}

/// What all leaders told, and why the others did not.
#[derive(Default)]
pub(super) struct Leaders {
    pub(super) seen: Vec<Seen>,
    /// One line each.
    pub(super) silent: Vec<String>,
}

impl Leaders {
    /// Asks every controller that the options name. That nobody answers is no error: what they would have told is then
    /// not known.
    pub(super) async fn ask(arguments: &ArgMatches) -> Self {
        let mut all = Self::default();
        let endpoints = match endpoints(arguments).await {
            Ok(endpoints) => endpoints,
            Err(error) => {
                all.silent.push(format!("{error:#}"));
                return all;
            }
        };
        for endpoint in endpoints {
            match snapshot(&endpoint).await {
                Ok(snapshot) => all.seen.push(Seen { who: endpoint.to_string(), snapshot }),
                Err(error) => all.silent.push(format!("{endpoint}: {error:#}")),
            }
        }
        all
    }

    /// Why nothing is known, in one line; `None` where a leader told.
    pub(super) fn nobody(&self) -> Option<String> {
        self.seen.is_empty().then(|| self.silent.join("; "))
    }
}

async fn snapshot(endpoint: &DebugEndpoint) -> anyhow::Result<Snapshot> {
    let Answer { status, text, .. } = endpoint.get("/snapshot").await?;
    anyhow::ensure!(status.is_success(), "{}", if text.is_empty() { status.to_string() } else { text });
    Snapshot::parse(&text).map_err(|e| {
        anyhow::anyhow!(e).context("it is of another release than this program: use the `wva` of its image")
    })
}
