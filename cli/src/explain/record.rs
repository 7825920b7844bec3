//! `wva explain --record FILE`: appends the snapshot of each cycle, one per line, for `wva report` and
//! `wva simulate --replay`. It continues through outages and changes of leader.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Arg, ArgMatches, value_parser};
use hyper::StatusCode;
use tokio::time::Instant;
use wva_crds::GoDuration;
use wva_runtime::Signals;

use crate::arguments::{file_option, option, path_value};
use crate::leader::{Answers, DebugEndpoint, DebugResponse};

/// If two cycles come within this time, the first may be missed.
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
        let opened = std::fs::OpenOptions::new().create(true).append(true).open(&self.file);
        let mut file = opened.with_context(|| format!("cannot write {}", self.file.display()))?;
        let end = Instant::now() + self.time;
        let mut progress = Progress::default();
        loop {
            tokio::select! {
                answer = self.fetch_cycle(progress.cycle.as_deref()) => {
                    if let Some(snapshot) = progress.record(answer)? {
                        append(&mut file, &self.file, &snapshot)?;
                    }
                }
                _ = signals.recv() => break,
            }
            tokio::select! {
                () = tokio::time::sleep_until(end.min(Instant::now() + POLL_INTERVAL)) => {}
                _ = signals.recv() => break,
            }
            if Instant::now() >= end {
                break;
            }
        }
        eprintln!("{} cycles recorded to {}", progress.count, self.file.display());
        Ok(ExitCode::SUCCESS)
    }

    /// `None` if the last cycle is still `previous`.
    async fn fetch_cycle(&self, previous: Option<&str>) -> anyhow::Result<Option<Cycle>> {
        let path = match previous {
            Some(previous) => format!("/snapshot?after={previous}"),
            None => "/snapshot".to_owned(),
        };
        let query = async |endpoint: &DebugEndpoint| {
            new_cycle(endpoint.get(&path).await?.ensure_success()?, previous)
        };
        let mut answers = Answers::fetch(self.arguments, query).await?;
        answers.ensure_one()?;
        let answer = answers.received.pop();
        let answer =
            answer.with_context(|| format!("no controller answered: {}", answers.failures.join("; ")))?;
        Ok(answer.answer)
    }
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
