//! What was read of a Prometheus, as a file: a line for the span, then lines of parts. A run that was interrupted goes on
//! after its last complete part.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use anyhow::{Context, ensure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wva_crds::envelope::{Envelope, FileHeader, FileKind};
use wva_simulator::backtest::history::{Chunk, History, ModelKey};
use wva_simulator::backtest::plan::Span;
use wva_simulator::backtest::signals::Selector;

use crate::output::UnreadableFile;

/// First line of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Header {
    /// Start, seconds since the epoch.
    pub(super) from: i64,
    /// End, seconds since the epoch.
    pub(super) to: i64,
    /// Length of a cell, seconds.
    pub(super) step: u32,
    /// Usual scrape interval, seconds.
    pub(super) interval: f64,
    /// Namespace that was asked for.
    pub(super) namespace: Option<String>,
    /// Model that was asked for.
    pub(super) model: Option<String>,
}

/// A later line of the file.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) enum Line {
    /// Part of the history of a model.
    Chunk(Box<Chunk>),
    /// A span of time is complete.
    Done(Part),
}

/// A span of time that was read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Part {
    /// Start, seconds since the epoch.
    pub(super) from: i64,
    /// End, seconds since the epoch.
    pub(super) to: i64,
    /// Warning of Prometheus that series may be missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) warning: Option<String>,
}

/// What was read.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) header: Header,
    pub(super) histories: BTreeMap<ModelKey, History>,
    pub(super) done: Vec<Part>,
    /// Queries and samples of this run.
    pub(super) queries: usize,
    pub(super) samples: u64,
    file: Option<BufWriter<File>>,
}

impl Store {
    pub(super) fn new(header: Header) -> Self {
        Self { header, histories: BTreeMap::new(), done: Vec::new(), queries: 0, samples: 0, file: None }
    }

    /// Writes to a new file from now on.
    pub(super) fn create(header: Header, file: &Path) -> anyhow::Result<Self> {
        let created = File::create(file).with_context(|| format!("cannot write {}", file.display()))?;
        let mut store = Self::new(header);
        let mut writer = BufWriter::new(created);
        write_line(&mut writer, &Envelope::new(FileKind::BacktestHistory, &store.header))?;
        store.file = Some(writer);
        Ok(store)
    }

    /// Reads a file. An incomplete last line is left out.
    pub(super) fn read(file: &Path) -> anyhow::Result<Self> {
        let opened = File::open(file).map_err(|error| UnreadableFile::new(file, error))?;
        let mut lines = BufReader::new(opened).lines();
        let at = |line: usize| format!("{} line {line}", file.display());
        let first = lines.next().with_context(|| format!("{} is empty", file.display()))??;
        let header: FileHeader = serde_json::from_str(&first).with_context(|| at(1))?;
        header
            .ensure_kind(FileKind::BacktestHistory, "name a file of `wva backtest --export` or --cache")
            .with_context(|| at(1))?;
        let mut store = Self::new(serde_json::from_str(&first).with_context(|| at(1))?);
        ensure!(
            (1..=300).contains(&store.header.step) && store.header.to > store.header.from,
            "{}: step {} s, from {} to {}: not a span of cells; export it again",
            at(1),
            store.header.step,
            store.header.from,
            store.header.to
        );
        let mut part = Vec::new();
        let mut lines = lines.enumerate().peekable();
        while let Some((i, line)) = lines.next() {
            let line = match serde_json::from_str(&line?) {
                Ok(line) => line,
                // Interrupted while it was written.
                Err(_) if lines.peek().is_none() => break,
                Err(error) => return Err(error).with_context(|| at(i + 2)),
            };
            match line {
                Line::Chunk(chunk) => part.push(*chunk),
                Line::Done(done) => store.keep(std::mem::take(&mut part), done),
            }
        }
        Ok(store)
    }

