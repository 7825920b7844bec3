//! Streaming reader of metrics pages. Other pages are an error: a missing series would mean 0.

mod budget;
mod client;

pub use budget::PageBudget;
pub(crate) use client::{Client, OF_PICKER, OF_SERVER, PageError, PageTls};

/// Bytes.
const LONGEST_LINE: usize = 64 << 10;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} is not a metric: {text:?}")]
pub(crate) struct InvalidPage {
    /// Counts from 1.
    line: usize,
    /// Start of the line.
    text: String,
}

pub(crate) trait PageReader {
    /// Reads a series and the rest of its line. `None` if invalid.
    fn read_series(&mut self, name: &str, rest: &str) -> Option<()>;
}

/// Page that arrives in chunks.
pub(crate) struct Page<R> {
    reader: R,
    /// Start of a line whose end has not arrived.
    partial_line: Vec<u8>,
    lines: usize,
}

impl<R: PageReader> Page<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self { reader, partial_line: Vec::new(), lines: 0 }
    }

    /// Reads the next chunk.
    ///
    /// # Errors
    /// [`InvalidPage`] at the first invalid line.
    pub(crate) fn feed(&mut self, chunk: &[u8]) -> Result<(), InvalidPage> {
        let mut lines = chunk.split(|byte| *byte == b'\n');
        // The text after the last newline continues in the next chunk.
        let mut piece = lines.next().unwrap_or_default();
        for next in lines {
            if self.partial_line.is_empty() {
                self.read_line(piece)?;
            } else {
                self.partial_line.extend_from_slice(piece);
                let line = std::mem::take(&mut self.partial_line);
                self.read_line(&line)?;
            }
            piece = next;
        }
        self.partial_line.extend_from_slice(piece);
        if self.partial_line.len() > LONGEST_LINE { Err(self.invalid(&self.partial_line)) } else { Ok(()) }
    }

    /// Returns the reader of the page.
    ///
    /// # Errors
    /// [`InvalidPage`] if the last line is invalid, or the page is empty.
    pub(crate) fn finish(mut self) -> Result<R, InvalidPage> {
        let last = std::mem::take(&mut self.partial_line);
        self.read_line(&last)?;
        if self.lines == 0 {
            return Err(self.invalid(b""));
        }
        Ok(self.reader)
    }

    fn read_line(&mut self, line: &[u8]) -> Result<(), InvalidPage> {
        let line = line.trim_ascii();
        if line.is_empty() {
            return Ok(());
        }
        if line[0] != b'#' && self.read_metric(line).is_none() {
            return Err(self.invalid(line));
        }
        self.lines += 1;
        Ok(())
    }

    /// `None` if the line is not a metric.
    fn read_metric(&mut self, line: &[u8]) -> Option<()> {
        let line = std::str::from_utf8(line).ok()?;
        let name = line.split(['{', ' ', '\t']).next()?;
        let valid = |at: usize, byte: u8| {
            byte.is_ascii_alphabetic() || b"_:".contains(&byte) || (at > 0 && byte.is_ascii_digit())
        };
        if name.is_empty() || !name.bytes().enumerate().all(|(at, byte)| valid(at, byte)) {
            return None;
        }
        self.reader.read_series(name, &line[name.len()..])
    }

    fn invalid(&self, line: &[u8]) -> InvalidPage {
        let text = String::from_utf8_lossy(&line[..line.len().min(60)]).into_owned();
        InvalidPage { line: self.lines + 1, text }
    }
}

/// Checks a series whose value is not needed.
pub(crate) fn check_number(rest: &str) -> Option<()> {
    let last = rest.rsplit([' ', '\t', '}']).next()?;
    last.parse::<f64>().ok().map(|_| ())
}

pub(crate) fn parse_value(rest: &str, label: impl FnMut(&str, String)) -> Option<f64> {
    let rest = match rest.strip_prefix('{') {
        Some(labels) => after_labels(labels, label)?,
        None => rest,
    };
    // A timestamp may follow.
    rest.split_ascii_whitespace().next()?.parse().ok()
}

/// Returns the text after the labels.
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
