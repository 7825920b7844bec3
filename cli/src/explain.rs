//! `wva explain`: asks the running controller for the trace of its last cycle, and for the snapshot behind it.
//! Recomputes nothing. Without `--address` it finds the controller's pods itself and forwards a port to them.

mod record;

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Arg, ArgMatches, Command, value_parser};
use hyper::StatusCode;

use super::cluster::{name_argument, namespace_option};
use super::leader::{self, Answer, DebugEndpoint};
use super::output::print;

/// Attempts to get snapshot and explanation of one cycle.
const TRIES: u32 = 5;

pub(crate) fn command(format: Arg) -> Command {
    let command = Command::new("explain")
        .about("Why each variant has its target, stage by stage, as the running controller tells it")
        .after_help(
            "Examples:\n  wva explain -n prod llama-h100\n  wva explain --snapshot cycle.json && wva decide -f cycle.json\n  \
             wva explain --record week.jsonl --for 168h && wva simulate --replay week.jsonl --config changed.yaml\n\n\
             It finds the controller's pods with your kubeconfig and forwards a port to them, for which you need to \
             list pods and to create pods/portforward there. Only the leader answers.",
        )
        .args([name_argument(), namespace_option()])
        .arg(format)
        .arg(
            Arg::new("snapshot")
                .long("snapshot")
                .value_name("FILE")
                .value_parser(value_parser!(std::path::PathBuf))
                .help("Write the snapshot of the last cycle, which `wva decide` decides again"),
        )
        .args(record::arguments());
    leader::options(command)
}

/// What is asked of a controller.
struct Question {
    /// Path and query for the explanation.
    explain: String,
    with_snapshot: bool,
}

/// What one controller told.
struct Told {
    /// Who told it.
    who: String,
    text: String,
    snapshot: Option<String>,
}

pub(crate) fn explain(arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    let file = arguments.get_one::<std::path::PathBuf>("snapshot");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if let Some(recording) = record::Recording::of(arguments) {
        return runtime.block_on(recording.run());
    }
    let question = Question { explain: path(arguments)?, with_snapshot: file.is_some() };
    let told = runtime.block_on(tell(arguments, &question))?;
    let one_document = file.is_some() || word(arguments, "format") == Some("json");
    anyhow::ensure!(
        told.len() == 1 || !one_document,
        "several controllers answer ({}): choose one with --controller-namespace or --selector",
        told.iter().map(|t| t.who.as_str()).collect::<Vec<_>>().join(", ")
    );
    for t in &told {
        let who = if told.len() > 1 { format!("# {}\n", t.who) } else { String::new() };
        print(&format!("{who}{}\n", t.text))?;
        if let (Some(file), Some(snapshot)) = (file, &t.snapshot) {
            std::fs::write(file, snapshot).with_context(|| format!("cannot write {}", file.display()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn word<'a>(arguments: &'a ArgMatches, name: &str) -> Option<&'a str> {
    arguments.get_one::<String>(name).map(String::as_str)
}

/// The path to ask for, with what it is to be narrowed to.
fn path(arguments: &ArgMatches) -> anyhow::Result<String> {
    let mut path = format!("/explain?format={}", word(arguments, "format").unwrap_or("text"));
    for key in ["namespace", "name"] {
        let Some(value) = word(arguments, key) else { continue };
        // What the API server would never store can be asked of nobody, and needs no escapes.
        let valid = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b);
        anyhow::ensure!(
            !value.is_empty() && value.bytes().all(valid),
            "{key} {value:?} is no name of Kubernetes: lower-case letters, digits, - and . make one"
        );
        let _ = write!(path, "&{key}={value}");
    }
    Ok(path)
}

/// Asks whom the arguments name, or every controller there is.
async fn tell(arguments: &ArgMatches, question: &Question) -> anyhow::Result<Vec<Told>> {
    if let Some(address) = word(arguments, "address") {
        let endpoint = DebugEndpoint::Address(address.to_owned());
        let answer = ask(&endpoint, question).await.with_context(|| {
            format!("nothing was told at {address}: it is --address, the controller's WVA_DEBUG_BIND_ADDRESS")
        })?;
        return Ok(vec![answer.told(&endpoint)?]);
    }
    let (mut told, mut silent) = (Vec::new(), Vec::new());
    for endpoint in leader::endpoints(arguments).await? {
        match ask(&endpoint, question).await.and_then(|answer| answer.told(&endpoint)) {
            Ok(answer) => told.push(answer),
            Err(error) => silent.push(format!("  {endpoint}: {error:#}")),
        }
    }
    anyhow::ensure!(!told.is_empty(), "no controller tells it:\n{}", silent.join("\n"));
    Ok(told)
}

/// What came of a question.
enum Outcome {
    Told {
        text: String,
        snapshot: Option<String>,
    },
    /// The status, and what was said.
    Refused(StatusCode, String),
}

impl Outcome {
    fn told(self, endpoint: &DebugEndpoint) -> anyhow::Result<Told> {
        match self {
            Self::Told { text, snapshot } => Ok(Told { who: endpoint.to_string(), text, snapshot }),
            Self::Refused(_, said) if !said.is_empty() => Err(anyhow::anyhow!(said)),
            Self::Refused(status, _) => Err(anyhow::anyhow!(
                "it answered {status} without a word, as no controller's debug address (WVA_DEBUG_BIND_ADDRESS) does"
            )),
        }
    }
}

/// Snapshot and explanation are to be of one cycle. One that runs in between is rare, and once more is enough.
async fn ask(endpoint: &DebugEndpoint, question: &Question) -> anyhow::Result<Outcome> {
    for _ in 0..TRIES {
        let snapshot = match question.with_snapshot.then_some("/snapshot") {
            Some(path) => Some(endpoint.get(path).await?),
            None => None,
        };
        let explained = endpoint.get(&question.explain).await?;
        for answer in snapshot.iter().chain([&explained]) {
            if !answer.status.is_success() {
                return Ok(Outcome::Refused(answer.status, answer.text.trim().to_owned()));
            }
        }
        anyhow::ensure!(
            explained.cycle.is_some(),
            "the answer does not say which cycle it is of, so no controller's debug address gave it"
        );
        if snapshot.as_ref().is_none_or(|s: &Answer| s.cycle == explained.cycle) {
            let snapshot = snapshot.map(|s| s.text);
            return Ok(Outcome::Told { text: explained.text, snapshot });
        }
    }
    anyhow::bail!("a cycle ran between snapshot and explanation, {TRIES} times in a row: try again")
}
