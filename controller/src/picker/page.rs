//! Reads the metrics page of an endpoint picker as it arrives: of thousands of lines only those of its flow-control
//! queue are kept, and only for the models that somebody asks about. What is no metrics page is no answer, for an
//! answer without a queue would mean that nothing waits.

use std::collections::{BTreeMap, BTreeSet};

/// Longest line that is held until its end has arrived.
const LONGEST_LINE: usize = 64 << 10;

/// The page holds something that is no metric.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} is no metric: {text:?}")]
pub(super) struct NotMetrics {
    /// Counted from 1.
    line: usize,
    /// How it begins.
    text: String,
}

/// What waits for one model.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Waiting {
    /// Requests.
    pub(super) size: f64,
    /// Their bytes.
    pub(super) bytes: f64,
}

impl Waiting {
    /// Replicas of a picker have parts of one queue.
    pub(super) fn plus(self, other: Self) -> Self {
        // A sum that overflows would be no number.
        Self { size: (self.size + other.size).min(f64::MAX), bytes: (self.bytes + other.bytes).min(f64::MAX) }
    }

    fn greater(self, other: Self) -> Self {
        Self { size: self.size.max(other.size), bytes: self.bytes.max(other.bytes) }
    }
}

/// A page that is being read.
pub(super) struct Page<'a> {
    models: &'a BTreeSet<String>,
    /// The beginning of a line whose end has not arrived.
    begun: Vec<u8>,
    lines: usize,
    /// By model, under the earlier and the later name of the metrics.
    found: BTreeMap<String, [Waiting; 2]>,
}

impl<'a> Page<'a> {
    /// Of which these models are read.
    pub(super) fn of(models: &'a BTreeSet<String>) -> Self {
        Self { models, begun: Vec::new(), lines: 0, found: BTreeMap::new() }
    }

