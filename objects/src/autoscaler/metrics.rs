//! Values of the metrics of an HPA.

use k8s_openapi::api::autoscaling::v2::{
    HorizontalPodAutoscaler, MetricSpec, MetricStatus, MetricTarget, MetricValueStatus,
};

#[derive(Debug)]
pub(super) struct ReceivedValue {
    pub(super) metric: Box<str>,
    /// Thousandths.
    milli: i64,
    /// The value is divided by the replicas.
    pub(super) is_average: bool,
}

/// Value that an HPA received, before the division by one of two replica counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceivedTotal {
    milli: i64,
    counts: [u32; 2],
}

impl ReceivedTotal {
    pub(super) const fn new(value: &ReceivedValue, counts: [u32; 2]) -> Self {
        Self { milli: value.milli, counts }
    }

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

pub(super) fn received(metric: &MetricStatus) -> Option<ReceivedValue> {
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
pub(super) fn milli(quantity: &str) -> Option<i64> {
    if let Some(milli) = quantity.strip_suffix('m') {
        return milli.parse().ok();
    }
    let (number, factor) = quantity.strip_suffix('k').map_or((quantity, 1000.0), |n| (n, 1_000_000.0));
    let value = number.parse::<f64>().ok().filter(|value| value.is_finite())? * factor;
    #[expect(clippy::cast_possible_truncation, reason = "a cast saturates")]
    let milli = value.round() as i64;
    Some(milli)
}

/// How much of a metric an HPA sees.
#[derive(Debug)]
pub(super) struct MetricPressure {
    pub(super) metric: Box<str>,
    /// Present value by its target. 0 without a value.
    pub(super) ratio: f64,
}

/// Pressure of each metric in the spec of an HPA.
pub(super) fn pressures(hpa: &HorizontalPodAutoscaler) -> Box<[MetricPressure]> {
    let shown: Vec<_> = hpa.status.iter().flat_map(|s| s.current_metrics.iter().flatten()).collect();
    let pressure = |spec: &MetricSpec| {
        let (metric, target) = target_of(spec)?;
        let value = shown.iter().find_map(|status| {
            let (name, value) = value_of(status)?;
            (status.type_ == spec.type_ && name == metric).then_some(value)
        });
        let ratio = value.and_then(|value| ratio(value, target)).unwrap_or(0.0);
        Some(MetricPressure { metric: metric.into(), ratio })
    };
    hpa.spec.metrics.iter().flatten().filter_map(pressure).collect()
}

fn target_of(spec: &MetricSpec) -> Option<(&str, &MetricTarget)> {
    let of_resource = spec.resource.as_ref().map(|m| (m.name.as_str(), &m.target));
    let of_container = || spec.container_resource.as_ref().map(|m| (m.name.as_str(), &m.target));
    let of_pods = || spec.pods.as_ref().map(|m| (m.metric.name.as_str(), &m.target));
    let of_object = || spec.object.as_ref().map(|m| (m.metric.name.as_str(), &m.target));
    let of_external = || spec.external.as_ref().map(|m| (m.metric.name.as_str(), &m.target));
    of_resource.or_else(of_container).or_else(of_pods).or_else(of_object).or_else(of_external)
}

fn value_of(status: &MetricStatus) -> Option<(&str, &MetricValueStatus)> {
    let of_resource = status.resource.as_ref().map(|m| (m.name.as_str(), &m.current));
    let of_container = || status.container_resource.as_ref().map(|m| (m.name.as_str(), &m.current));
    let of_pods = || status.pods.as_ref().map(|m| (m.metric.name.as_str(), &m.current));
    let of_object = || status.object.as_ref().map(|m| (m.metric.name.as_str(), &m.current));
    let of_external = || status.external.as_ref().map(|m| (m.metric.name.as_str(), &m.current));
    of_resource.or_else(of_container).or_else(of_pods).or_else(of_object).or_else(of_external)
}

/// Present value by its target.
fn ratio(value: &MetricValueStatus, target: &MetricTarget) -> Option<f64> {
    let percent = value.average_utilization.zip(target.average_utilization);
    if let Some((value, target)) = percent {
        return Some(f64::from(value) / f64::from(target));
    }
    let pairs = [(&value.average_value, &target.average_value), (&value.value, &target.value)];
    let (value, target) = pairs.into_iter().find_map(|(v, t)| Some((v.as_ref()?, t.as_ref()?)))?;
    #[expect(clippy::cast_precision_loss, reason = "only the greatest ratio is looked for")]
    let number = |quantity: &str| milli(quantity).map(|n| n as f64);
    Some(number(&value.0)? / number(&target.0)?)
}
