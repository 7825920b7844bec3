//! Rows that change, for pipes and logs, as `kubectl get -w` prints them.

use super::rows::{self, Row};
use super::{Reading, print_notes};
use crate::output;

/// Prints the first reading, and then each row that differs from the last one.
pub(super) struct ChangedRows {
    format: String,
    /// Rows of the last reading.
    rows: Vec<Row>,
    notes: Vec<String>,
    error: Option<String>,
    is_first: bool,
}

impl ChangedRows {
    pub(super) fn new(format: &str) -> Self {
        Self { format: format.to_owned(), rows: Vec::new(), notes: Vec::new(), error: None, is_first: true }
    }

    #[expect(clippy::print_stderr, reason = "the table is on standard output")]
    pub(super) fn show(&mut self, reading: Reading) -> anyhow::Result<bool> {
        if self.error.take().is_some() {
            eprintln!("wva: the cluster is read again");
        }
        if self.notes != reading.notes {
            print_notes(&reading.notes);
            self.notes.clone_from(&reading.notes);
        }
        output::print(&self.update(reading)?)
    }

    /// The same error is printed once.
    #[expect(clippy::print_stderr, reason = "the table is on standard output")]
    pub(super) fn show_error(&mut self, error: &str) {
        if self.error.as_deref() != Some(error) {
            eprintln!("wva: {error}; retrying");
            self.error = Some(error.to_owned());
        }
    }

    /// Text of what changed; empty if nothing did.
    pub(super) fn update(&mut self, reading: Reading) -> anyhow::Result<String> {
        if self.is_first {
            let text = reading.render(&self.format)?;
            // The heading comes with the first rows.
            self.is_first = reading.rows.is_empty();
            self.rows = reading.rows;
            return Ok(text);
        }
        let is_gone = |row: &&Row| !reading.rows.iter().any(|now| now.is_same_variant(row));
        let gone: Vec<Row> = self.rows.iter().filter(is_gone).map(Row::deleted).collect();
        let is_changed = |row: &&Row| {
            let before = self.rows.iter().find(|before| before.is_same_variant(row));
            before.is_none_or(|before| !before.looks_like(row, self.format == "wide"))
        };
        let changed: Vec<Row> = reading.rows.iter().filter(is_changed).chain(&gone).cloned().collect();
        let text = self.render(&reading, changed)?;
        self.rows = reading.rows;
        Ok(text)
    }

    fn render(&self, reading: &Reading, changed: Vec<Row>) -> anyhow::Result<String> {
        if changed.is_empty() {
            return Ok(String::new());
        }
        if !matches!(self.format.as_str(), "text" | "wide") {
            let begin = if self.format == "yaml" { "---\n" } else { "" };
            let part = Reading {
                rows: changed,
                gpus: reading.gpus.clone(),
                notes: Vec::new(),
                scope: String::new(),
                now: reading.now,
            };
            return Ok(format!("{begin}{}", part.render(&self.format)?));
        }
        // As wide as the whole table, so that columns stay in line.
        let count = changed.len();
        let all: Vec<Row> = changed.into_iter().chain(reading.rows.iter().cloned()).collect();
        let table = rows::render_table(&all, self.format == "wide", Row::saturation_text);
        Ok(table.split_inclusive('\n').skip(1).take(count).collect())
    }
}
