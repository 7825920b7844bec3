//! What is kept of a model's series: counts for each cell of time, histograms for each window, and facts of its engines.

use std::ops::Range;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::WINDOW;
use super::steps::Point;

/// A model in a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct ModelKey {
    /// Namespace of its pods; empty if the series have no such label.
    pub namespace: String,
    /// Name of the model, as the servers report it.
    pub model: String,
}

impl std::fmt::Display for ModelKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.model)
        } else {
            write!(f, "{}/{}", self.namespace, self.model)
        }
    }
}

/// Sums over the pods of a model within a cell of time. A cell is as long as the usual scrape interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "Row", into = "[f32; 7]")]
#[schemars(with = "[f32; 7]")]
pub struct Cell {
    /// Requests that arrived.
    pub arrivals: f32,
    /// Requests that got their first token.
    pub first_tokens: f32,
    /// Prompt tokens of these requests.
    pub prompt_tokens: f32,
    /// Generated tokens.
    pub generated: f32,
    /// Replicas that served, the mean over the cell.
    pub replicas: f32,
    /// Replicas without samples between two scrapes that are too far apart, the mean over the cell.
    pub missing: f32,
    /// Sum of the times to these first tokens, seconds.
    pub first_token_seconds: f32,
}

/// A cell in a file.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a cell has seven numbers, or six in a file of an earlier release")]
enum Row {
    Full([f32; 7]),
    WithoutFirstTokenSeconds([f32; 6]),
}

impl From<Row> for Cell {
    fn from(row: Row) -> Self {
        let (first, first_token_seconds) = match row {
            Row::Full([first @ .., last]) => (first, last),
            Row::WithoutFirstTokenSeconds(first) => (first, 0.0),
        };
        let [arrivals, first_tokens, prompt_tokens, generated, replicas, missing] = first;
        Self { arrivals, first_tokens, prompt_tokens, generated, replicas, missing, first_token_seconds }
    }
}

impl From<Cell> for [f32; 7] {
    fn from(cell: Cell) -> Self {
        let Cell { arrivals, first_tokens, prompt_tokens, generated, replicas, missing, first_token_seconds } =
            cell;
        // Thousandths suffice, and keep the file short.
        [arrivals, first_tokens, prompt_tokens, generated, replicas, missing, first_token_seconds]
            .map(|value| (value * 1000.0).round() / 1000.0)
    }
}

/// Counts of a histogram by window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Histogram {
    /// Finite upper bounds, ascending.
    pub bounds: Vec<f64>,
    /// Counts of each bucket by window, and beyond the last bound. Empty: the window has no data.
    pub rows: Vec<Vec<f32>>,
}

/// Histograms and sums by window. Absent: the servers do not export it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Windows {
    /// Prompt tokens of finished requests.
    pub prompt: Histogram,
    /// Generated tokens of finished requests.
    pub output: Histogram,
    /// Time to the first token, seconds.
    pub ttft: Histogram,
    /// Mean time between two tokens of each finished request, seconds.
    pub request_gap: Histogram,
    /// Sum of the times between two tokens, seconds.
    pub gap_seconds: Vec<f32>,
    /// Number of these times.
    pub gaps: Vec<f32>,
    /// Prompt tokens found in the prefix cache.
    pub prefix_hits: Vec<f32>,
    /// Prompt tokens looked up there.
    pub prefix_lookups: Vec<f32>,
}

impl Windows {
    /// Adds the latencies of another run over the same windows.
    pub(super) fn plus(&mut self, other: &Self) {
        for (own, other) in [(&mut self.ttft, &other.ttft), (&mut self.request_gap, &other.request_gap)] {
            own.plus(other);
        }
        for (own, other) in [(&mut self.gap_seconds, &other.gap_seconds), (&mut self.gaps, &other.gaps)] {
            own.resize(other.len(), 0.0);
            own.iter_mut().zip(other).for_each(|(own, other)| *own += other);
        }
    }

    /// Mean time between two tokens in some windows, seconds. `None` without tokens.
    #[must_use]
    pub fn mean_gap(&self, part: &Range<usize>) -> Option<f64> {
        let sum = |values: &[f32]| -> Option<f64> {
            Some(values.get(part.clone())?.iter().map(|value| f64::from(*value)).sum())
        };
        let (seconds, count) = (sum(&self.gap_seconds)?, sum(&self.gaps)?);
        (count > 0.0 && seconds > 0.0).then(|| seconds / count)
    }
}