    /// Takes in what has arrived.
    ///
    /// # Errors
    /// [`NotMetrics`] at the first line that is none.
    pub(super) fn feed(&mut self, chunk: &[u8]) -> Result<(), NotMetrics> {
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

    /// The page is over: what waits for each of the models, which is nothing where the page does not say.
    ///
    /// # Errors
    /// [`NotMetrics`] where its last line is none, or there was none at all.
    pub(super) fn end(mut self) -> Result<BTreeMap<String, Waiting>, NotMetrics> {
        let last = std::mem::take(&mut self.begun);
        self.line(&last)?;
        if self.lines == 0 {
            return Err(self.wrong(b""));
        }
        // A picker that shows its queue under both names has one queue.
        Ok(self.found.into_iter().map(|(model, [earlier, later])| (model, earlier.greater(later))).collect())
    }

    fn line(&mut self, line: &[u8]) -> Result<(), NotMetrics> {
        let line = line.trim_ascii();
        if line.is_empty() {
            return Ok(());
        }
        let read = if line[0] == b'#' { Some(Line::Other) } else { read(line) };
        let Some(read) = read else { return Err(self.wrong(line)) };
        self.lines += 1;
        // What is no finite figure from 0 up says nothing.
        if let Line::Queue(Series { model, later, bytes, value }) = read
            && value.is_finite()
            && value >= 0.0
            && self.models.contains(&model)
        {
            let waiting = &mut self.found.entry(model).or_default()[usize::from(later)];
            let more =
                if bytes { Waiting { size: 0.0, bytes: value } } else { Waiting { size: value, bytes: 0.0 } };
            *waiting = waiting.plus(more);
        }
        Ok(())
    }

    fn wrong(&self, line: &[u8]) -> NotMetrics {
        let text = String::from_utf8_lossy(&line[..line.len().min(60)]).into_owned();
        NotMetrics { line: self.lines + 1, text }
    }
}

/// A line of the page.
#[derive(Debug, PartialEq)]
enum Line {
    /// The queue of a model.
    Queue(Series),
    /// What nobody asks about.
    Other,
}

/// A series of the queue.
#[derive(Debug, PartialEq)]
struct Series {
    model: String,
    /// It has the later name of the metric.
    later: bool,
    bytes: bool,
    value: f64,
}

/// Reads a line that is no comment; `None` for what is no metric.
fn read(line: &[u8]) -> Option<Line> {
    let line = std::str::from_utf8(line).ok()?;
    let name = line.split(['{', ' ', '\t']).next()?;
    let rest = &line[name.len()..];
    let valid = |at: usize, byte: u8| {
        byte.is_ascii_alphabetic() || b"_:".contains(&byte) || (at > 0 && byte.is_ascii_digit())
    };
    if name.is_empty() || !name.bytes().enumerate().all(|(at, byte)| valid(at, byte)) {
        return None;
    }
    let queue = match name {
        "inference_extension_flow_control_queue_size" => Some((false, false)),
        "inference_extension_flow_control_queue_bytes" => Some((false, true)),
        "llm_d_epp_flow_control_queue_size" => Some((true, false)),
        "llm_d_epp_flow_control_queue_bytes" => Some((true, true)),
        _ => None,
    };
    let Some((later, bytes)) = queue else {
        // A number at its end is enough to tell a metric from prose.
        let last = rest.rsplit([' ', '\t', '}']).next()?;
        return last.parse::<f64>().ok().map(|_| Line::Other);
    };
    let (model, rest) = match rest.strip_prefix('{') {
        Some(labels) => model_of(labels)?,
        None => (None, rest),
    };
    // A time stamp may follow.
    let value = rest.split_ascii_whitespace().next()?.parse().ok()?;
    Some(model.map_or(Line::Other, |model| Line::Queue(Series { model, later, bytes, value })))
}

/// The model that labels name, the target before the one that was asked for, and what follows the labels.
fn model_of(labels: &str) -> Option<(Option<String>, &str)> {
    let (mut target, mut asked) = (None, None);
    let mut rest = labels.trim_start();
    loop {
        if let Some(after) = rest.strip_prefix('}') {
            return Some((target.or(asked), after));
        }
        let (key, value) = rest.split_once('=')?;
        let (value, after) = quoted(value.trim_start())?;
        match key.trim() {
            "target_model_name" if !value.is_empty() => target = Some(value),
            "model_name" if !value.is_empty() => asked = Some(value),
            _ => {}
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn models() -> BTreeSet<String> {
        ["m", "meta/llama", "a\"b\\c\nd", "t"].map(str::to_owned).into()
    }

    fn page(text: &[u8], chunk: usize) -> Result<Vec<(String, f64, f64)>, NotMetrics> {
        let models = models();
        let mut page = Page::of(&models);
        for chunk in text.chunks(chunk) {
            page.feed(chunk)?;
        }
        Ok(page.end()?.into_iter().map(|(model, w)| (model, w.size, w.bytes)).collect())
    }

    #[track_caller]
    fn check(text: &str, want: &[(&str, f64, f64)]) {
        let want: Vec<_> =
            want.iter().map(|(model, size, bytes)| ((*model).to_owned(), *size, *bytes)).collect();
        // However it arrives.
        for chunk in [1, 7, 64, usize::MAX] {
            assert_eq!(page(text.as_bytes(), chunk), Ok(want.clone()), "in pieces of {chunk}: {text}");
        }
    }

    #[test]
    fn queues_are_read_under_both_names_and_both_labels() {
        check(
            "# HELP inference_extension_flow_control_queue_size Requests.\n\
             # TYPE inference_extension_flow_control_queue_size gauge\n\
             inference_extension_flow_control_queue_size{fairness_id=\"x\",priority=\"0\",model_name=\"m\"} 2\n\
             inference_extension_flow_control_queue_size{fairness_id=\"y\",model_name=\"m\",} 1\n\
             inference_extension_flow_control_queue_bytes{model_name=\"m\"} 300 1700000000000\n\
             go_goroutines 12\n",
            &[("m", 3.0, 300.0)],
        );
        check(
            "llm_d_epp_flow_control_queue_size{model_name=\"alias\",target_model_name=\"t\"} 4\n\
             llm_d_epp_flow_control_queue_bytes{ target_model_name = \"t\" , model_name = \"alias\" } 1e3",
            &[("t", 4.0, 1000.0)],
        );
        // One queue under both names is one queue.
        check(
            "inference_extension_flow_control_queue_size{model_name=\"m\"} 2\r\n\
             llm_d_epp_flow_control_queue_size{model_name=\"m\",target_model_name=\"\"} 3\r\n",
            &[("m", 3.0, 0.0)],
        );
        check(
            "llm_d_epp_flow_control_queue_size{model_name=\"a\\\"b\\\\c\\nd\"} 1",
            &[("a\"b\\c\nd", 1.0, 0.0)],
        );
    }

    #[test]
    fn what_is_not_asked_about_or_no_figure_is_left_out() {
        check("llm_d_epp_flow_control_queue_size{model_name=\"other\"} 9\n", &[]);
        check(
            "llm_d_epp_flow_control_queue_size 9\nllm_d_epp_flow_control_queue_size_total{model_name=\"m\"} 9\n",
            &[],
        );
        for value in ["NaN", "+Inf", "-Inf", "-1", "1e999"] {
            check(&format!("llm_d_epp_flow_control_queue_size{{model_name=\"m\"}} {value}\n"), &[]);
        }
        let greatest = format!("llm_d_epp_flow_control_queue_size{{model_name=\"m\"}} {}\n", f64::MAX);
        check(&greatest.repeat(2), &[("m", f64::MAX, 0.0)]);
        check("# EOF\n\n", &[]);
    }

    #[test]
    fn what_is_no_metrics_page_is_no_answer() {
        for text in [
            "",
            "\n\n",
            "<html><body>hello</body></html>\n",
            "{\"error\": \"no\"}\n",
            "upstream connect error or disconnect\n",
            "go_goroutines 12\n\u{0}\u{1}\u{2}\n",
            "go_goroutines\n",
            "llm_d_epp_flow_control_queue_size{model_name=\"m\"}\n",
            "llm_d_epp_flow_control_queue_size{model_name=\"m\"} many\n",
            "llm_d_epp_flow_control_queue_size{model_name=\"m} 1\n",
            "llm_d_epp_flow_control_queue_size{model_name=m} 1\n",
            "llm_d_epp_flow_control_queue_size{model_name=\"m\"x=\"y\"} 1\n",
            "llm_d_epp_flow_control_queue_size{model_name} 1\n",
        ] {
            assert!(page(text.as_bytes(), 8).is_err(), "{text:?}");
        }
        assert!(page(b"go_goroutines 12\nm\xff 1\n", 8).is_err());
        assert!(page(&vec![b'a'; LONGEST_LINE + 1], 4096).is_err());
        let told = page("go_goroutines 12\n<html>\n".as_bytes(), 8).unwrap_err().to_string();
        assert_eq!(told, "line 2 is no metric: \"<html>\"");
    }
}
