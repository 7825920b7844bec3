//! `wva explain --record FILE`: appends the snapshot of each cycle to a file, one a line, for `wva simulate --replay`.
//! It goes on through changes of leader and outages, and ends after `--for` or with the first signal.

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

use crate::arguments::{file, file_option, option};
use crate::leader::{Answer, Answers, DebugEndpoint};

/// Between two questions. Cycles are rarer but where one was hastened, and then the earlier may be missed.
const PAUSE: Duration = Duration::from_secs(2);

pub(super) fn arguments() -> [Arg; 2] {
    let record = "Append the snapshot of every cycle to a file, one a line, which `wva simulate --replay` decides again";
    let record = file_option("record", record).conflicts_with_all(["name", "namespace", "snapshot"]);
    let time = option("for", "DURATION", "How long to record; Ctrl-C ends it earlier, and nothing is lost");
    [record, time.value_parser(value_parser!(GoDuration)).default_value("1h").requires("record")]
}

/// What is to be recorded, from whom, and how long.
pub(super) struct Recording<'a> {
    file: PathBuf,
    time: Duration,
    arguments: &'a ArgMatches,
}

impl<'a> Recording<'a> {
    /// `None` where the arguments ask for none.
    pub(super) fn of(arguments: &'a ArgMatches) -> Option<Self> {
        let file = file(arguments, "record")?.to_owned();
        let time = arguments.get_one::<GoDuration>("for").map_or(Duration::ZERO, |time| time.get());
        Some(Self { file, time, arguments })
    }

    #[expect(clippy::print_stderr, reason = "the file is the output; what is said is for who watches")]
    pub(super) async fn run(&self) -> anyhow::Result<ExitCode> {
        let mut signals = Signals::listen()?;
        let opened = std::fs::OpenOptions::new().create(true).append(true).open(&self.file);
        let mut file = opened.with_context(|| format!("cannot write {}", self.file.display()))?;
        let end = Instant::now() + self.time;
        let mut state = State::default();
        loop {
            tokio::select! {
                answer = self.ask(state.cycle.as_deref()) => {
                    if let Some(snapshot) = state.take(answer)? {
                        append(&mut file, &self.file, &snapshot)?;
                    }
                }
                _ = signals.received() => break,
            }
            tokio::select! {
                () = tokio::time::sleep_until(end.min(Instant::now() + PAUSE)) => {}
                _ = signals.received() => break,
            }
            if Instant::now() >= end {
                break;
            }
        }
        eprintln!("{} cycles recorded to {}", state.count, self.file.display());
        Ok(ExitCode::SUCCESS)
    }

    /// A cycle later than `seen`; `None` where none has run since.
    async fn ask(&self, seen: Option<&str>) -> anyhow::Result<Option<Cycle>> {
        let path = seen.map_or_else(|| "/snapshot".to_owned(), |seen| format!("/snapshot?after={seen}"));
        let question = async |endpoint: &DebugEndpoint| news(endpoint.get(&path).await?.success()?, seen);
        let mut answers = Answers::ask(self.arguments, question).await?;
        answers.ensure_one()?;
        let told = answers.told.pop();
        let told = told.with_context(|| format!("no controller tells it: {}", answers.silent.join("; ")))?;
        Ok(told.answer)
    }
}

/// One cycle of a controller.
struct Cycle {
    /// As the controller calls it.
    name: String,
    snapshot: String,
}

/// How far a recording is.
#[derive(Default)]
struct State {
    /// The newest cycle that was recorded.
    cycle: Option<String>,
    count: u64,
    /// Why there is a gap at the moment.
    gap: Option<String>,
}

impl State {
    /// What is to be recorded of an answer. Who never answered is not there, which is an error; who did may come back.
    #[expect(clippy::print_stderr, reason = "it runs for hours, and says how it goes")]
    fn take(&mut self, answer: anyhow::Result<Option<Cycle>>) -> anyhow::Result<Option<String>> {
        let news = match answer {
            Ok(news) => news,
            Err(error) if self.count == 0 => return Err(error),
            Err(error) => {
                let said = format!("{error:#}");
                if self.gap.as_ref() != Some(&said) {
                    eprintln!("a gap from now on; it is tried again until the end: {said}");
                    self.gap = Some(said);
                }
                return Ok(None);
            }
        };
        if self.gap.take().is_some() {
            eprintln!("recording again");
        }
        let Some(Cycle { name, snapshot }) = news else { return Ok(None) };
        self.count += 1;
        if self.count == 1 {
            eprintln!("recording: the first cycle is of {name}");
        }
        self.cycle = Some(name);
        Ok(Some(snapshot))
    }
}

/// A whole line or, where the disk is full, an error; what was written before stays.
fn append(file: &mut std::fs::File, path: &Path, snapshot: &str) -> anyhow::Result<()> {
    let line = format!("{}\n", snapshot.trim_end());
    file.write_all(line.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
}

/// The cycle an answer is of, where it is another than `seen`.
fn news(answer: Answer, seen: Option<&str>) -> anyhow::Result<Option<Cycle>> {
    let name = answer.cycle.context("the answer does not say which cycle it is of")?;
    let same = answer.status == StatusCode::NO_CONTENT || seen == Some(name.as_str());
    Ok((!same).then_some(Cycle { name, snapshot: answer.text }))
}
