//! `wva explain`: fetches the trace and the snapshot of the leader's last cycle.

mod record;

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Context;
use clap::{ArgMatches, Command};
use hyper::StatusCode;
use serde_json::{Map, Value};

use super::cluster::{Cluster, ObjectId, id};
use super::leader::{self, Answers, ControllerAnswer, DebugEndpoint, DebugResponse};
use super::output::{self, NoAnswer, print};
use crate::arguments::{
    file_option, names_argument, object_options, output_format, output_option, path_value, value, values,
};

pub use record::record_cycles;

const ATTEMPTS: u32 = 5;

pub(crate) fn command() -> Command {
    let command = Command::new("explain")
        .about("Show why each variant has its target, step by step")
        .after_help(
            "Examples:\n  wva explain -n prod llama-h100\n  wva explain -A --snapshot cycle.json && wva decide -f cycle.json\n  \
             wva explain --record week.jsonl --for 168h\n  \
             wva simulate --replay week.jsonl --config changed.yaml\n  \
             wva explain --record day.jsonl --for 24h && wva report day.jsonl\n\n\
             Without --address it finds the controller's pods with your kubeconfig and\n\
             forwards a port to them. You need `list` on pods and `create` on\n\
             pods/portforward in the controller's namespace. Only the leader answers. With\n\
             --address and without -n it explains all namespaces.\n\n\
             Exit code: 0 explained, 1 the controller does not manage a variant, 2 wrong\n\
             usage, 3 no controller answered.",
        )
        .arg(names_argument())
        .arg(output_option(&["text", "wide", "json", "yaml", "name"]))
        .arg(file_option("snapshot", "Write the snapshot of the last cycle to a file, for `wva decide`"))
        .args(record::arguments());
    object_options(leader::options(command))
}

struct ExplainRequest {
    /// One for each chosen variant, or one for all.
    paths: Vec<String>,
    with_snapshot: bool,
}

struct Explanation {
    /// One for each path.
    texts: Vec<String>,
    snapshot: Option<String>,
}

