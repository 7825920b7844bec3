//! Cached fields of HPAs and ScaledObjects: what they scale, what they read, and what they report.

mod annotations;

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v2::{
    HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus, MetricStatus,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::Value;
use wva_crds::names::is_desired_replicas;
use wva_rules::{MetricReader, SeriesSelector, signal_trigger};
use wva_runtime::cache::Projection;

use self::annotations::Annotations;
use super::objects::Owner;
use crate::model::keys::{WorkloadKey, qualified_kind};
use crate::model::limits::Limits;

/// Any value but `false` and absence pauses a ScaledObject.
const PAUSED: &str = "autoscaling.keda.sh/paused";
/// Pauses a ScaledObject at a number of replicas.
const PAUSED_REPLICAS: &str = "autoscaling.keda.sh/paused-replicas";
/// Longest text of a condition that messages repeat.
const MAX_TEXT_CHARS: usize = 400;

/// Kind of an autoscaler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AutoscalerKind {
    /// HorizontalPodAutoscaler.
    Hpa,
    /// ScaledObject of KEDA.
    ScaledObject,
}

impl AutoscalerKind {
    /// API version and kind.
    #[must_use]
    pub const fn api(self) -> (&'static str, &'static str) {
        match self {
            Self::Hpa => ("autoscaling/v2", "HorizontalPodAutoscaler"),
            Self::ScaledObject => ("keda.sh/v1alpha1", "ScaledObject"),
        }
    }
}

/// Kind and name, such as `HPA llama`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AutoscalerName {
    /// Kind.
    pub kind: AutoscalerKind,
    /// Name, in the namespace of its workload.
    pub name: Box<str>,
}

impl fmt::Display for AutoscalerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            AutoscalerKind::Hpa => "HPA",
            AutoscalerKind::ScaledObject => "ScaledObject",
        };
        write!(f, "{kind} {}", self.name)
    }
}

/// Fields of an HPA or ScaledObject.
#[derive(Debug)]
pub struct Autoscaler {
    /// Of the workload that it scales.
    pub(crate) kind: Box<str>,
    pub(crate) name: Box<str>,
    pub(crate) limits: Limits,
    pub(crate) own_name: AutoscalerName,
    pub(crate) created: Option<Timestamp>,
    /// ScaledObject that created this HPA.
    pub(crate) scaled_object: Option<Box<str>>,
    /// `None` if it does not read wva's metric.
    pub(crate) signal: Option<SignalReader>,
    pub(crate) is_paused: bool,
    /// Of llm-d WVA v0.9.
    pub(crate) annotations: Option<Box<Annotations>>,
    pub(crate) state: AutoscalerState,
    /// `status.desiredReplicas` of an HPA.
    pub(crate) desired: Option<u32>,
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

#[derive(Debug)]
struct ReceivedValue {
    metric: Box<str>,
    /// Thousandths.
    milli: i64,
    /// The value is divided by the replicas.
    is_average: bool,
}

impl Autoscaler {
    pub(crate) fn hpas() -> Projection<HorizontalPodAutoscaler, Arc<Self>> {
        Projection { read: |hpa| Arc::new(Self::from_hpa(hpa)), is_same: Some(|a, b| a.has_same_verdict(b)) }
    }

    pub(crate) fn scaled_objects() -> Projection<DynamicObject, Arc<Self>> {
        Projection {
            read: |object| Arc::new(Self::from_scaled_object(object)),
            is_same: Some(|a, b| a.has_same_verdict(b)),
        }
    }

    /// Values and replicas change often; the next cycle reads them.
    fn has_same_verdict(&self, other: &Self) -> bool {
        let of = |a: &Self| (a.limits, a.is_paused, a.created);
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
            is_paused: false,
            annotations: Annotations::of_hpa(hpa),
            state: status.map_or(AutoscalerState::NoStatus, hpa_state),
            desired: status.map(|s| count(s.desired_replicas)),
            current: status.and_then(|s| s.current_replicas).map_or(0, count),
            received: status
                .iter()
                .flat_map(|s| s.current_metrics.iter().flatten())
                .filter_map(received)
                .collect(),
        }
    }

    /// Reads a ScaledObject.
    #[must_use]
    pub fn from_scaled_object(object: &DynamicObject) -> Self {
        let spec = object.data.get("spec").unwrap_or(&Value::Null);
        let target = |field: &str| spec.pointer(&format!("/scaleTargetRef/{field}")).and_then(Value::as_str);
        // KEDA's default.
        let kind = target("kind").filter(|k| !k.is_empty()).unwrap_or("Deployment");
        let annotations = object.annotations();
        Self {
            kind: qualified_kind(target("apiVersion").filter(|v| !v.is_empty()), kind).into(),
            name: target("name").unwrap_or_default().into(),
            limits: Limits::from_scaled_object(spec),
            own_name: AutoscalerName { kind: AutoscalerKind::ScaledObject, name: object.name_any().into() },
            created: object.creation_timestamp().map(|t| t.0),
            scaled_object: None,
            signal: signal_trigger(spec).map(|(position, selectors)| SignalReader {
                selectors: selectors.into(),
                metric: format!("s{position}-").into(),
                is_one_to_one: is_one_to_one(spec, position),
            }),
            is_paused: annotations.get(PAUSED).is_some_and(|v| v != "false")
                || annotations.contains_key(PAUSED_REPLICAS),
            annotations: Annotations::of_scaled_object(object),
            state: scaled_object_state(&object.data),
            desired: None,
            current: 0,
            received: Box::default(),
        }
    }

