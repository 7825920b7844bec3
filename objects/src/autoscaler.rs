//! Cached fields of HPAs and ScaledObjects: what they scale, what they read, and what they report.

mod annotations;
mod metrics;
mod pauses;

use std::fmt;

use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v2::{
    HorizontalPodAutoscaler, HorizontalPodAutoscalerCondition, HorizontalPodAutoscalerStatus,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt;
use kube::core::DynamicObject;
use serde::Deserialize as _;
use serde_json::Value;

pub use self::annotations::Annotations;
pub(crate) use self::metrics::ReceivedTotal;
use self::metrics::{MetricPressure, ReceivedValue, milli, pressures, received};
pub(crate) use self::pauses::Pauses;
pub use self::pauses::{Direction, PAUSE_ANNOTATIONS, PauseAnnotation, PauseSource};
pub use crate::autoscaler_kind::{AutoscalerKind, AutoscalerName};
use crate::json::at;
use crate::limits::Limits;
use crate::owner::Owner;
use crate::readers::{MetricReader, SeriesSelector, SignalSource, formula, signal_metrics};
use crate::target::Target;
use crate::workload_key::{WorkloadKey, qualified_kind};

/// Longest text of a condition that messages repeat.
const MAX_TEXT_CHARS: usize = 400;

/// Fields of an HPA or ScaledObject.
#[derive(Debug)]
pub struct Autoscaler {
    /// Qualified kind of the workload that it scales.
    pub kind: Box<str>,
    /// Name of that workload.
    pub name: Box<str>,
    /// Bounds and tolerance.
    pub limits: Limits,
    /// Kind and name of the autoscaler itself.
    pub own_name: AutoscalerName,
    pub(crate) created: Option<Timestamp>,
    /// ScaledObject that created this HPA.
    pub(crate) scaled_object: Option<Box<str>>,
    /// `None` if it does not read wva's metric.
    pub(crate) signal: Option<SignalReader>,
    pub(crate) pauses: Pauses,
    /// Annotations of llm-d WVA v0.9.
    pub annotations: Option<Box<Annotations>>,
    pub(crate) state: AutoscalerState,
    /// Time since which the condition `AbleToScale` of an HPA is False.
    pub(crate) unable_since: Option<Timestamp>,
    /// Time at which an HPA last set the replicas.
    pub(crate) last_scaled: Option<Timestamp>,
    /// Why an HPA takes a smaller step than its metrics ask for.
    pub(crate) pace: Option<Pace>,
    /// Metrics of an HPA.
    pressures: Box<[MetricPressure]>,
    /// `status.desiredReplicas` of an HPA.
    pub desired: Option<u32>,
    /// Replicas by which the HPA divided the values.
    current: u32,
    /// External metrics of an HPA.
    received: Box<[ReceivedValue]>,
}

/// How an autoscaler reads wva's metric.
#[derive(Debug, PartialEq)]
pub(crate) struct SignalReader {
    /// One for each metric; at least one.
    pub(crate) selectors: Box<[SeriesSelector]>,
    /// The metric of the HPA that has the value begins with this.
    metric: Box<str>,
    /// The number of replicas equals the value.
    pub(crate) is_one_to_one: bool,
}

/// What the conditions of an autoscaler say.
#[derive(Debug, PartialEq)]
pub(crate) enum AutoscalerState {
    /// No controller has written its status.
    NoStatus,
    Active,
    /// An HPA does not act at 0 replicas.
    AtZero,
    /// An HPA gets no value of an external metric.
    NoMetric(Failure),
    /// KEDA gets no value, and uses `spec.fallback`.
    Fallback,
    Failing(Failure),
}

/// Reason and text of a condition.
#[derive(Debug)]
pub(crate) struct Failure {
    reason: Box<str>,
    message: Box<str>,
}

/// The text may have figures that change at every attempt.
impl PartialEq for Failure {
    fn eq(&self, other: &Self) -> bool {
        self.reason == other.reason
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        match self.message.trim_end_matches('.') {
            "" => Ok(()),
            text => write!(f, ": {text}"),
        }
    }
}

/// Limit of an HPA that only delays a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// The stabilization window.
    Stabilized,
    /// The policies of its behavior.
    Limited,
}

impl Autoscaler {
    /// Whether a judgement differs only by values and replicas, which change often.
    #[must_use]
    pub fn has_same_verdict(&self, other: &Self) -> bool {
        let of = |a: &Self| (a.limits, a.pauses, a.created);
        (&self.kind, &self.name, &self.scaled_object) == (&other.kind, &other.name, &other.scaled_object)
            && of(self) == of(other)
            && self.signal == other.signal
            && self.annotations == other.annotations
            && self.state == other.state
    }

