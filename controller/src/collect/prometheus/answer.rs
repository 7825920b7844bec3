//! Reads the answer to an instant query while it arrives: each series goes straight to who wants it, and neither the
//! text of the answer nor a map of each series' labels is ever held whole.

use std::io::{self, Read};

use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use tokio::sync::mpsc;
use tokio_util::bytes::{Buf, Bytes};

/// The labels that anybody reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Label {
    /// `__name__`.
    Name,
    /// `namespace`.
    Namespace,
    /// `pod`.
    Pod,
    /// `pod_name`, the older name of `pod`.
    PodName,
    /// `model_name`.
    ModelName,
    /// `target_model_name`.
    TargetModelName,
    /// `inference_pool`.
    InferencePool,
    /// `signal`, which a query gives that asks for two signals at once.
    Signal,
    /// `num_gpu_blocks`.
    NumGpuBlocks,
    /// `block_size`.
    BlockSize,
    /// `engine`, of which a server has one for each rank.
    Engine,
}

impl Label {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "__name__" => Self::Name,
            "namespace" => Self::Namespace,
            "pod" => Self::Pod,
            "pod_name" => Self::PodName,
            "model_name" => Self::ModelName,
            "target_model_name" => Self::TargetModelName,
            "inference_pool" => Self::InferencePool,
            "signal" => Self::Signal,
            "num_gpu_blocks" => Self::NumGpuBlocks,
            "block_size" => Self::BlockSize,
            "engine" => Self::Engine,
            _ => return None,
        })
    }
}

/// The labels of one series. The buffers are used again for the next.
#[derive(Debug, Default)]
pub(crate) struct Labels([String; 11]);

impl Labels {
    /// Its value; `None` where the series has no such label or an empty one, which are the same to Prometheus.
    #[must_use]
    pub(crate) fn get(&self, label: Label) -> Option<&str> {
        Some(self.0[label as usize].as_str()).filter(|value| !value.is_empty())
    }

    fn clear(&mut self) {
        self.0.iter_mut().for_each(String::clear);
    }
}

/// Takes the series of an answer one by one.
pub(crate) trait Sink: Send + 'static {
    /// One series. The value may be NaN or infinite.
    fn series(&mut self, labels: &Labels, value: f64);
}

/// What an answer says beside its series.
#[derive(Debug, Default)]
pub(crate) struct Outline {
    /// `success` or `error`.
    pub(crate) status: String,
    /// Why it is an error.
    pub(crate) error: String,
    /// There was a result.
    pub(crate) has_data: bool,
    /// Why series may be lacking: a server that answers for several lost some of them.
    pub(crate) partial: Option<String>,
}

/// Reads one whole answer and hands its series to `sink`.
///
/// # Errors
/// Where it is no answer to an instant query. Series before the fault have been handed over.
pub(crate) fn read(body: impl Read, sink: &mut impl Sink) -> Result<Outline, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_reader(io::BufReader::with_capacity(1 << 16, body));
    let outline = Top { sink, labels: &mut Labels::default() }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(outline)
}

/// A body that arrives in chunks, for a reader on a thread of its own. It ends when its sender is gone.
pub(crate) struct Body {
    chunks: mpsc::Receiver<Bytes>,
    rest: Bytes,
}

impl Body {
    pub(crate) fn new(chunks: mpsc::Receiver<Bytes>) -> Self {
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

/// Every field that is read, at whatever depth.
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
    Metric,
    Value,
    #[serde(other)]
    Other,
}

/// The whole answer.
struct Top<'a, S> {
    sink: &'a mut S,
    labels: &'a mut Labels,
}

