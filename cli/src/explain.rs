//! `wva explain`: fetches the trace and the snapshot of the leader's last cycle.

mod record;

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Context;
use clap::{ArgMatches, Command};

use super::leader::{self, Answers, ControllerAnswer, DebugEndpoint, DebugResponse};
use super::output::print;
use crate::arguments::{file_option, format_option, name_argument, namespace_option, path_value, value};

const ATTEMPTS: u32 = 5;

pub(crate) fn command() -> Command {
    let command = Command::new("explain")
        .about("Show why each variant has its target, step by step, from the running controller")
        .after_help(
            "Examples:\n  wva explain -n prod llama-h100\n  wva explain --snapshot cycle.json && wva decide -f cycle.json\n  \
             wva explain --record week.jsonl --for 168h && wva simulate --replay week.jsonl --config changed.yaml\n\n\
             Without --address it finds the controller's pods with your kubeconfig and forwards a port to them. You need\n\
             `list` on pods and `create` on pods/portforward in the controller's namespace. Only the leader answers.",
        )
        .args([name_argument(), namespace_option("Only variants of this namespace")])
        .arg(format_option(&["text", "json"]))
        .arg(file_option("snapshot", "Write the snapshot of the last cycle to a file, for `wva decide`"))
        .args(record::arguments());
    leader::options(command)
}

struct ExplainRequest {
    path: String,
    with_snapshot: bool,
}

struct Explanation {
    text: String,
    snapshot: Option<String>,
}

pub(crate) fn explain(arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    if let Some(recording) = record::Recording::from_arguments(arguments) {
        return super::block_on(recording.run());
    }
    let file = path_value(arguments, "snapshot");
    let request = ExplainRequest { path: explain_path(arguments)?, with_snapshot: file.is_some() };
    let answers = super::block_on(fetch_explanations(arguments, &request))?;
    if file.is_some() || value(arguments, "format") == Some("json") {
        answers.ensure_one()?;
    }
    let several = answers.received.len() > 1;
    for ControllerAnswer { controller, answer: explanation } in &answers.received {
        let heading = if several { format!("# {controller}\n") } else { String::new() };
        print(&format!("{heading}{}\n", explanation.text))?;
        if let (Some(file), Some(snapshot)) = (file, &explanation.snapshot) {
            std::fs::write(file, snapshot).with_context(|| format!("cannot write {}", file.display()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn explain_path(arguments: &ArgMatches) -> anyhow::Result<String> {
    let mut path = format!("/explain?format={}", value(arguments, "format").unwrap_or("text"));
    for key in ["namespace", "name"] {
        let Some(value) = value(arguments, key) else { continue };
        // Valid Kubernetes names need no escapes in a URL.
        let is_valid = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b);
        anyhow::ensure!(
            !value.is_empty() && value.bytes().all(is_valid),
            "{key} {value:?} is not a Kubernetes name: use lower-case letters, digits, - and ."
        );
        let _ = write!(path, "&{key}={value}");
    }
    Ok(path)
}

async fn fetch_explanations(
    arguments: &ArgMatches,
    request: &ExplainRequest,
) -> anyhow::Result<Answers<Explanation>> {
    if let Some(address) = value(arguments, "address") {
        let endpoint = DebugEndpoint::Address(address.to_owned());
        let answer = fetch_explanation(&endpoint, request).await.with_context(|| {
            format!(
                "no explanation from --address {address}: it must be the controller's WVA_DEBUG_BIND_ADDRESS"
            )
        })?;
        let answer = ControllerAnswer { controller: address.to_owned(), answer: answer? };
        return Ok(Answers { received: vec![answer], failures: Vec::new() });
    }
    let query = async |endpoint: &DebugEndpoint| fetch_explanation(endpoint, request).await?;
    let answers = Answers::fetch(arguments, query).await?;
    anyhow::ensure!(
        !answers.received.is_empty(),
        "no controller answered:\n  {}",
        answers.failures.join("\n  ")
    );
    Ok(answers)
}

/// Fetches snapshot and explanation of the same cycle. The inner error is the controller's own, such as "not the
/// leader".
async fn fetch_explanation(
    endpoint: &DebugEndpoint,
    request: &ExplainRequest,
) -> anyhow::Result<anyhow::Result<Explanation>> {
    for _ in 0..ATTEMPTS {
        let snapshot = match request.with_snapshot.then_some("/snapshot") {
            Some(path) => Some(endpoint.get(path).await?),
            None => None,
        };
        let explanation = endpoint.get(&request.path).await?;
        if let Some(error) = snapshot.iter().chain([&explanation]).find_map(response_error) {
            return Ok(Err(error));
        }
        anyhow::ensure!(
            explanation.cycle.is_some(),
            "the answer names no cycle, so it is not from a controller's debug address"
        );
        if snapshot.as_ref().is_none_or(|s: &DebugResponse| s.cycle == explanation.cycle) {
            let snapshot = snapshot.map(|s| s.text);
            return Ok(Ok(Explanation { text: explanation.text, snapshot }));
        }
    }
    anyhow::bail!("a cycle ran between snapshot and explanation {ATTEMPTS} times in a row: try again")
}

fn response_error(response: &DebugResponse) -> Option<anyhow::Error> {
    let text = response.text.trim();
    match response.status {
        status if status.is_success() => None,
        status if text.is_empty() => Some(anyhow::anyhow!(
            "the answer is {status} without text, so it is not from a controller's debug address \
             (WVA_DEBUG_BIND_ADDRESS)"
        )),
        _ => Some(anyhow::anyhow!("{text}")),
    }
}
