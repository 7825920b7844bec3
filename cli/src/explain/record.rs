//! `wva explain --record FILE`: appends the snapshot of each cycle, one per line, for `wva report` and
//! `wva simulate --replay`. It continues through outages and changes of leader.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Arg, ArgMatches, value_parser};
use hyper::StatusCode;
use wva_crds::GoDuration;
use wva_runtime::Signals;

use crate::arguments::{file_option, option, path_value};
use crate::leader::{self, Answers, DebugEndpoint, DebugResponse};
use crate::output::NoAnswer;

/// Time between two polls. Of two cycles within this time, the first may be missed.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

pub(super) fn arguments() -> [Arg; 2] {
    let record = "Append the snapshot of every cycle to a file, one per line, for `wva report` and `wva simulate --replay`";
    let record = file_option("record", record)
        .conflicts_with_all(["name", "namespace", "all-namespaces", "selector", "snapshot"]);
    let time =
        option("for", "DURATION", "How long to record; Ctrl-C ends the recording earlier without loss");
    [record, time.value_parser(value_parser!(GoDuration)).default_value("1h").requires("record")]
}

pub(super) struct Recording<'a> {
    file: PathBuf,
    time: Duration,
    arguments: &'a ArgMatches,
}

impl<'a> Recording<'a> {
    /// `None` without `--record`.
    pub(super) fn from_arguments(arguments: &'a ArgMatches) -> Option<Self> {
        let file = path_value(arguments, "record")?.to_owned();
        let time = arguments.get_one::<GoDuration>("for").map_or(Duration::ZERO, |time| time.get());
        Some(Self { file, time, arguments })
    }

    #[expect(clippy::print_stderr, reason = "progress for the terminal; the output is the file")]
    pub(super) async fn run(&self) -> anyhow::Result<ExitCode> {
        let mut signals = Signals::listen()?;
        let end = async {
            tokio::select! {
                () = tokio::time::sleep(self.time) => {}
                _ = signals.recv() => {}
            }
        };
        let count = record(&self.file, async || leader::endpoints(self.arguments).await, end).await?;
        eprintln!("{count} cycles recorded to {}", self.file.display());
        Ok(ExitCode::SUCCESS)
    }
}

/// Appends the cycles of the controller at a debug address to a file, until `end`, as `wva explain --record` does.
/// Returns their number.
///
/// # Errors
/// The controller does not answer the first time, or the file cannot be written.
pub async fn record_cycles(address: &str, file: &Path, end: impl Future<Output = ()>) -> anyhow::Result<u64> {
    record(file, async || Ok(vec![DebugEndpoint::Address(address.to_owned())]), end).await
}

async fn record(
    path: &Path,
    endpoints: impl AsyncFn() -> anyhow::Result<Vec<DebugEndpoint>>,
    end: impl Future<Output = ()>,
) -> anyhow::Result<u64> {
    let opened = std::fs::OpenOptions::new().create(true).append(true).open(path);
    let mut file = opened.with_context(|| format!("cannot write {}", path.display()))?;
    let mut progress = Progress::default();
    let mut end = pin!(end);
    loop {
        tokio::select! {
            answer = fetch_cycle(&endpoints, progress.cycle.as_deref()) => {
                if let Some(snapshot) = progress.record(answer)? {
                    append(&mut file, path, &snapshot)?;
                }
            }
            () = &mut end => break,
        }
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            () = &mut end => break,
        }
    }
    Ok(progress.count)
}

/// `None` if the last cycle is still `previous`.
async fn fetch_cycle(
    endpoints: impl AsyncFn() -> anyhow::Result<Vec<DebugEndpoint>>,
    previous: Option<&str>,
) -> anyhow::Result<Option<Cycle>> {
    let path = match previous {
        Some(previous) => format!("/snapshot?after={previous}"),
        None => "/snapshot".to_owned(),
    };
    let query =
        async |endpoint: &DebugEndpoint| new_cycle(endpoint.get(&path).await?.ensure_success()?, previous);
    let mut answers = Answers::fetch_from(endpoints().await?, query).await;
    answers.ensure_one()?;
    let answer = answers.received.pop();
    let answer =
        answer.ok_or_else(|| NoAnswer(format!("no controller answered: {}", answers.failures.join("; "))))?;
    Ok(answer.answer)
}

struct Cycle {
    name: String,
    snapshot: String,
}

#[derive(Default)]
struct Progress {
    cycle: Option<String>,
    count: u64,
    gap: Option<String>,
}

impl Progress {
    #[expect(clippy::print_stderr, reason = "progress of a command that runs for hours")]
    fn record(&mut self, answer: anyhow::Result<Option<Cycle>>) -> anyhow::Result<Option<String>> {
        let cycle = match answer {
            Ok(cycle) => cycle,
            Err(error) if self.count == 0 => return Err(error),
            Err(error) => {
                let cause = format!("{error:#}");
                if self.gap.as_ref() != Some(&cause) {
                    eprintln!("gap: no cycle received, retrying until the end: {cause}");
                    self.gap = Some(cause);
                }
                return Ok(None);
            }
        };
        if self.gap.take().is_some() {
            eprintln!("end of the gap: recording again");
        }
        let Some(Cycle { name, snapshot }) = cycle else { return Ok(None) };
        self.count += 1;
        if self.count == 1 {
            eprintln!("recording from cycle {name}");
        }
        self.cycle = Some(name);
        Ok(Some(snapshot))
    }
}

fn append(file: &mut std::fs::File, path: &Path, snapshot: &str) -> anyhow::Result<()> {
    let line = format!("{}\n", snapshot.trim_end());
    file.write_all(line.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
}

fn new_cycle(response: DebugResponse, previous: Option<&str>) -> anyhow::Result<Option<Cycle>> {
    let name = response.cycle.context("the answer names no cycle")?;
    let is_same = response.status == StatusCode::NO_CONTENT || previous == Some(name.as_str());
    Ok((!is_same).then_some(Cycle { name, snapshot: response.text }))
}