/// Facts of the engines of a model. Absent: not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EngineFacts {
    /// KV cache of an engine, tokens.
    pub kv_tokens: Option<f64>,
    /// Tokens of a block.
    pub block_size: Option<f64>,
    /// Most requests that a pod ran at once.
    pub most_running: f64,
    /// Most requests that a pod ran while others waited for it.
    pub most_running_while_waiting: f64,
    /// Scrapes in which a pod ran just as many while others waited: a limit is met again and again.
    pub ceiling_scrapes: u64,
    /// Seconds from the start of the server's process to its first scrape, the median.
    pub start_seconds: Option<f64>,
}

impl EngineFacts {
    /// The facts of two spans of time.
    #[must_use]
    pub fn merged(self, later: Self) -> Self {
        Self {
            kv_tokens: later.kv_tokens.or(self.kv_tokens),
            block_size: later.block_size.or(self.block_size),
            most_running: self.most_running.max(later.most_running),
            most_running_while_waiting: self.most_running_while_waiting.max(later.most_running_while_waiting),
            ceiling_scrapes: match later
                .most_running_while_waiting
                .total_cmp(&self.most_running_while_waiting)
            {
                std::cmp::Ordering::Greater => later.ceiling_scrapes,
                std::cmp::Ordering::Less => self.ceiling_scrapes,
                std::cmp::Ordering::Equal => self.ceiling_scrapes + later.ceiling_scrapes,
            },
            start_seconds: later.start_seconds.or(self.start_seconds),
        }
    }
}

/// GPUs of a replica.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Gpus {
    /// Short name, such as `H100`.
    pub name: String,
    /// Number of them.
    pub count: f64,
}

/// Part of the history of a model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Chunk {
    /// The model.
    #[serde(flatten)]
    pub key: ModelKey,
    /// Start, seconds since the epoch; a multiple of a window.
    pub from: i64,
    /// Cells from then on.
    pub cells: Vec<Cell>,
    /// Windows from then on.
    pub windows: Windows,
    /// Facts of its engines.
    pub engine: EngineFacts,
    /// Steps of its engines between two scrapes.
    #[serde(default)]
    pub points: Vec<Point>,
    /// GPUs of its replicas. Absent: no exporter of GPUs names its pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<Gpus>,
}

/// The history of a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// The model.
    pub key: ModelKey,
    /// Start, seconds since the epoch; a multiple of a window.
    pub from: i64,
    /// Length of a cell, seconds; a divisor of a window.
    pub step: u32,
    /// Cells from the start on.
    pub cells: Vec<Cell>,
    /// Windows from the start on.
    pub windows: Windows,
    /// Facts of its engines.
    pub engine: EngineFacts,
    /// Steps of its engines between two scrapes.
    pub points: Vec<Point>,
    /// GPUs of its replicas, if known.
    pub gpus: Option<Gpus>,
}

impl History {
    /// An empty history of a span of time, seconds since the epoch.
    #[must_use]
    pub fn new(key: ModelKey, from: i64, to: i64, step: u32) -> Self {
        let seconds = usize::try_from(to - from).unwrap_or(0);
        let cells = vec![Cell::default(); seconds / step.max(1) as usize];
        Self { key, from, step, cells, ..Self::default() }
    }

    /// Number of windows, the last one perhaps in part.
    #[must_use]
    pub fn window_count(&self) -> usize {
        self.cells.len().div_ceil(self.cells_of_window())
    }

    /// Cells of an hour, at least 1.
    #[must_use]
    pub fn cells_of_hour(&self) -> usize {
        (super::HOUR / self.step.max(1)).max(1) as usize
    }

    /// Number of hours, the last one perhaps in part.
    #[must_use]
    pub fn hour_count(&self) -> usize {
        self.window_count().div_ceil((super::HOUR / WINDOW) as usize)
    }

    /// Cells of a window, at least 1.
    #[must_use]
    pub fn cells_of_window(&self) -> usize {
        (WINDOW / self.step.max(1)).max(1) as usize
    }

