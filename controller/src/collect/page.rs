//! Metrics pages of pods that are asked directly, read as they arrive: of thousands of lines only those that somebody
//! asks about are kept. What is no metrics page is no answer, for a page without a figure would mean that it is 0.

mod client;

pub(crate) use client::{Client, NoAnswer};

/// Names of the container port with the metrics.
pub(crate) const PORTS: [&str; 2] = ["metrics", "http-metrics"];
/// Longest line that is held until its end has arrived.
const LONGEST_LINE: usize = 64 << 10;

/// The page holds something that is no metric.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} is no metric: {text:?}")]
pub(crate) struct NotMetrics {
    /// Counted from 1.
    line: usize,
    /// How it begins.
    text: String,
}

/// What is read of a page.
pub(crate) trait Figures {
    /// Takes in a series: its name, and what follows it. `None` for what is no metric.
    fn take(&mut self, name: &str, rest: &str) -> Option<()>;
}

/// A page that is being read.
pub(crate) struct Page<F> {
    figures: F,
    /// The beginning of a line whose end has not arrived.
    begun: Vec<u8>,
    lines: usize,
}

impl<F: Figures> Page<F> {
    /// Of which this is read.
    pub(crate) fn new(figures: F) -> Self {
        Self { figures, begun: Vec::new(), lines: 0 }
    }

    /// Takes in what has arrived.
    ///
    /// # Errors
    /// [`NotMetrics`] at the first line that is none.
    pub(crate) fn feed(&mut self, chunk: &[u8]) -> Result<(), NotMetrics> {
        let mut lines = chunk.split(|byte| *byte == b'\n');
        // What comes after the last newline goes on in the next chunk.
        let mut piece = lines.next().unwrap_or_default();
        for next in lines {
            if self.begun.is_empty() {
                self.line(piece)?;
            } else {
                self.begun.extend_from_slice(piece);
                let line = std::mem::take(&mut self.begun);
                self.line(&line)?;
            }
            piece = next;
        }
        self.begun.extend_from_slice(piece);
        if self.begun.len() > LONGEST_LINE { Err(self.wrong(&self.begun)) } else { Ok(()) }
    }

    /// The page is over: what was read of it.
    ///
    /// # Errors
    /// [`NotMetrics`] where its last line is none, or there was none at all.
    pub(crate) fn end(mut self) -> Result<F, NotMetrics> {
        let last = std::mem::take(&mut self.begun);
        self.line(&last)?;
        if self.lines == 0 {
            return Err(self.wrong(b""));
        }
        Ok(self.figures)
    }

    fn line(&mut self, line: &[u8]) -> Result<(), NotMetrics> {
        let line = line.trim_ascii();
        if line.is_empty() {
            return Ok(());
        }
        if line[0] != b'#' && self.read(line).is_none() {
            return Err(self.wrong(line));
        }
        self.lines += 1;
        Ok(())
    }

    /// Reads a line that is no comment; `None` for what is no metric.
    fn read(&mut self, line: &[u8]) -> Option<()> {
        let line = std::str::from_utf8(line).ok()?;
        let name = line.split(['{', ' ', '\t']).next()?;
        let valid = |at: usize, byte: u8| {
            byte.is_ascii_alphabetic() || b"_:".contains(&byte) || (at > 0 && byte.is_ascii_digit())
        };
        if name.is_empty() || !name.bytes().enumerate().all(|(at, byte)| valid(at, byte)) {
            return None;
        }
        self.figures.take(name, &line[name.len()..])
    }

    fn wrong(&self, line: &[u8]) -> NotMetrics {
        let text = String::from_utf8_lossy(&line[..line.len().min(60)]).into_owned();
        NotMetrics { line: self.lines + 1, text }
    }
}

/// A series that nobody asks about: a number at its end is enough to tell a metric from prose.
pub(crate) fn other(rest: &str) -> Option<()> {
    let last = rest.rsplit([' ', '\t', '}']).next()?;
    last.parse::<f64>().ok().map(|_| ())
}

/// The value of a series; `label` is given each of its labels.
pub(crate) fn value(rest: &str, label: impl FnMut(&str, String)) -> Option<f64> {
    let rest = match rest.strip_prefix('{') {
        Some(labels) => after_labels(labels, label)?,
        None => rest,
    };
    // A time stamp may follow.
    rest.split_ascii_whitespace().next()?.parse().ok()
}

/// What follows the labels.
fn after_labels(labels: &str, mut label: impl FnMut(&str, String)) -> Option<&str> {
    let mut rest = labels.trim_start();
    loop {
        if let Some(after) = rest.strip_prefix('}') {
            return Some(after);
        }
        let (key, value) = rest.split_once('=')?;
        let (value, after) = quoted(value.trim_start())?;
        label(key.trim(), value);
        let after = after.trim_start();
        rest = after.strip_prefix(',').map_or(after, str::trim_start);
        if rest.len() == after.len() && !rest.starts_with('}') {
            return None;
        }
    }
}

/// A text in quotation marks, and what follows it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.strip_prefix('"')?.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 2..])),
            '\\' => value.push(match chars.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            _ => value.push(c),
        }
    }
    None
}
