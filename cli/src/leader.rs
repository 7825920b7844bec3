//! The controllers that run, for the commands that ask what they know: where they can be asked, and what the one that
//! leads saw in its last cycle.

mod endpoint;
mod search;

use clap::{ArgMatches, Command};
use wva_scaling::Snapshot;

pub(super) use endpoint::{Answer, DebugEndpoint};
pub(super) use search::Search;

use crate::arguments::{option, word};

/// Adds the options that say which controller is asked.
pub(super) fn options(command: Command) -> Command {
    let address_help =
        "Debug address of a controller that runs outside the cluster, or of a port-forward of your own";
    let namespace_help = "Namespace of the controller; all are searched where it is left out";
    command
        .arg(
            option("address", "HOST:PORT", address_help)
                .value_parser(address)
                .conflicts_with_all(["controller-namespace", "selector"]),
        )
        .arg(option("controller-namespace", "NAMESPACE", namespace_help))
        .arg(
            option("selector", "SELECTOR", "Labels of the controller's pods")
                .short('l')
                .default_value("app.kubernetes.io/name=workload-variant-autoscaler"),
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
    let word = |name: &str| word(arguments, name).map(str::to_owned);
    if let Some(address) = word("address") {
        return Ok(vec![DebugEndpoint::Address(address)]);
    }
    let search =
        Search { namespace: word("controller-namespace"), selector: word("selector").unwrap_or_default() };
    search.endpoints().await
}

/// What controllers answered to one question.
pub(super) struct Answers<T> {
    pub(super) told: Vec<ControllerAnswer<T>>,
    /// Why the others did not, one line each.
    pub(super) silent: Vec<String>,
}

/// The answer of one controller.
pub(super) struct ControllerAnswer<T> {
    /// Its name.
    pub(super) who: String,
    pub(super) answer: T,
}

impl<T> Answers<T> {
    /// Asks every controller that the options name.
    pub(super) async fn ask(
        arguments: &ArgMatches,
        question: impl AsyncFn(&DebugEndpoint) -> anyhow::Result<T>,
    ) -> anyhow::Result<Self> {
        let (mut told, mut silent) = (Vec::new(), Vec::new());
        for endpoint in endpoints(arguments).await? {
            match question(&endpoint).await {
                Ok(answer) => told.push(ControllerAnswer { who: endpoint.to_string(), answer }),
                Err(error) => silent.push(format!("{endpoint}: {error:#}")),
            }
        }
        Ok(Self { told, silent })
    }

    /// Fails where several answered.
    pub(super) fn ensure_one(&self) -> anyhow::Result<()> {
        let names: Vec<&str> = self.told.iter().map(|told| told.who.as_str()).collect();
        anyhow::ensure!(
            names.len() < 2,
            "several controllers answer ({}): choose one with --controller-namespace or --selector",
            names.join(", ")
        );
        Ok(())
    }
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
        match Answers::ask(arguments, snapshot).await {
            Ok(Answers { told, silent }) => {
                let seen = told.into_iter().map(|told| Seen { who: told.who, snapshot: told.answer });
                Self { seen: seen.collect(), silent }
            }
            Err(error) => Self { seen: Vec::new(), silent: vec![format!("{error:#}")] },
        }
    }

    /// Why nothing is known, in one line; `None` where a leader told.
    pub(super) fn nobody(&self) -> Option<String> {
        self.seen.is_empty().then(|| self.silent.join("; "))
    }
}

async fn snapshot(endpoint: &DebugEndpoint) -> anyhow::Result<Snapshot> {
    let answer = endpoint.get("/snapshot").await?.success()?;
    Snapshot::parse(&answer.text).map_err(|e| {
        anyhow::anyhow!(e).context("it is of another release than this program: use the `wva` of its image")
    })
}