    /// Reads an HPA.
    #[must_use]
    pub fn from_hpa(hpa: &HorizontalPodAutoscaler) -> Self {
        let target = &hpa.spec.scale_target_ref;
        let status = hpa.status.as_ref();
        let owner = Owner::from_meta(&hpa.metadata).filter(|o| &*o.kind == "ScaledObject.keda.sh");
        let count = |n: i32| u32::try_from(n).unwrap_or(0);
        Self {
            kind: qualified_kind(target.api_version.as_deref(), &target.kind).into(),
            name: target.name.as_str().into(),
            limits: Limits::from_hpa(hpa),
            own_name: AutoscalerName { kind: AutoscalerKind::Hpa, name: hpa.name_any().into() },
            created: hpa.creation_timestamp().map(|t| t.0),
            scaled_object: owner.map(|owner| owner.name),
            signal: hpa_reader(hpa),
            pauses: Pauses::from_hpa(hpa),
            annotations: Annotations::of_hpa(hpa),
            state: status.map_or(AutoscalerState::NoStatus, hpa_state),
            unable_since: status.and_then(unable_since),
            last_scaled: status.and_then(|s| s.last_scale_time.as_ref()).map(|time| time.0),
            pace: status.and_then(pace),
            pressures: pressures(hpa),
            desired: status.map(|s| count(s.desired_replicas)),
            current: status.and_then(|s| s.current_replicas).map_or(0, count),
            received: status
                .iter()
                .flat_map(|s| s.current_metrics.iter().flatten())
                .filter_map(received)
                .collect(),
        }
    }

    /// Reads an HPA or a ScaledObject as JSON. `None` if it is neither.
    #[must_use]
    pub fn from_object(object: &Value) -> Option<Self> {
        match AutoscalerKind::of(object) {
            AutoscalerKind::ScaledObject => {
                DynamicObject::deserialize(object).ok().map(|object| Self::from_scaled_object(&object))
            }
            AutoscalerKind::Hpa => {
                HorizontalPodAutoscaler::deserialize(object).ok().map(|hpa| Self::from_hpa(&hpa))
            }
        }
    }

    /// Reads a ScaledObject.
    #[must_use]
    pub fn from_scaled_object(object: &DynamicObject) -> Self {
        let object_fields = &object.data;
        let target =
            Target::of_autoscaler(object_fields).unwrap_or_else(|| Target::with_defaults(None, None, ""));
        Self {
            kind: qualified_kind(Some(&target.api_version), &target.kind).into(),
            name: target.name.into(),
            limits: Limits::from_scaled_object(&object_fields["spec"]),
            own_name: AutoscalerName { kind: AutoscalerKind::ScaledObject, name: object.name_any().into() },
            created: object.creation_timestamp().map(|t| t.0),
            scaled_object: None,
            signal: SignalSource::all(object_fields, AutoscalerKind::ScaledObject).next().map(|signal| {
                SignalReader {
                    metric: format!("s{}-", signal.position).into(),
                    is_one_to_one: is_one_to_one(object_fields, signal.source),
                    selectors: signal.selectors.into(),
                }
            }),
            pauses: Pauses::from_scaled_object(object),
            annotations: Annotations::of_scaled_object(object),
            state: scaled_object_state(&object.data),
            unable_since: None,
            last_scaled: None,
            pace: None,
            pressures: Box::default(),
            desired: None,
            current: 0,
            received: Box::default(),
        }
    }

    /// The kind that the user wrote.
    #[must_use]
    pub const fn user_kind(&self) -> &'static str {
        if self.scaled_object.is_some() { "ScaledObject" } else { "HorizontalPodAutoscaler" }
    }

    /// The workload that it scales. `namespace`: its own.
    #[must_use]
    pub fn workload(&self, namespace: &str) -> WorkloadKey {
        let (kind, name) = (self.kind.to_string(), self.name.to_string());
        WorkloadKey { namespace: namespace.to_owned(), kind, name }
    }

    /// Metric that asks for the most replicas next to the one that `reader` reads. The HPA follows the greatest.
    pub(crate) fn rival(&self, reader: &SignalReader) -> Option<&str> {
        let others = self.pressures.iter().filter(|p| !p.metric.starts_with(&*reader.metric));
        // The first of equal ones.
        others.reduce(|a, b| if b.ratio > a.ratio { b } else { a }).map(|p| &*p.metric)
    }

    /// Values of its external metrics, in replicas, for a workload with `created` pods. With a `reader`, only of the
    /// metric that it reads.
    pub(crate) fn received(
        &self,
        reader: Option<&SignalReader>,
        created: u32,
    ) -> impl Iterator<Item = ReceivedTotal> {
        let is_signal = move |value: &&ReceivedValue| {
            reader.is_none_or(|reader| value.metric.starts_with(&*reader.metric))
        };
        self.received.iter().filter(is_signal).map(move |value| {
            // The HPA divides by the pods that existed; its status has the replicas asked for.
            let counts = if value.is_average { [created, self.current] } else { [1, 1] };
            ReceivedTotal::new(value, counts)
        })
    }
}

