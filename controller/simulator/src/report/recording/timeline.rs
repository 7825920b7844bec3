//! A recording as a few lines of text: load, targets and ready replicas over time.

use std::fmt::Write;

use super::rows::{LoadSeries, ReplicaSeries, format_figure};
use super::{History, TimeAxis};
use crate::report::series::Series;

/// Look of the levels of a timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimelineStyle {
    /// Block characters with colours, for a terminal.
    Coloured,
    /// Block characters.
    Blocks,
    /// Digits, for logs: replicas, or ninths of the highest load.
    Digits,
}

/// Most variants that the timeline shows. Of more, it has the sums.
const MAX_VARIANTS: usize = 4;
/// Characters of the longest name.
const MAX_NAME: usize = 24;
/// Columns over time.
const WIDTHS: (usize, usize) = (10, 60);
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const GAP: &str = "  ";

/// A line of the timeline.
struct TextRow {
    name: String,
    kind: &'static str,
    /// Terminal code.
    colour: &'static str,
    /// Value of each column; `None` before the first cycle.
    values: Vec<Option<f64>>,
    /// Value at the top.
    top: f64,
    unit: &'static str,
}

/// Lines of at most `columns` characters.
pub(super) fn timeline(history: &History, columns: usize, style: TimelineStyle) -> String {
    let rows = rows(history);
    let legends: Vec<String> = rows.iter().map(TextRow::legend).collect();
    let name = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    let kind = rows.iter().map(|row| row.kind.len()).max().unwrap_or(0);
    let legend = legends.iter().map(|legend| legend.chars().count()).max().unwrap_or(0);
    let fixed = name + kind + legend + 3 * GAP.len();
    let width = columns.saturating_sub(fixed).clamp(WIDTHS.0, WIDTHS.1);
    let mut text = String::new();
    for (row, legend) in rows.iter().zip(legends) {
        let levels = row.draw(width, style);
        let _ = writeln!(text, "{:<name$}{GAP}{:<kind$}{GAP}{levels}{GAP}{legend}", row.name, row.kind);
    }
    let time = TimeAxis::new(history);
    let end = format!("{} {}", format_figure(time.end.round()), time.unit_name);
    let _ =
        writeln!(text, "{:indent$}0{end:>rest$}", "", indent = name + kind + 2 * GAP.len(), rest = width - 1);
    text
}

/// Values are sampled once, at the greatest width.
fn rows(history: &History) -> Vec<TextRow> {
    let LoadSeries { arrivals, running, waiting, .. } = &history.totals.load;
    let sample = |series: &Series| sample(series, history.last);
    let (load, unit) = if arrivals.points().is_empty() {
        let add = |(a, b): (Option<f64>, Option<f64>)| a.map(|a| a + b.unwrap_or_default()).or(b);
        (sample(running).into_iter().zip(sample(waiting)).map(add).collect(), "requests")
    } else {
        (sample(arrivals), "requests/s")
    };
    let mut rows = vec![TextRow::new("load", "", "", load, unit)];
    let variants = history.models.values().flat_map(|model| &model.variants);
    let drawn: Vec<(String, &ReplicaSeries)> = if (1..=MAX_VARIANTS).contains(&history.variants()) {
        variants.map(|(name, row)| (name.chars().take(MAX_NAME).collect(), &row.replicas)).collect()
    } else {
        vec![("replicas".to_owned(), &history.totals.replicas)]
    };
    let first = rows.len();
    for (name, replicas) in drawn {
        rows.push(TextRow::new(&name, "desired", "\x1b[36m", sample(&replicas.target), "replicas"));
        rows.push(TextRow::new("", "ready", "\x1b[32m", sample(&replicas.ready), "replicas"));
    }
    // Replicas of all rows compare.
    let top = rows[first..].iter().map(|row| row.top).fold(1.0, f64::max);
    rows[first..].iter_mut().for_each(|row| row.top = top);
    rows
}

/// The highest value of each column, or the last one before it.
fn sample(series: &Series, length: f64) -> Vec<Option<f64>> {
    let mut points = series.points().into_iter().peekable();
    let mut last = None;
    let columns = u32::try_from(WIDTHS.1).unwrap_or(u32::MAX);
    let end = |column: u32| length * f64::from(column + 1) / f64::from(columns);
    (0..columns)
        .map(|column| {
            let mut highest: Option<f64> = None;
            while let Some((_, value)) = points.next_if(|(at, _)| *at <= end(column)) {
                highest = Some(highest.map_or(value, |highest| highest.max(value)));
                last = Some(value);
            }
            highest.or(last)
        })
        .collect()
}

impl TextRow {
    fn new(
        name: &str,
        kind: &'static str,
        colour: &'static str,
        values: Vec<Option<f64>>,
        unit: &'static str,
    ) -> Self {
        let top = values.iter().flatten().copied().fold(0.0, f64::max);
        Self { name: name.to_owned(), kind, colour, values, top, unit }
    }

    /// `1 to 34 requests`.
    fn legend(&self) -> String {
        let known = || self.values.iter().flatten().copied();
        let Some(low) = known().reduce(f64::min) else { return "unknown".to_owned() };
        let high = known().fold(low, f64::max);
        let figure =
            |value: f64| if self.unit == "requests" { format!("{value:.0}") } else { format_figure(value) };
        format!("{} to {} {}", figure(low), figure(high), self.unit)
    }

    /// Whether a digit is the value itself.
    fn is_exact(&self) -> bool {
        self.unit == "replicas" && self.top <= 9.0
    }

    fn draw(&self, width: usize, style: TimelineStyle) -> String {
        let columns = (0..width).map(|column| {
            let from = column * self.values.len() / width;
            let to = ((column + 1) * self.values.len() / width).max(from + 1);
            self.values.get(from..to).unwrap_or_default().iter().flatten().copied().reduce(f64::max)
        });
        let levels: String =
            columns.map(|value| value.map_or(' ', |value| self.level(value, style))).collect();
        if style == TimelineStyle::Coloured && !self.colour.is_empty() {
            format!("{}{levels}\x1b[0m", self.colour)
        } else {
            levels
        }
    }

    fn level(&self, value: f64, style: TimelineStyle) -> char {
        let steps = if style == TimelineStyle::Digits { 9.0 } else { 7.0 };
        let share = if self.top > 0.0 { value / self.top } else { 0.0 };
        let scaled = if style == TimelineStyle::Digits && self.is_exact() { value } else { share * steps };
        // A value above zero never looks like zero.
        let level = if value > 0.0 { scaled.round().max(1.0) } else { 0.0 };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 9")]
        let level = level.min(steps) as u8;
        if style == TimelineStyle::Digits { char::from(b'0' + level) } else { BLOCKS[usize::from(level)] }
    }
}