    /// Length, seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        f64::from(self.step) * crate::fleet::engine::to_f64(self.cells.len() as u64)
    }

    /// Adds a part. Cells outside of the history are left out.
    pub fn add(&mut self, chunk: Chunk) {
        let seconds = usize::try_from(chunk.from - self.from).unwrap_or(usize::MAX);
        let first = seconds / self.step.max(1) as usize;
        for (place, cell) in self.cells.iter_mut().skip(first).zip(chunk.cells) {
            *place = cell;
        }
        let (first, count) = (seconds / WINDOW as usize, self.window_count());
        let Windows { prompt, output, ttft, request_gap, .. } = &mut self.windows;
        for (own, part) in [
            (prompt, chunk.windows.prompt),
            (output, chunk.windows.output),
            (ttft, chunk.windows.ttft),
            (request_gap, chunk.windows.request_gap),
        ] {
            own.add(part, first, count);
        }
        let Windows { gap_seconds, gaps, prefix_hits, prefix_lookups, .. } = &mut self.windows;
        for (own, part) in [
            (gap_seconds, chunk.windows.gap_seconds),
            (gaps, chunk.windows.gaps),
            (prefix_hits, chunk.windows.prefix_hits),
            (prefix_lookups, chunk.windows.prefix_lookups),
        ] {
            own.resize(count, 0.0);
            for (place, value) in own.iter_mut().skip(first).zip(part) {
                *place = value;
            }
        }
        self.engine = self.engine.merged(chunk.engine);
        self.points.extend(chunk.points);
        self.gpus = chunk.gpus.or_else(|| self.gpus.take());
    }
}

impl Histogram {
    fn plus(&mut self, other: &Self) {
        if self.bounds.is_empty() {
            self.clone_from(other);
            return;
        }
        for (own, other) in self.rows.iter_mut().zip(&other.rows) {
            own.iter_mut().zip(other).for_each(|(own, other)| *own += other);
        }
    }

    fn add(&mut self, part: Self, first: usize, count: usize) {
        if self.bounds.is_empty() {
            self.bounds = part.bounds;
        } else if !part.bounds.is_empty() && self.bounds != part.bounds {
            // Another release of the server: its windows count as windows without data.
            return;
        }
        self.rows.resize(count, Vec::new());
        for (place, row) in self.rows.iter_mut().skip(first).zip(part.rows) {
            *place = row;
        }
    }

    /// Whether the servers export it.
    #[must_use]
    pub fn is_known(&self) -> bool {
        !self.bounds.is_empty()
    }

    /// Counts of several windows.
    #[must_use]
    pub fn sum(&self, windows: impl IntoIterator<Item = usize>) -> Vec<f64> {
        let mut sum = vec![0.0; self.bounds.len() + 1];
        for row in windows.into_iter().filter_map(|window| self.rows.get(window)) {
            for (sum, count) in sum.iter_mut().zip(row) {
                *sum += f64::from(*count);
            }
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_fill_their_place_in_the_history() {
        let key = ModelKey { namespace: "a".to_owned(), model: "m".to_owned() };
        let mut history = History::new(key.clone(), 600, 1200, 60);
        assert_eq!((history.cells.len(), history.window_count()), (10, 2));
        let ttft = Histogram { bounds: vec![1.0], rows: vec![vec![3.0, 1.0]] };
        let windows = Windows { ttft, gaps: vec![7.0], ..Windows::default() };
        let cells = vec![Cell { arrivals: 2.0, ..Cell::default() }; 9];
        history.add(Chunk { key, from: 900, cells, windows, ..Chunk::default() });
        let arrivals: Vec<f32> = history.cells.iter().map(|cell| cell.arrivals).collect();
        assert_eq!(arrivals, [0.0, 0.0, 0.0, 0.0, 0.0, 2.0, 2.0, 2.0, 2.0, 2.0]);
        assert_eq!(history.windows.ttft.sum(0..1), [0.0, 0.0]);
        assert_eq!(history.windows.ttft.sum(0..2), [3.0, 1.0]);
        assert_eq!(history.windows.gaps, [0.0, 7.0]);
    }

    #[test]
    fn a_cell_is_a_row_of_rounded_numbers() {
        let cell = Cell { arrivals: 1.0 / 3.0, missing: 2.0, first_token_seconds: 4.0, ..Cell::default() };
        let text = serde_json::to_string(&cell).unwrap();
        assert_eq!(text, "[0.333,0.0,0.0,0.0,0.0,2.0,4.0]");
        let read: Cell = serde_json::from_str(&text).unwrap();
        assert!((read.arrivals - 0.333).abs() < 1e-6 && (read.first_token_seconds - 4.0).abs() < 1e-6);
    }

    #[test]
    fn a_row_of_an_earlier_release_has_six_numbers() {
        let read: Cell = serde_json::from_str("[0.333,0.0,0.0,0.0,0.0,2.0]").unwrap();
        assert!((read.missing - 2.0).abs() < 1e-6 && read.first_token_seconds == 0.0, "{read:?}");
        let error = serde_json::from_str::<Cell>("[1,2]").unwrap_err().to_string();
        assert!(error.contains("a cell has seven numbers"), "{error}");
    }
}
