//! Streaming reader of answers, a vector or a matrix: neither the text nor the list of series is held in memory.
//!
//! A splitter takes the elements of the result out of the text as it arrives, and each is parsed from its own slice. serde
//! reads a slice three times as fast as a stream, which it takes byte by byte.

mod splitter;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read};

use serde::Deserialize;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use tokio::sync::mpsc;
use tokio_util::bytes::{Buf, Bytes};

use splitter::Splitter;

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
    let (_, Number(value)) = <(IgnoredAny, Number)>::deserialize(deserializer)?;
    Ok(value)
}

/// Samples of a series over time, with the labels that its sink reads.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct RangeSeries<L = BTreeMap<String, String>> {
    /// Labels.
    #[serde(rename = "metric", default)]
    pub labels: L,
    /// Samples in order of time.
    #[serde(rename = "values", default, deserialize_with = "read_samples")]
    pub samples: Vec<Sample>,
}

/// A sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Time, seconds since the epoch.
    pub at: f64,
    /// Value, possibly NaN or infinite.
    pub value: f64,
}

fn read_samples<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Sample>, D::Error> {
    struct Samples;

    impl<'de> Visitor<'de> for Samples {
        type Value = Vec<Sample>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of samples")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Vec<Sample>, A::Error> {
            let mut samples = Vec::new();
            while let Some((at, Number(value))) = all.next_element()? {
                samples.push(Sample { at, value });
            }
            Ok(samples)
        }
    }

    deserializer.deserialize_seq(Samples)
}

/// A number as a string such as `0.25`, `NaN` or `+Inf`.
struct Number(f64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = Number;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number as a string")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Number, E> {
                text.parse().map(Number).map_err(|_| {
                    let short: String = text.chars().take(40).collect();
                    E::custom(format!("{short:?} is not a number"))
                })
            }
        }

        deserializer.deserialize_str(Text)
    }
}

/// Takes the elements of an answer, whose result type is `vector` or `matrix`.
pub trait ResultSink: Send + 'static {
    /// Result type of the answer.
    const RESULT_TYPE: &'static str;
    /// An element of the result. It may borrow from the text of the answer.
    type Element<'a>: Deserialize<'a>;

    /// Takes the next element.
    fn push_element(&mut self, element: Self::Element<'_>);
}

impl<S: Sink> ResultSink for S {
    const RESULT_TYPE: &'static str = "vector";
    type Element<'a> = Series<S::Labels<'a>>;

    fn push_element(&mut self, element: Self::Element<'_>) {
        self.push(element);
    }
}

/// Takes the series of an answer with samples over time.
pub trait RangeSink: Send + 'static {
    /// Labels that it reads.
    type Labels: DeserializeOwned + Default;

    /// Takes the next series.
    fn push_range(&mut self, series: RangeSeries<Self::Labels>);
}

/// A [`RangeSink`] as the sink of a `matrix`.
pub(super) struct Matrix<S>(pub(super) S);

impl<S: RangeSink> ResultSink for Matrix<S> {
    const RESULT_TYPE: &'static str = "matrix";
    type Element<'a> = RangeSeries<S::Labels>;

    fn push_element(&mut self, element: Self::Element<'_>) {
        self.0.push_range(element);
    }
}

/// Takes the series of an answer.
pub trait Sink: Send + 'static {
    /// Labels that it reads. They may borrow from the text of the answer.
    type Labels<'a>: Deserialize<'a> + Default;

    /// Takes the next series.
    fn push(&mut self, series: Series<Self::Labels<'_>>);
}

impl Sink for Vec<Series> {
    type Labels<'a> = BTreeMap<String, String>;

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
    /// The answer has a result of the expected type.
    pub has_data: bool,
    /// Warning of servers that query several others.
    pub partial: Option<String>,
}

/// Pushes the series of an answer to `sink`, which keeps those before an error.
///
/// # Errors
/// The text is not an answer with the result type of the sink.
pub fn read<S: ResultSink>(mut body: impl Read, sink: &mut S) -> Result<AnswerSummary, serde_json::Error> {
    let mut splitter = Splitter::default();
    let (mut taken, mut failed) = (0, None);
    let mut text = vec![0; CHUNK];
    loop {
        let length = match body.read(&mut text) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Error::custom(error)),
        };
        splitter.push(&text[..length], |element| {
            taken += 1;
            match serde_json::from_slice::<S::Element<'_>>(element) {
                Ok(element) if failed.is_none() => sink.push_element(element),
                Ok(_) => {}
                Err(error) => drop(failed.get_or_insert(error)),
            }
        });
    }
    let mut deserializer = serde_json::Deserializer::from_slice(&splitter.frame);
    let mut reader = Reader { sink, taken, summary: AnswerSummary::default() };
    // A result of another type has other elements, and its name says more than their first error.
    reader.deserialize(&mut deserializer)?;
    deserializer.end()?;
    failed.map_or(Ok(reader.summary), Err)
}

/// Bytes read at a time.
const CHUNK: usize = 1 << 16;
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

/// Visitor of the frame of an answer. Its value: whether `data` was a complete result.
struct Reader<'a, S> {
    sink: &'a mut S,
    /// Elements that the splitter took.
    taken: usize,
    summary: AnswerSummary,
}

impl<'de, S: ResultSink> DeserializeSeed<'de> for &mut Reader<'_, S> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, S: ResultSink> Visitor<'de> for &mut Reader<'_, S> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a Prometheus answer")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
        let (mut is_expected, mut has_result) = (false, false);
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
                        return Err(A::Error::custom(format!("data without a {}", S::RESULT_TYPE)));
                    }
                }
                Field::ResultType => {
                    let kind: String = map.next_value()?;
                    is_expected = kind == S::RESULT_TYPE;
                    if !is_expected {
                        let wanted = S::RESULT_TYPE;
                        return Err(A::Error::custom(format!("the result type is {kind:?}, not {wanted}")));
                    }
                }
                Field::Result => has_result = map.next_value_seed(&mut *self)?,
                Field::Other => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(is_expected && has_result)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<bool, A::Error> {
        let mut left = self.taken;
        while let Some(element) = all.next_element::<Option<S::Element<'de>>>()? {
            match element {
                // The splitter knows no keys with escapes, and takes none of their elements.
                Some(element) => self.sink.push_element(element),
                None if left > 0 => left -= 1,
                None => return Err(A::Error::custom("an element of the result is null")),
            }
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