    /// The kind that the user wrote.
    pub(crate) const fn user_kind(&self) -> &'static str {
        if self.scaled_object.is_some() { "ScaledObject" } else { "HorizontalPodAutoscaler" }
    }

    /// The workload that it scales.
    pub(crate) fn workload(&self, namespace: &str) -> WorkloadKey {
        let (kind, name) = (self.kind.to_string(), self.name.to_string());
        WorkloadKey { namespace: namespace.to_owned(), kind, name }
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
            ReceivedTotal { milli: value.milli, counts }
        })
    }
}

/// Value that an HPA received, before the division by one of two replica counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceivedTotal {
    milli: i64,
    counts: [u32; 2],
}

impl ReceivedTotal {
    /// The HPA rounds thousandths up.
    pub(crate) fn equals(self, target: u32) -> bool {
        let wanted = i64::from(target) * 1000;
        self.counts.into_iter().any(|n| {
            let total = self.milli.saturating_mul(n.into());
            (wanted..=wanted + i64::from(n)).contains(&total)
        })
    }

    /// Rounded to whole replicas.
    pub(crate) fn replicas(self) -> i64 {
        self.milli.saturating_mul(self.counts[0].into()).saturating_add(500) / 1000
    }
}

/// Whether KEDA makes the value of a trigger the number of replicas. With a formula its target counts, not the threshold
/// of the trigger.
fn is_one_to_one(spec: &Value, position: usize) -> bool {
    let field = |path: &str| {
        let value = spec.pointer(path).filter(|value| !value.is_null())?;
        Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    };
    let modifiers = |field: &str| format!("/advanced/scalingModifiers/{field}");
    let trigger = |field: &str| format!("/triggers/{position}/{field}");
    let has_formula = field(&modifiers("formula")).is_some_and(|formula| !formula.is_empty());
    let (kind, target) = if has_formula {
        (field(&modifiers("metricType")), field(&modifiers("target")))
    } else {
        (field(&trigger("metricType")), field(&trigger("metadata/threshold")))
    };
    // KEDA's default. Without a target KEDA does not act, which its condition shows.
    let is_average = kind.is_none_or(|kind| kind.is_empty() || kind == "AverageValue");
    is_average && target.is_none_or(|target| milli(&target) == Some(1000))
}

fn hpa_reader(hpa: &HorizontalPodAutoscaler) -> Option<SignalReader> {
    let (_, reader) = MetricReader::from_hpa(hpa)?;
    let metrics = hpa.spec.metrics.iter().flatten().filter_map(|m| m.external.as_ref());
    let mut signals = metrics.filter(|m| is_desired_replicas(&m.metric.name));
    let first = signals.next()?;
    let is_one = |value: &Quantity| milli(&value.0) == Some(1000);
    Some(SignalReader {
        selectors: reader.selectors.into(),
        metric: first.metric.name.as_str().into(),
        is_one_to_one: first.target.average_value.as_ref().is_some_and(is_one),
    })
}

fn hpa_state(status: &HorizontalPodAutoscalerStatus) -> AutoscalerState {
    let condition = |type_: &str| status.conditions.iter().flatten().find(|c| c.type_ == type_);
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

fn received(metric: &MetricStatus) -> Option<ReceivedValue> {
    let external = metric.external.as_ref()?;
    let (quantity, is_average) = match (&external.current.average_value, &external.current.value) {
        (Some(average), _) => (average, true),
        (None, value) => (value.as_ref()?, false),
    };
    Some(ReceivedValue {
        metric: external.metric.name.as_str().into(),
        milli: milli(&quantity.0)?,
        is_average,
    })
}

/// Thousandths of a quantity, such as 1500 for `1500m` or `1.5`. `None` for other suffixes than `m` and `k`.
fn milli(quantity: &str) -> Option<i64> {
    if let Some(milli) = quantity.strip_suffix('m') {
        return milli.parse().ok();
    }
    let (number, factor) = quantity.strip_suffix('k').map_or((quantity, 1000.0), |n| (n, 1_000_000.0));
    let value = number.parse::<f64>().ok().filter(|value| value.is_finite())? * factor;
    #[expect(clippy::cast_possible_truncation, reason = "a cast saturates")]
    let milli = value.round() as i64;
    Some(milli)
}

#[cfg(test)]
mod tests;