/// Whether KEDA makes the value of a trigger the number of replicas. With a formula its target counts, not the threshold
/// of the trigger.
fn is_one_to_one(scaled_object: &Value, trigger: &Value) -> bool {
    let (kind, target) = if formula(scaled_object).is_some() {
        let modifiers = |field| at(scaled_object, &["spec", "advanced", "scalingModifiers", field]);
        (modifiers("metricType"), modifiers("target"))
    } else {
        (at(trigger, &["metricType"]), at(trigger, &["metadata", "threshold"]))
    };
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let (kind, target) = (kind.map(text), target.map(text));
    // KEDA's default. Without a target KEDA does not act, which its condition shows.
    let is_average = kind.is_none_or(|kind| kind.is_empty() || kind == "AverageValue");
    is_average && target.is_none_or(|target| milli(&target) == Some(1000))
}

fn hpa_reader(hpa: &HorizontalPodAutoscaler) -> Option<SignalReader> {
    let (_, reader) = MetricReader::from_hpa(hpa)?;
    let first = signal_metrics(hpa).next()?;
    let is_one = |value: &Quantity| milli(&value.0) == Some(1000);
    Some(SignalReader {
        selectors: reader.selectors.into(),
        metric: first.metric.name.as_str().into(),
        is_one_to_one: first.target.average_value.as_ref().is_some_and(is_one),
    })
}

fn hpa_condition<'a>(
    status: &'a HorizontalPodAutoscalerStatus,
    type_: &str,
) -> Option<&'a HorizontalPodAutoscalerCondition> {
    status.conditions.iter().flatten().find(|c| c.type_ == type_)
}

fn unable_since(status: &HorizontalPodAutoscalerStatus) -> Option<Timestamp> {
    let unable = hpa_condition(status, "AbleToScale").filter(|c| c.status == "False")?;
    unable.last_transition_time.as_ref().map(|time| time.0)
}

fn pace(status: &HorizontalPodAutoscalerStatus) -> Option<Pace> {
    let reason = |type_| hpa_condition(status, type_)?.reason.as_deref();
    match (reason("AbleToScale"), reason("ScalingLimited")) {
        (Some("ScaleUpStabilized" | "ScaleDownStabilized"), _) => Some(Pace::Stabilized),
        (_, Some("ScaleUpLimit" | "ScaleDownLimit")) => Some(Pace::Limited),
        _ => None,
    }
}

fn hpa_state(status: &HorizontalPodAutoscalerStatus) -> AutoscalerState {
    let condition = |type_| hpa_condition(status, type_);
    let mut known = ["AbleToScale", "ScalingActive"].into_iter().filter_map(condition).peekable();
    if known.peek().is_none() {
        return AutoscalerState::NoStatus;
    }
    let Some(failing) = known.find(|c| c.status == "False") else { return AutoscalerState::Active };
    let reason = failing.reason.as_deref().unwrap_or_default();
    let failure = failure(reason, failing.message.as_deref().unwrap_or_default());
    match reason {
        "ScalingDisabled" => AutoscalerState::AtZero,
        "FailedGetExternalMetric" => AutoscalerState::NoMetric(failure),
        _ => AutoscalerState::Failing(failure),
    }
}

fn scaled_object_state(object: &Value) -> AutoscalerState {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let field = |c: &Value, key: &str| c.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let condition = |type_: &str| conditions.into_iter().flatten().find(|c| field(c, "type") == type_);
    let has = |type_: &str, status: &str| condition(type_).is_some_and(|c| field(c, "status") == status);
    match condition("Ready").map(|ready| (ready, field(ready, "status"))) {
        Some((ready, status)) if status == "False" => {
            AutoscalerState::Failing(failure(&field(ready, "reason"), &field(ready, "message")))
        }
        Some((_, status)) if status == "True" && has("Fallback", "True") => AutoscalerState::Fallback,
        Some((_, status)) if status == "True" => AutoscalerState::Active,
        _ => AutoscalerState::NoStatus,
    }
}

fn failure(reason: &str, message: &str) -> Failure {
    let message: String = message.chars().take(MAX_TEXT_CHARS).collect();
    Failure { reason: reason.into(), message: message.into() }
}

#[cfg(test)]
mod tests;