    /// Leaves out models that were not asked for.
    ///
    /// # Errors
    /// No model is left.
    pub(super) fn only(mut self, selector: &Selector, file: &Path) -> anyhow::Result<Self> {
        let names: Vec<String> = self.histories.keys().map(ToString::to_string).collect();
        let is_asked_for =
            |asked: &Option<String>, own: &String| asked.as_ref().is_none_or(|asked| asked == own);
        self.histories.retain(|key, _| {
            is_asked_for(&selector.namespace, &key.namespace) && is_asked_for(&selector.model, &key.model)
        });
        ensure!(
            !self.histories.is_empty(),
            "{} has no such model: correct -n or --model; it has {}",
            file.display(),
            if names.is_empty() { "none".to_owned() } else { names.join(", ") }
        );
        Ok(self)
    }

    /// Goes on with the file.
    pub(super) fn resume(file: &Path) -> anyhow::Result<Self> {
        let mut store = Self::read(file)?;
        // Written again without an incomplete part, and only then put in place.
        let draft = file.with_extension("part");
        store.export(&draft, false)?;
        std::fs::rename(&draft, file).with_context(|| format!("cannot replace {}", file.display()))?;
        let opened = File::options().append(true).open(file);
        store.file =
            Some(BufWriter::new(opened.with_context(|| format!("cannot write {}", file.display()))?));
        Ok(store)
    }

    /// Adds a part that was read, and writes it.
    pub(super) fn add(&mut self, chunks: Vec<Chunk>, done: Part) -> anyhow::Result<()> {
        if let Some(file) = &mut self.file {
            for chunk in &chunks {
                write_line(file, &Line::Chunk(Box::new(chunk.clone())))?;
            }
            write_line(file, &Line::Done(done.clone()))?;
            file.flush().context("cannot write the cache")?;
        }
        self.keep(chunks, done);
        Ok(())
    }

    fn keep(&mut self, chunks: Vec<Chunk>, done: Part) {
        let Header { from, to, step, .. } = self.header;
        for chunk in chunks {
            let history = self.histories.entry(chunk.key.clone());
            history.or_insert_with_key(|key| History::new(key.clone(), from, to, step)).add(chunk);
        }
        self.done.push(done);
    }

    pub(super) fn is_done(&self, span: Span) -> bool {
        self.done.iter().any(|part| part.from <= span.from && part.to >= span.to)
    }

    /// Writes a file for `--from`.
    pub(super) fn export(&self, file: &Path, is_anonymous: bool) -> anyhow::Result<()> {
        let created = File::create(file).with_context(|| format!("cannot write {}", file.display()))?;
        let number = |key: &ModelKey| self.histories.keys().position(|own| own == key).unwrap_or(0) + 1;
        let name = |key: &ModelKey| ModelKey {
            namespace: format!("namespace-{}", number(key)),
            model: format!("model-{}", number(key)),
        };
        let mut writer = BufWriter::new(created);
        if is_anonymous {
            // What was asked for names them too, and warnings of Prometheus may.
            let header = Header { namespace: None, model: None, ..self.header.clone() };
            let done: Vec<Part> = self.done.iter().map(|part| Part { warning: None, ..*part }).collect();
            self.write(&mut writer, &header, &done, name)?;
        } else {
            self.write(&mut writer, &self.header, &self.done, ModelKey::clone)?;
        }
        writer.flush().with_context(|| format!("cannot write {}", file.display()))
    }

    fn write(
        &self,
        writer: &mut impl Write,
        header: &Header,
        done: &[Part],
        name: impl Fn(&ModelKey) -> ModelKey,
    ) -> anyhow::Result<()> {
        write_line(writer, &Envelope::new(FileKind::BacktestHistory, header))?;
        for (key, history) in &self.histories {
            write_line(writer, &Line::Chunk(Box::new(whole(name(key), history))))?;
        }
        for part in done {
            write_line(writer, &Line::Done(part.clone()))?;
        }
        Ok(())
    }
}

fn whole(key: ModelKey, history: &History) -> Chunk {
    Chunk {
        key,
        from: history.from,
        cells: history.cells.clone(),
        windows: history.windows.clone(),
        engine: history.engine,
        points: history.points.clone(),
        gpus: history.gpus.clone(),
    }
}

fn write_line(writer: &mut impl Write, line: &impl Serialize) -> anyhow::Result<()> {
    let mut text = serde_json::to_string(line)?;
    text.push('\n');
    writer.write_all(text.as_bytes()).context("cannot write what was read of Prometheus")
}
