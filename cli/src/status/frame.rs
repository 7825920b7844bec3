//! The table on a terminal, redrawn in place, with a bar for the load of each variant.

use std::time::Duration;

use super::Reading;
use super::rows::{self, Row};
use wva_runtime::terminal::harmless;

use crate::output::{TerminalSize, print_unchecked, printable, terminal_size, use_colours};

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
        let frame = Frame {
            reading,
            wide: self.wide,
            interval: self.interval,
            error,
            coloured: use_colours(),
            rows: terminal_size().map(|TerminalSize { rows, .. }| usize::from(rows)),
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
    pub(super) rows: Option<usize>,
}

impl Frame<'_> {
    /// At most as many lines as the terminal has.
    pub(super) fn lines(&self) -> Vec<String> {
        let Reading { rows, notes, scope, now, .. } = self.reading;
        let every = self.interval.as_secs_f64();
        let mut lines =
            vec![format!("wva status at {now:.0}, every {every} s, Ctrl-C ends it"), String::new()];
        let notes: Vec<String> = self
            .error
            .map(|error| format!("error: {error}"))
            .into_iter()
            .chain(notes.iter().map(|note| printable(note)))
            .chain(rows.iter().filter_map(Row::orphan_line).map(|line| line.trim_end().to_owned()))
            .collect();
        if rows.is_empty() {
            lines.push(format!("no VariantAutoscalings {scope}"));
        } else {
            lines.extend(self.table());
        }
        let room = self
            .rows
            .map_or(usize::MAX, |all| all.saturating_sub(notes.len() + usize::from(!notes.is_empty())));
        if lines.len() > room.max(4) {
            let shown = room.max(4) - 1;
            let hidden = lines.len() - shown;
            lines.truncate(shown);
            lines.push(format!("... {hidden} more: choose with -n, -l or names"));
        }
        if !notes.is_empty() {
            lines.push(String::new());
            lines.extend(notes);
        }
        lines.truncate(self.rows.unwrap_or(usize::MAX));
        lines
    }

    fn table(&self) -> Vec<String> {
        let rows = &self.reading.rows;
        let table = rows::render_table(rows, self.wide, load_cell);
        let mut lines: Vec<String> = table.lines().map(str::to_owned).collect();
        if self.coloured {
            for (line, row) in lines.iter_mut().skip(1).zip(rows) {
                let Some(percent) = row.saturation_percent() else { continue };
                let bar = bar(percent);
                if !bar.is_empty() {
                    *line = line.replacen(&bar, &format!("{}{bar}\x1b[0m", colour(percent)), 1);
                }
            }
        }
        lines
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
