//! The table on a terminal, redrawn in place, with a bar for the load of each variant.

use std::time::Duration;

use super::Reading;
use super::rows::{self, Row};
use wva_runtime::terminal::harmless;

use crate::output::{TerminalSize, print_unchecked, printable, terminal_size, use_colours, wrap};

/// Alternate screen, without cursor and without wrapped lines; and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H";
/// The rest of the line, and of the screen.
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";

/// Characters of a full bar, and the parts of one character.
const BAR: usize = 10;
const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
/// Percent of the thresholds from which the load is high, and from which it is too high.
const HIGH: f64 = 80.0;
const FULL: f64 = 100.0;

/// A terminal that shows the last reading. Dropping it restores the terminal and leaves the last table there.
pub(super) struct Screen {
    wide: bool,
    interval: Duration,
    last: Option<Reading>,
}

impl Screen {
    pub(super) fn new(wide: bool, interval: Duration) -> Self {
        Self { wide, interval, last: None }
    }

    pub(super) fn show(&mut self, reading: Reading) -> anyhow::Result<bool> {
        if self.last.is_none() {
            print_unchecked(ENTER)?;
        }
        self.last = Some(reading);
        self.draw(None)
    }

    pub(super) fn show_error(&self, error: &str, delay: Duration) -> anyhow::Result<bool> {
        self.draw(Some(&format!("{}; next try in {} s", printable(error), delay.as_secs_f64().ceil())))
    }

    fn draw(&self, error: Option<&str>) -> anyhow::Result<bool> {
        let Some(reading) = &self.last else { return Ok(true) };
        let size = terminal_size();
        let frame = Frame {
            reading,
            wide: self.wide,
            interval: self.interval,
            error,
            coloured: use_colours(),
            height: size.map(|TerminalSize { rows, .. }| usize::from(rows)),
            // Clearing the rest of a full line would clear its last character.
            width: size.map(|TerminalSize { columns, .. }| usize::from(columns).saturating_sub(1).max(1)),
        };
        let lines = frame.lines();
        let lines: Vec<_> = lines.iter().map(|line| harmless(line, true)).collect();
        let lines = lines.join(&format!("{CLEAR_LINE}\r\n"));
        print_unchecked(&format!("{HOME}{lines}{CLEAR_LINE}{CLEAR_BELOW}"))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let Some(last) = &self.last else { return };
        let table = last.render(if self.wide { "wide" } else { "text" }).unwrap_or_default();
        // A terminal that is gone needs no restoring.
        let _ = print_unchecked(&format!("{LEAVE}{}", harmless(&table, false)));
    }
}

pub(super) struct Frame<'a> {
    pub(super) reading: &'a Reading,
    pub(super) wide: bool,
    pub(super) interval: Duration,
    pub(super) error: Option<&'a str>,
    pub(super) coloured: bool,
    /// Lines of the terminal, if known.
    pub(super) height: Option<usize>,
    /// Characters of a line, if known.
    pub(super) width: Option<usize>,
}

impl Frame<'_> {
    /// Fits the terminal: long lines continue on the next one, and rows without room are counted.
    pub(super) fn lines(&self) -> Vec<String> {
        let Reading { rows, scope, now, .. } = self.reading;
        let every = self.interval.as_secs_f64();
        let mut lines = self.wrap(&format!("wva status at {now:.0}, every {every} s, Ctrl-C ends it"), 4);
        lines.push(String::new());
        let mut blocks = if rows.is_empty() {
            vec![self.wrap(&format!("no VariantAutoscalings {scope}"), 4)]
        } else {
            self.table()
        };
        let notes = self.notes();
        let height = self.height.unwrap_or(usize::MAX);
        let room = height.saturating_sub(notes.len() + usize::from(!notes.is_empty())).max(4);
        let all = blocks.len();
        let used = |blocks: &[Vec<String>]| lines.len() + blocks.iter().map(Vec::len).sum::<usize>();
        while blocks.len() > 1 && used(&blocks) + usize::from(blocks.len() < all) > room {
            blocks.pop();
        }
        let hidden = all - blocks.len();
        lines.extend(blocks.into_iter().flatten());
        if hidden > 0 {
            lines.push(format!("... {hidden} more: choose with -n, -l or names"));
        }
        if !notes.is_empty() {
            lines.push(String::new());
            lines.extend(notes);
        }
        lines.truncate(height);
        lines
    }

    fn notes(&self) -> Vec<String> {
        let Reading { rows, gpus, notes, .. } = self.reading;
        let mut all: Vec<String> = self.error.map(|error| format!("error: {error}")).into_iter().collect();
        all.extend(notes.iter().map(|note| printable(note)));
        all.extend(rows.iter().filter_map(Row::orphan_line).map(|line| line.trim_end().to_owned()));
        if self.wide && !gpus.is_empty() {
            all.extend(rows::render_gpus(gpus).lines().map(str::to_owned));
        }
        all.iter().flat_map(|line| self.wrap(line, 4)).collect()
    }

    /// The heading and each variant, with the lines that each takes. A reason continues below its column.
    fn table(&self) -> Vec<Vec<String>> {
        let table = rows::render_table(&self.reading.rows, self.wide, load_cell);
        let reason = table.find("CONDITION").unwrap_or_default();
        let loads = std::iter::once(None).chain(self.reading.rows.iter().map(Row::saturation_percent));
        let block = |(line, load): (&str, Option<f64>)| {
            let mut block = self.wrap(line, reason);
            if let (true, Some(percent)) = (self.coloured, load) {
                let bar = bar(percent);
                if !bar.is_empty() {
                    block[0] = block[0].replacen(&bar, &format!("{}{bar}\x1b[0m", colour(percent)), 1);
                }
            }
            block
        };
        table.lines().zip(loads).map(block).collect()
    }

    fn wrap(&self, line: &str, indent: usize) -> Vec<String> {
        wrap(line, self.width.unwrap_or(usize::MAX), indent)
    }
}

/// `██████▌    65%`.
fn load_cell(row: &Row) -> String {
    let Some(percent) = row.saturation_percent() else { return row.saturation_text() };
    format!("{:<BAR$} {:>4}", bar(percent), row.saturation_text())
}

/// Full at the threshold, also above it.
fn bar(percent: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 80")]
    let parts = (percent.clamp(0.0, FULL) / FULL * 80.0).round() as usize;
    format!("{}{}", "█".repeat(parts / 8), PARTS[parts % 8])
}

fn colour(percent: f64) -> &'static str {
    match percent {
        _ if percent >= FULL => "\x1b[31m",
        _ if percent >= HIGH => "\x1b[33m",
        _ => "\x1b[32m",
    }
}