pub(crate) fn explain(arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    if let Some(recording) = record::Recording::from_arguments(arguments) {
        return super::block_on(recording.run());
    }
    let file = path_value(arguments, "snapshot");
    let answers = super::block_on(async {
        let request =
            ExplainRequest { paths: explain_paths(arguments).await?, with_snapshot: file.is_some() };
        fetch_explanations(arguments, &request).await
    })?;
    if file.is_some() || !is_text(arguments) {
        answers.ensure_one()?;
    }
    let several = answers.received.len() > 1;
    for ControllerAnswer { controller, answer: explanation } in &answers.received {
        let heading = if several { format!("# {controller}\n") } else { String::new() };
        print(&format!(
            "{heading}{}\n",
            render(&explanation.texts, output_format(arguments))?.trim_end_matches('\n')
        ))?;
        if let (Some(file), Some(snapshot)) = (file, &explanation.snapshot) {
            std::fs::write(file, snapshot).with_context(|| format!("cannot write {}", file.display()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn is_text(arguments: &ArgMatches) -> bool {
    matches!(output_format(arguments), "text" | "wide")
}

fn render(texts: &[String], format: &str) -> anyhow::Result<String> {
    match (texts, format) {
        (_, "text" | "wide") => return Ok(texts.join("\n")),
        ([one], "json") => return Ok(one.clone()),
        _ => {}
    }
    let (mut first, mut decisions) = (None, Vec::new());
    for text in texts {
        let mut explanation: Map<String, Value> =
            serde_json::from_str(text).context("the controller's answer is not a JSON object")?;
        if let Some(Value::Array(found)) = explanation.get_mut("decisions").map(Value::take) {
            decisions.extend(found);
        }
        first.get_or_insert(explanation);
    }
    Ok(match format {
        "name" => decisions.iter().filter_map(|d| d["variant"].as_str()).map(output::object_name).collect(),
        format => {
            let mut all = first.unwrap_or_default();
            all.insert("decisions".to_owned(), decisions.into());
            output::structured(&all, format)?
        }
    })
}

/// Paths to ask for. Without a cluster, which `--address` does not need, and for a snapshot the default is all
/// namespaces.
async fn explain_paths(arguments: &ArgMatches) -> anyhow::Result<Vec<String>> {
    let format = if is_text(arguments) { "text" } else { "json" };
    let (namespace, names) = (value(arguments, "namespace"), values(arguments, "name"));
    if value(arguments, "selector").is_some() {
        let variants = Cluster::connect(arguments).await?.list_variants(arguments).await?;
        anyhow::ensure!(!variants.is_empty(), "no VariantAutoscaling has these labels");
        let ids = variants.iter().map(id);
        return ids.map(|ObjectId { namespace, name }| path(format, Some(&namespace), Some(&name))).collect();
    }
    // A snapshot has all variants, whatever the namespace.
    let has_no_default = namespace.is_some()
        || value(arguments, "address").is_some()
        || names.is_empty() && path_value(arguments, "snapshot").is_some();
    let default = if has_no_default { None } else { Cluster::connect(arguments).await?.namespace };
    let namespace = namespace.or(default.as_deref());
    if names.is_empty() {
        return Ok(vec![path(format, namespace, None)?]);
    }
    names.into_iter().map(|name| path(format, namespace, Some(name))).collect()
}

fn path(format: &str, namespace: Option<&str>, name: Option<&str>) -> anyhow::Result<String> {
    let mut path = format!("/explain?format={format}");
    for (key, value) in [("namespace", namespace), ("name", name)] {
        let Some(value) = value else { continue };
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
            NoAnswer(format!(
                "no explanation from --address {address}: it must be the controller's WVA_DEBUG_BIND_ADDRESS"
            ))
        })?;
        let answer = ControllerAnswer { controller: address.to_owned(), answer: answer? };
        return Ok(Answers { received: vec![answer], failures: Vec::new() });
    }
    let query = async |endpoint: &DebugEndpoint| fetch_explanation(endpoint, request).await;
    let Answers { received, mut failures } = Answers::fetch(arguments, query).await?;
    let mut explained = Vec::new();
    let mut has_refused = false;
    for ControllerAnswer { controller, answer } in received {
        match answer {
            Ok(answer) => explained.push(ControllerAnswer { controller, answer }),
            Err(error) => {
                has_refused |= !error.is::<NoAnswer>();
                failures.push(format!("{controller}: {error:#}"));
            }
        }
    }
    if explained.is_empty() {
        let problem = format!("no controller answered:\n  {}", failures.join("\n  "));
        return Err(if has_refused { anyhow::anyhow!(problem) } else { NoAnswer(problem).into() });
    }
    Ok(Answers { received: explained, failures })
}

/// Fetches snapshot and explanations of the same cycle. The inner error is the controller's own, such as "not the
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
        let mut explanations = Vec::new();
        for path in &request.paths {
            explanations.push(endpoint.get(path).await?);
        }
        let all = || snapshot.iter().chain(&explanations);
        if let Some(error) = all().find_map(response_error) {
            return Ok(Err(error));
        }
        anyhow::ensure!(
            explanations.iter().all(|explanation| explanation.cycle.is_some()),
            "the answer names no cycle, so it is not from a controller's debug address"
        );
        if all().all(|response: &DebugResponse| response.cycle == explanations[0].cycle) {
            let texts = explanations.into_iter().map(|explanation| explanation.text).collect();
            return Ok(Ok(Explanation { texts, snapshot: snapshot.map(|s| s.text) }));
        }
    }
    anyhow::bail!("a cycle ran between the requests {ATTEMPTS} times in a row: try again")
}

fn response_error(response: &DebugResponse) -> Option<anyhow::Error> {
    let text = response.text.trim();
    match response.status {
        status if status.is_success() => None,
        status if text.is_empty() => Some(anyhow::anyhow!(
            "the answer is {status} without text, so it is not from a controller's debug address \
             (WVA_DEBUG_BIND_ADDRESS)"
        )),
        // The leader does not manage the variant.
        StatusCode::NOT_FOUND => Some(anyhow::anyhow!("{text}")),
        _ => Some(NoAnswer(text.to_owned()).into()),
    }
}
