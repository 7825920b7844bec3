//! Queries to the debug endpoints of controllers.

mod endpoint;
mod search;

use std::pin::pin;

use clap::{Arg, ArgMatches, Command};
use futures::{StreamExt, stream};
use wva_crds::picker_report::{PickerReport, PickerReports};
use wva_scaling::Snapshot;
use wva_scaling::snapshot::SnapshotFile;

pub(super) use endpoint::{DebugEndpoint, DebugResponse};

use crate::arguments::{option, parse_label, value};

const QUERIES_AT_ONCE: usize = 8;

/// Labels of the controller's pods and its Deployment.
pub(super) const CONTROLLER_PODS: &str = "app.kubernetes.io/name=workload-variant-autoscaler";

pub(super) fn options(command: Command) -> Command {
    let address_help =
        "Debug address of a controller outside the cluster, or of your own port-forward to a controller";
    let namespace_help = "Namespace of the controller; default: search all namespaces";
    let heading = |arg: Arg| arg.help_heading("Controller");
    command
        .arg(heading(
            option("address", "HOST:PORT", address_help)
                .value_parser(parse_address)
                .conflicts_with_all(["controller-namespace", "controller-selector"]),
        ))
        .arg(heading(option("controller-namespace", "NAMESPACE", namespace_help).value_parser(parse_label)))
        .arg(heading(
            option("controller-selector", "SELECTOR", "Label selector of the controller's pods")
                .default_value(CONTROLLER_PODS),
        ))
}

/// Accepts no URL, which would be looked up in DNS.
fn parse_address(text: &str) -> Result<String, String> {
    let is_valid = text.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    if is_valid { Ok(text.to_owned()) } else { Err("write HOST:PORT, such as 127.0.0.1:8082".to_owned()) }
}

pub(super) async fn endpoints(arguments: &ArgMatches) -> anyhow::Result<Vec<DebugEndpoint>> {
    if let Some(address) = value(arguments, "address") {
        return Ok(vec![DebugEndpoint::Address(address.to_owned())]);
    }
    search::find_endpoints(arguments).await
}

pub(super) struct Answers<T> {
    pub(super) received: Vec<ControllerAnswer<T>>,
    /// One line for each controller without an answer, with the cause.
    pub(super) failures: Vec<String>,
}

pub(super) struct ControllerAnswer<T> {
    pub(super) controller: String,
    pub(super) answer: T,
}

impl<T> Answers<T> {
    pub(super) async fn fetch(
        arguments: &ArgMatches,
        query: impl AsyncFn(&DebugEndpoint) -> anyhow::Result<T>,
    ) -> anyhow::Result<Self> {
        Ok(Self::fetch_from(endpoints(arguments).await?, query).await)
    }

    pub(super) async fn fetch_from(
        endpoints: Vec<DebugEndpoint>,
        query: impl AsyncFn(&DebugEndpoint) -> anyhow::Result<T>,
    ) -> Self {
        // Several at once: pods that hang cost one timeout together.
        let asked = stream::iter(&endpoints).map(async |endpoint| (endpoint, query(endpoint).await));
        let mut answers = pin!(asked.buffered(QUERIES_AT_ONCE));
        let (mut received, mut failures) = (Vec::new(), Vec::new());
        while let Some((endpoint, answer)) = answers.next().await {
            match answer {
                Ok(answer) => received.push(ControllerAnswer { controller: endpoint.to_string(), answer }),
                Err(error) => failures.push(format!("{endpoint}: {error:#}")),
            }
        }
        Self { received, failures }
    }

    pub(super) fn ensure_one(&self) -> anyhow::Result<()> {
        let names: Vec<&str> = self.received.iter().map(|answer| answer.controller.as_str()).collect();
        anyhow::ensure!(
            names.len() < 2,
            "several controllers answered ({}): choose one with --controller-namespace or --controller-selector",
            names.join(", ")
        );
        Ok(())
    }
}

/// Snapshot of a leader's last cycle.
pub(super) type LeaderSnapshot = ControllerAnswer<Snapshot>;
pub(super) type Leaders = Answers<Snapshot>;

impl Leaders {
    /// Queries every controller that the options select. Errors end up in `failures`.
    pub(super) async fn fetch_snapshots(arguments: &ArgMatches) -> Self {
        Self::fetch(arguments, fetch_snapshot).await.unwrap_or_else(|error| Self::failed(&error))
    }

    /// The same, and what the leaders last read of endpoint pickers.
    pub(super) async fn fetch_with_pickers(arguments: &ArgMatches) -> (Self, Vec<PickerReport>) {
        let query = async |endpoint: &DebugEndpoint| -> anyhow::Result<(Snapshot, Vec<PickerReport>)> {
            // A leader of an earlier release has no such page.
            Ok((fetch_snapshot(endpoint).await?, fetch_pickers(endpoint).await.unwrap_or_default()))
        };
        let Answers { received, failures } = match Answers::fetch(arguments, query).await {
            Ok(answers) => answers,
            Err(error) => return (Self::failed(&error), Vec::new()),
        };
        let mut pickers = Vec::new();
        let snapshots =
            received.into_iter().map(|ControllerAnswer { controller, answer: (answer, read) }| {
                pickers.extend(read);
                ControllerAnswer { controller, answer }
            });
        (Self { received: snapshots.collect(), failures }, pickers)
    }

    fn failed(error: &anyhow::Error) -> Self {
        Self { received: Vec::new(), failures: vec![format!("{error:#}")] }
    }

    /// `None` if a leader sent one.
    pub(super) fn missing_reason(&self) -> Option<String> {
        self.received.is_empty().then(|| self.failures.join("; "))
    }
}

async fn fetch_snapshot(endpoint: &DebugEndpoint) -> anyhow::Result<Snapshot> {
    let response = endpoint.get("/snapshot").await?.ensure_success()?;
    let file = SnapshotFile::parse(&response.text).map_err(|e| {
        anyhow::anyhow!(e).context("the controller runs another release: use the `wva` of its image")
    })?;
    Ok(file.snapshot)
}

async fn fetch_pickers(endpoint: &DebugEndpoint) -> anyhow::Result<Vec<PickerReport>> {
    let response = endpoint.get("/pickers").await?.ensure_success()?;
    Ok(serde_json::from_str::<PickerReports>(&response.text)?.pickers)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pods_that_hang_share_a_timeout_and_answers_keep_their_order() {
        let began = Instant::now();
        let addresses = ["a:1", "b:1", "c:1", "d:1", "e:1", "f:1", "g:1", "h:1", "i:1"];
        let endpoints = addresses.map(|address| DebugEndpoint::Address(address.to_owned()));
        let answers = Answers::fetch_from(endpoints.into(), async |endpoint| {
            let seconds = if endpoint.to_string() == "b:1" { 2 } else { 15 };
            sleep(Duration::from_secs(seconds)).await;
            anyhow::ensure!(seconds == 2 || endpoint.to_string() == "d:1", "no answer");
            Ok(seconds)
        })
        .await;
        assert_eq!(began.elapsed(), Duration::from_secs(30), "eight, and the ninth");
        let received: Vec<_> = answers.received.iter().map(|answer| answer.controller.as_str()).collect();
        assert_eq!(received, ["b:1", "d:1"]);
        assert_eq!(answers.failures.len(), 7);
        assert_eq!(answers.failures[..2], ["a:1: no answer", "c:1: no answer"]);
    }
}