impl<'de, S: Sink> DeserializeSeed<'de> for Top<'_, S> {
    type Value = Outline;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Outline, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, S: Sink> Visitor<'de> for Top<'_, S> {
    type Value = Outline;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an answer of Prometheus")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Outline, A::Error> {
        let mut outline = Outline::default();
        while let Some(field) = map.next_key()? {
            match field {
                Field::Status => outline.status = map.next_value()?,
                Field::Error => outline.error = map.next_value()?,
                Field::Warnings => outline.partial = lacking(map.next_value()?).or(outline.partial),
                // VictoriaMetrics' word for it.
                Field::IsPartial if map.next_value::<bool>()? => {
                    outline.partial.get_or_insert_with(|| "isPartial is true".to_owned());
                }
                Field::IsPartial => {}
                Field::Data => {
                    map.next_value_seed(Data { sink: &mut *self.sink, labels: &mut *self.labels })?;
                    outline.has_data = true;
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(outline)
    }
}

/// What PromQL notes about the expression itself begins with one of these. Such an answer lacks no series.
const ANNOTATIONS: [&str; 2] = ["PromQL warning:", "PromQL info:"];

/// The first warning that says that series are lacking.
fn lacking(warnings: Option<Vec<serde_json::Value>>) -> Option<String> {
    let mut texts = warnings.into_iter().flatten().map(|warning| match warning {
        serde_json::Value::String(text) => text,
        other => other.to_string(),
    });
    texts.find(|text| !ANNOTATIONS.iter().any(|begin| text.starts_with(begin)))
}

/// Its `data`.
struct Data<'a, S> {
    sink: &'a mut S,
    labels: &'a mut Labels,
}

impl<'de, S: Sink> DeserializeSeed<'de> for Data<'_, S> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, S: Sink> Visitor<'de> for Data<'_, S> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("data with a resultType and a result")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut complete = [false; 2];
        while let Some(field) = map.next_key()? {
            match field {
                Field::ResultType => {
                    let kind: String = map.next_value()?;
                    if kind != "vector" {
                        return Err(de::Error::custom(format!("its type is {kind:?}, not vector")));
                    }
                    complete[0] = true;
                }
                Field::Result => {
                    map.next_value_seed(Vector { sink: &mut *self.sink, labels: &mut *self.labels })?;
                    complete[1] = true;
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        if complete == [true; 2] { Ok(()) } else { Err(de::Error::custom("data without a vector")) }
    }
}

/// The list of its series.
struct Vector<'a, S> {
    sink: &'a mut S,
    labels: &'a mut Labels,
}

impl<'de, S: Sink> DeserializeSeed<'de> for Vector<'_, S> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, S: Sink> Visitor<'de> for Vector<'_, S> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a list of series")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<(), A::Error> {
        while let Some(value) = all.next_element_seed(One(&mut *self.labels))? {
            self.sink.series(self.labels, value);
        }
        Ok(())
    }
}

/// One series: its labels go into the buffers, its value comes back.
struct One<'a>(&'a mut Labels);

impl<'de> DeserializeSeed<'de> for One<'_> {
    type Value = f64;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<f64, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for One<'_> {
    type Value = f64;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a series")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<f64, A::Error> {
        self.0.clear();
        let mut value = None;
        while let Some(field) = map.next_key()? {
            match field {
                Field::Metric => map.next_value_seed(Metric(&mut *self.0))?,
                Field::Value => value = Some(map.next_value::<Sample>()?.0),
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        value.ok_or_else(|| de::Error::missing_field("value"))
    }
}

/// The labels of a series.
struct Metric<'a>(&'a mut Labels);

impl<'de> DeserializeSeed<'de> for Metric<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Metric<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("labels")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(LabelName(label)) = map.next_key()? {
            match label {
                Some(label) => map.next_value_seed(LabelValue(&mut self.0.0[label as usize]))?,
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// The name of a label; `None` for one that nobody reads.
struct LabelName(Option<Label>);

impl<'de> Deserialize<'de> for LabelName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text(deserializer, |name| Some(Self(Label::named(name))))
    }
}

/// The value of a label, into its buffer.
struct LabelValue<'a>(&'a mut String);

impl<'de> DeserializeSeed<'de> for LabelValue<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        text(deserializer, |value| {
            self.0.clear();
            self.0.push_str(value);
            Some(())
        })
    }
}

/// Time and value. The time is that of the query, and nobody reads it.
struct Sample(f64);

impl<'de> Deserialize<'de> for Sample {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (_, Number(value)) = <(IgnoredAny, Number)>::deserialize(deserializer)?;
        Ok(Self(value))
    }
}

/// A number as Prometheus writes it: a text such as `0.25`, `NaN` or `+Inf`.
struct Number(f64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text(deserializer, |text| text.parse().ok().map(Self))
    }
}

/// Reads a text where it lies, without a copy of its own; `None` refuses it.
fn text<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    read: impl FnOnce(&str) -> Option<T>,
) -> Result<T, D::Error> {
    struct Text<F>(F);
    impl<T, F: FnOnce(&str) -> Option<T>> Visitor<'_> for Text<F> {
        type Value = T;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a text")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
            let refused = || {
                let short: String = text.chars().take(40).collect();
                E::custom(format!("{short:?} is no number"))
            };
            (self.0)(text).ok_or_else(refused)
        }
    }
    deserializer.deserialize_str(Text(read))
}
