//! `wva explain`: asks the running controller for the trace of its last cycle, and for the snapshot behind it.
//! Recomputes nothing. Without `--address` it finds the controller's pods itself and forwards a port to them.

mod record;

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Context;
use clap::{ArgMatches, Command};

use super::leader::{self, Answer, Answers, ControllerAnswer, DebugEndpoint};
use super::output::print;
use crate::arguments::{file, file_option, format_option, name_argument, namespace_option, word};

/// Attempts to get snapshot and explanation of one cycle.
const TRIES: u32 = 5;

pub(crate) fn command() -> Command {
    let command = Command::new("explain")
        .about("Why each variant has its target, stage by stage, as the running controller tells it")
        .after_help(
            "Examples:\n  wva explain -n prod llama-h100\n  wva explain --snapshot cycle.json && wva decide -f cycle.json\n  \
             wva explain --record week.jsonl --for 168h && wva simulate --replay week.jsonl --config changed.yaml\n\n\
             It finds the controller's pods with your kubeconfig and forwards a port to them, for which you need to \
             list pods and to create pods/portforward there. Only the leader answers.",
        )
        .args([name_argument(), namespace_option("Only variants of this namespace")])
        .arg(format_option(&["text", "json"]))
        .arg(file_option(
            "snapshot",
            "Write the snapshot of the last cycle, which `wva decide` decides again",
        ))
        .args(record::arguments());
    leader::options(command)
}

/// What is asked of a controller.
struct Question {
    /// Path and query for the explanation.
    explain: String,
    with_snapshot: bool,
}

/// What a controller explained.
struct Explanation {
    text: String,
    snapshot: Option<String>,
}

pub(crate) fn explain(arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    if let Some(recording) = record::Recording::of(arguments) {
        return super::block_on(recording.run());
    }
    let file = file(arguments, "snapshot");
    let question = Question { explain: path(arguments)?, with_snapshot: file.is_some() };
    let answers = super::block_on(tell(arguments, &question))?;
    if file.is_some() || word(arguments, "format") == Some("json") {
        answers.ensure_one()?;
    }
    let several = answers.told.len() > 1;
    for ControllerAnswer { who, answer: explanation } in &answers.told {
        let who = if several { format!("# {who}\n") } else { String::new() };
        print(&format!("{who}{}\n", explanation.text))?;
        if let (Some(file), Some(snapshot)) = (file, &explanation.snapshot) {
            std::fs::write(file, snapshot).with_context(|| format!("cannot write {}", file.display()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
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
async fn tell(arguments: &ArgMatches, question: &Question) -> anyhow::Result<Answers<Explanation>> {
    if let Some(address) = word(arguments, "address") {
        let answer = ask(&DebugEndpoint::Address(address.to_owned()), question).await.with_context(|| {
            format!("nothing was told at {address}: it is --address, the controller's WVA_DEBUG_BIND_ADDRESS")
        })?;
        let told = ControllerAnswer { who: address.to_owned(), answer: answer? };
        return Ok(Answers { told: vec![told], silent: Vec::new() });
    }
    let answers =
        Answers::ask(arguments, async |endpoint: &DebugEndpoint| ask(endpoint, question).await?).await?;
    anyhow::ensure!(!answers.told.is_empty(), "no controller tells it:\n  {}", answers.silent.join("\n  "));
    Ok(answers)
}

/// Asks one controller; the inner error is what it said instead. Snapshot and explanation are to be of one cycle. One
/// that runs in between is rare, and once more is enough.
async fn ask(endpoint: &DebugEndpoint, question: &Question) -> anyhow::Result<anyhow::Result<Explanation>> {
    for _ in 0..TRIES {
        let snapshot = match question.with_snapshot.then_some("/snapshot") {
            Some(path) => Some(endpoint.get(path).await?),
            None => None,
        };
        let explained = endpoint.get(&question.explain).await?;
        if let Some(refusal) = snapshot.iter().chain([&explained]).find_map(refusal) {
            return Ok(Err(refusal));
        }
        anyhow::ensure!(
            explained.cycle.is_some(),
            "the answer does not say which cycle it is of, so no controller's debug address gave it"
        );
        if snapshot.as_ref().is_none_or(|s: &Answer| s.cycle == explained.cycle) {
            let snapshot = snapshot.map(|s| s.text);
            return Ok(Ok(Explanation { text: explained.text, snapshot }));
        }
    }
    anyhow::bail!("a cycle ran between snapshot and explanation, {TRIES} times in a row: try again")
}

/// Why an answer is none.
fn refusal(answer: &Answer) -> Option<anyhow::Error> {
    let said = answer.text.trim();
    match answer.status {
        status if status.is_success() => None,
        status if said.is_empty() => Some(anyhow::anyhow!(
            "it answered {status} without a word, as no controller's debug address (WVA_DEBUG_BIND_ADDRESS) does"
        )),
        _ => Some(anyhow::anyhow!("{said}")),
    }
}
