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

use super::ask::{Answer, Door};
use super::controllers::Search;
use super::{search, word};
use crate::run::Signals;

/// Between two questions. Cycles are rarer but where one was hastened, and then the earlier may be missed.
const PAUSE: Duration = Duration::from_secs(2);

pub(super) fn arguments() -> [Arg; 2] {
    let record = Arg::new("record")
        .long("record")
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .conflicts_with_all(["name", "namespace", "snapshot"])
        .help("Append the snapshot of every cycle to a file, one a line, which `wva simulate --replay` decides again");
    let time = Arg::new("for")
        .long("for")
        .value_name("DURATION")
        .value_parser(value_parser!(GoDuration))
        .default_value("1h")
        .requires("record")
        .help("How long to record; Ctrl-C ends it earlier, and nothing is lost");
    [record, time]
}

/// What is to be recorded, from whom, and how long.
pub(super) struct Recording {
    file: PathBuf,
    time: Duration,
    source: Source,
}

enum Source {
    Address(Door),
    Cluster(Search),
}

impl Recording {
    /// `None` where the arguments ask for none.
    pub(super) fn of(arguments: &ArgMatches) -> Option<Self> {
        let file = arguments.get_one::<PathBuf>("record")?.clone();
        let time = arguments.get_one::<GoDuration>("for").map_or(Duration::ZERO, |time| time.get());
        let source = match word(arguments, "address") {
            Some(address) => Source::Address(Door::Address(address.to_owned())),
            None => Source::Cluster(search(arguments)),
        };
        Some(Self { file, time, source })
    }

    #[expect(clippy::print_stderr, reason = "it runs for hours, and says how it goes")]
    pub(super) async fn run(&self) -> anyhow::Result<ExitCode> {
        let mut signals = Signals::listen()?;
        let opened = std::fs::OpenOptions::new().create(true).append(true).open(&self.file);
        let mut file = opened.with_context(|| format!("cannot write {}", self.file.display()))?;
        let end = Instant::now() + self.time;
        let (mut cycle, mut count, mut quiet) = (None, 0_u64, None);
        loop {
            let answer = tokio::select! {
                answer = self.source.ask(cycle.as_deref()) => answer,
                () = signals.asked() => break,
            };
            match answer {
                Ok(news) => {
                    if quiet.take().is_some() {
                        eprintln!("recording again");
                    }
                    if let Some((name, snapshot)) = news {
                        append(&mut file, &self.file, &snapshot)?;
                        count += 1;
                        if count == 1 {
                            eprintln!("recording to {}: the first cycle is of {name}", self.file.display());
                        }
                        cycle = Some(name);
                    }
                }
                // Who never answered is not there; who did may come back.
                Err(error) if count == 0 => return Err(error),
                Err(error) => {
                    let said = format!("{error:#}");
                    if quiet.as_ref() != Some(&said) {
                        eprintln!("a gap from now on, trying again until it ends: {said}");
                        quiet = Some(said);
                    }
                }
            }
            tokio::select! {
                () = tokio::time::sleep_until(end.min(Instant::now() + PAUSE)) => {}
                () = signals.asked() => break,
            }
            if Instant::now() >= end {
                break;
            }
        }
        eprintln!("{count} cycles recorded to {}", self.file.display());
        Ok(ExitCode::SUCCESS)
    }
}

/// A whole line or, where the disk is full, an error; what was written before stays.
fn append(file: &mut std::fs::File, path: &Path, snapshot: &str) -> anyhow::Result<()> {
    let line = format!("{}\n", snapshot.trim_end());
    file.write_all(line.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
}

impl Source {
    /// A cycle later than `seen`, with its name; `None` where none has run since.
    async fn ask(&self, seen: Option<&str>) -> anyhow::Result<Option<(String, String)>> {
        let path = seen.map_or_else(|| "/snapshot".to_owned(), |seen| format!("/snapshot?after={seen}"));
        let doors = match self {
            Self::Address(door) => return news(door.get(&path).await?, seen),
            Self::Cluster(search) => search.doors().await?,
        };
        let (mut told, mut silent) = (Vec::new(), Vec::new());
        for door in doors {
            match door.get(&path).await.and_then(|answer| news(answer, seen)) {
                Ok(answer) => told.push((door.to_string(), answer)),
                Err(error) => silent.push(format!("{door}: {error:#}")),
            }
        }
        anyhow::ensure!(
            told.len() < 2,
            "several controllers answer ({}): choose one with --controller-namespace or --selector",
            told.iter().map(|(who, _)| who.as_str()).collect::<Vec<_>>().join(", ")
        );
        let (_, answer) =
            told.pop().with_context(|| format!("no controller tells it: {}", silent.join("; ")))?;
        Ok(answer)
    }
}

/// The cycle an answer is of, and its snapshot, where it is another than `seen`.
fn news(answer: Answer, seen: Option<&str>) -> anyhow::Result<Option<(String, String)>> {
    if !answer.status.is_success() {
        let said = answer.text.trim();
        anyhow::bail!("{}", if said.is_empty() { answer.status.to_string() } else { said.to_owned() });
    }
    let name = answer.cycle.context("the answer does not say which cycle it is of")?;
    let same = answer.status == StatusCode::NO_CONTENT || seen == Some(name.as_str());
    Ok((!same).then_some((name, answer.text)))
}
