//! Streaming reader of answers: neither the text nor the list of series is held in memory.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read};

use serde::Deserialize;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use tokio::sync::mpsc;
use tokio_util::bytes::{Buf, Bytes};

/// Series with the labels that its sink reads.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Series<L = BTreeMap<String, String>> {
    /// Labels.
    #[serde(rename = "metric", default)]
    pub labels: L,
    /// Value, possibly NaN or infinite.
    #[serde(deserialize_with = "read_number")]
    pub value: f64,
}

impl Series {
    /// Value of a label; empty if absent, as in Prometheus.
    #[must_use]
    pub fn label(&self, name: &str) -> &str {
        self.labels.get(name).map(String::as_str).unwrap_or_default()
    }
}

/// Reads a time, and a number as a string such as `0.25`, `NaN` or `+Inf`.
fn read_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let (_, text) = <(IgnoredAny, String)>::deserialize(deserializer)?;
    text.parse().map_err(|_| {
        let short: String = text.chars().take(40).collect();
        D::Error::custom(format!("{short:?} is not a number"))
    })
}

/// Takes the series of an answer.
pub trait Sink: Send + 'static {
    /// Labels that it reads.
    type Labels: DeserializeOwned + Default;

    /// Takes the next series.
    fn push(&mut self, series: Series<Self::Labels>);
}

impl Sink for Vec<Series> {
    type Labels = BTreeMap<String, String>;

    fn push(&mut self, series: Series) {
        Vec::push(self, series);
    }
}

/// The rest of an answer.
#[derive(Debug, Default)]
pub struct AnswerSummary {
    /// `success` or `error`.
    pub status: String,
    /// Error of Prometheus, possibly empty.
    pub error: String,
    /// It has a vector.
    pub has_data: bool,
    /// Warning of servers that query several others.
    pub partial: Option<String>,
}

/// Pushes the series of an answer to `sink`, which keeps those before an error.
///
/// # Errors
/// The text is not an answer to an instant query.
pub fn read(body: impl Read, sink: &mut impl Sink) -> Result<AnswerSummary, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_reader(io::BufReader::with_capacity(1 << 16, body));
    let mut reader = Reader { sink, summary: AnswerSummary::default() };
    reader.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(reader.summary)
}

/// Body for a blocking reader. It ends when the sender is dropped.
pub(super) struct Body {
    chunks: mpsc::Receiver<Bytes>,
    rest: Bytes,
}

impl Body {
    pub(super) fn new(chunks: mpsc::Receiver<Bytes>) -> Self {
        Self { chunks, rest: Bytes::new() }
    }
}

impl Read for Body {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() {
            let Some(chunk) = self.chunks.blocking_recv() else { return Ok(0) };
            self.rest = chunk;
        }
        let n = into.len().min(self.rest.len());
        self.rest.copy_to_slice(&mut into[..n]);
        Ok(n)
    }
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum Field {
    Status,
    Error,
    Warnings,
    IsPartial,
    Data,
    ResultType,
    Result,
    #[serde(other)]
    Other,
}

/// Visitor of the answer. Its value: whether `data` was a complete vector.
struct Reader<'a, S> {
    sink: &'a mut S,
    summary: AnswerSummary,
}

impl<'de, S: Sink> DeserializeSeed<'de> for &mut Reader<'_, S> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, S: Sink> Visitor<'de> for &mut Reader<'_, S> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a Prometheus answer")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
        let (mut is_vector, mut has_result) = (false, false);
        while let Some(field) = map.next_key()? {
            match field {
                Field::Status => self.summary.status = map.next_value()?,
                Field::Error => self.summary.error = map.next_value()?,
                Field::Warnings => {
                    self.summary.partial =
                        missing_series_warning(map.next_value()?).or(self.summary.partial.take());
                }
                // VictoriaMetrics.
                Field::IsPartial if map.next_value()? => {
                    self.summary.partial.get_or_insert_with(|| "isPartial is true".to_owned());
                }
                Field::IsPartial => {}
                Field::Data => {
                    self.summary.has_data = map.next_value_seed(&mut *self)?;
                    if !self.summary.has_data {
                        return Err(A::Error::custom("data without a vector"));
                    }
                }
                Field::ResultType => {
                    let kind: String = map.next_value()?;
                    is_vector = kind == "vector";
                    if !is_vector {
                        return Err(A::Error::custom(format!("the result type is {kind:?}, not vector")));
                    }
                }
                Field::Result => has_result = map.next_value_seed(&mut *self)?,
                Field::Other => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(is_vector && has_result)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<bool, A::Error> {
        while let Some(series) = all.next_element()? {
            self.sink.push(series);
        }
        Ok(true)
    }
}

/// Annotations about the expression: no series are missing.
const ANNOTATIONS: [&str; 2] = ["PromQL warning:", "PromQL info:"];

fn missing_series_warning(warnings: Option<Vec<serde_json::Value>>) -> Option<String> {
    let mut texts = warnings.into_iter().flatten().map(|warning| match warning {
        serde_json::Value::String(text) => text,
        other => other.to_string(),
    });
    texts.find(|text| !ANNOTATIONS.iter().any(|prefix| text.starts_with(prefix)))
}
