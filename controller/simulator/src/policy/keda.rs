//! KEDA: triggers on metrics of a pool, and the HPA that KEDA creates. `pollingInterval` and `cooldownPeriod` count
//! only at zero replicas, which this policy does not model.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use wva_crds::entries::Amount;

use super::FleetView;
use super::autoscaler::{ReplicaProposer, external_value};
use super::hpa::{Behavior, Hpa, PolicyKind, ScalingPolicy, ScalingRules};
use crate::fleet::engine::to_f64;
use crate::measure::Objectives;

/// `ScaledObject`: triggers, each with its target for a replica, and the behavior of the HPA.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ScaledObject {
    /// Supplies fields that are absent here.
    pub like: Option<Blueprint>,
    /// Requests that wait at the gateway and at the pods.
    pub waiting: Option<Amount>,
    /// Requests at the pods.
    pub running: Option<Amount>,
    /// Prompts to be computed.
    pub prefill: Option<PrefillBacklog>,
    /// KV cache use, summed over the pods.
    pub kv: Option<Amount>,
    /// Whether [`replicas_for_latency`] is a trigger.
    pub latency: Option<bool>,
    /// The behavior of the HPA.
    pub behavior: Option<Behavior>,
}

/// Prompt tokens of requests without a token, as time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PrefillBacklog {
    /// Seconds for each replica.
    pub seconds: Amount,
    /// Prompt tokens that a replica computes in a second.
    pub tokens_per_second: Amount,
}

/// llm-d's blueprints for KEDA, with their values: `guides/workload-autoscaling` of llm-d/llm-d.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Blueprint {
    /// Queue and running requests: the default of the guide.
    /// `keda-epp/optimized-baseline/overlays/k8s/queue/scaledobject.yaml` at 057abb4a.
    #[serde(rename = "llm-d-queue")]
    Queue,
    /// Seconds of prompts, and KV cache; for Qwen3-32B on H100.
    /// `keda-epp-token-aware/optimized-baseline/base/scaledobject.yaml` at 04c0115b.
    #[serde(rename = "llm-d-token-aware")]
    TokenAware,
    /// Latencies by their objectives. `README.slo-aware.md` at d38c9f0c, and `slo-aware/scaledobject.yaml` and
    /// `slo-aware/prometheus-rule.yaml` in the fork zetxqx/llm-d at c397e679.
    #[serde(rename = "llm-d-slo-aware")]
    SloAware,
}

impl Blueprint {
    fn scaled_object(self) -> ScaledObject {
        match self {
            Self::Queue => ScaledObject {
                waiting: Some(Amount::constant(1.0)),
                running: Some(Amount::constant(16.0)),
                behavior: Some(Behavior {
                    scale_up: DOUBLE.with_window(300),
                    scale_down: DOUBLE.with_window(300),
                }),
                ..ScaledObject::default()
            },
            Self::TokenAware => ScaledObject {
                prefill: Some(PrefillBacklog {
                    seconds: Amount::constant(1.5),
                    tokens_per_second: Amount::constant(15_928.0),
                }),
                kv: Some(Amount::constant(0.8)),
                behavior: Some(Behavior {
                    scale_up: pod_limit(1, 180).with_window(0),
                    scale_down: pod_limit(1, 300).with_window(300),
                }),
                ..ScaledObject::default()
            },
            Self::SloAware => {
                let double = ScalingPolicy { period_seconds: 60, ..DOUBLE };
                let mut scale_up = double.with_window(30);
                scale_up.policies.push(pod_limit(4, 60));
                ScaledObject {
                    latency: Some(true),
                    behavior: Some(Behavior { scale_up, scale_down: pod_limit(1, 120).with_window(180) }),
                    ..ScaledObject::default()
                }
            }
        }
    }
}

const DOUBLE: ScalingPolicy = ScalingPolicy { kind: PolicyKind::Percent, value: 100, period_seconds: 15 };

fn pod_limit(value: u32, period_seconds: u32) -> ScalingPolicy {
    ScalingPolicy { kind: PolicyKind::Pods, value, period_seconds }
}

impl ScalingPolicy {
    /// This limit alone.
    fn with_window(self, stabilization_window_seconds: u32) -> ScalingRules {
        ScalingRules { stabilization_window_seconds, policies: vec![self], ..ScalingRules::default() }
    }
}

impl ScaledObject {
    /// Completed by the blueprint. `None`: no trigger.
    #[must_use]
    pub fn resolve(&self) -> Option<Self> {
        let base = self.like.map(Blueprint::scaled_object).unwrap_or_default();
        let resolved = Self {
            like: None,
            waiting: self.waiting.or(base.waiting),
            running: self.running.or(base.running),
            prefill: self.prefill.or(base.prefill),
            kv: self.kv.or(base.kv),
            latency: self.latency.or(base.latency),
            behavior: self.behavior.clone().or(base.behavior).or_else(|| Some(Behavior::default())),
        };
        let amounts = [resolved.waiting, resolved.running, resolved.kv];
        let any = amounts.iter().any(Option::is_some)
            || resolved.prefill.is_some()
            || resolved.latency == Some(true);
        any.then_some(resolved)
    }
}

/// Metrics of a pool.
pub struct Keda {
    object: ScaledObject,
    behavior: Behavior,
    saturation: LatencySaturation,
}

impl Keda {
    /// `objectives`: for the latency trigger.
    #[must_use]
    pub fn new(object: &ScaledObject, objectives: Objectives) -> Self {
        let object = object.resolve().unwrap_or_default();
        let behavior = object.behavior.clone().unwrap_or_default();
        Self { object, behavior, saturation: LatencySaturation { objectives, samples: VecDeque::new() } }
    }

    fn latency_replicas(&self, view: &FleetView<'_>, variant: usize) -> f64 {
        let (replicas, ready) = (view.current(variant), view.ready(variant));
        replicas_for_latency(self.saturation.mean(), f64::from(replicas), f64::from(ready))
    }
}

impl ReplicaProposer for Keda {
    fn behavior(&self) -> &Behavior {
        &self.behavior
    }

    fn observe(&mut self, view: &FleetView<'_>) {
        self.saturation.observe(view);
    }

    fn propose(&self, view: &FleetView<'_>, variant: usize, hpa: &Hpa) -> u32 {
        let sum = |value: fn(&super::Pod<'_>) -> f64| view.pods(variant).map(|pod| value(&pod)).sum::<f64>();
        let queued = || view.queue().map_or(0.0, |queue| to_f64(queue.requests as u64));
        let waiting = || queued() + sum(|pod| to_f64(pod.newest().waiting as u64));
        let running = || sum(|pod| to_f64((pod.newest().waiting + pod.newest().running) as u64));
        let object = &self.object;
        let proposals = [
            object.waiting.map(|target| (waiting(), target.get())),
            object.running.map(|target| (running(), target.get())),
            object.prefill.map(|target| {
                let tokens = sum(|pod| to_f64(pod.newest().prompt_backlog));
                (tokens / target.tokens_per_second.get(), target.seconds.get())
            }),
            object.kv.map(|target| (sum(|pod| pod.newest().kv), target.get())),
            object.latency.filter(|on| *on).map(|_| (self.latency_replicas(view, variant), 1.0)),
        ];
        let created = view.created(variant);
        let propose = |(value, target)| external_value(hpa, created, value, target);
        proposals.into_iter().flatten().map(propose).max().unwrap_or(view.current(variant))
    }
}

/// Greater of the two 90th percentiles by their objectives, at most 2: a mean over 45 s of samples every 15 s.
struct LatencySaturation {
    objectives: Objectives,
    samples: VecDeque<f64>,
}

impl LatencySaturation {
    const QUANTILE: f64 = 0.9;
    const RATE_SECONDS: f64 = 60.0;
    const MAX: f64 = 2.0;
    /// Samples within 45 s.
    const SAMPLES: usize = 3;

    fn observe(&mut self, view: &FleetView<'_>) {
        let latency = view.latencies(Self::RATE_SECONDS, Self::QUANTILE);
        // Without traffic it is 0.
        let ttft = latency.ttft.unwrap_or(0.0) / self.objectives.ttft;
        let tpot = latency.tpot.unwrap_or(0.0) / self.objectives.itl;
        if self.samples.len() == Self::SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(ttft.max(tpot).min(Self::MAX));
    }

    fn mean(&self) -> f64 {
        self.samples.iter().sum::<f64>() / to_f64(self.samples.len().max(1) as u64)
    }
}

/// Replicas are added above this saturation.
const SCALE_UP_ABOVE: f64 = 0.55;
/// Saturation below which replicas are taken away.
const SCALE_DOWN_BELOW: f64 = 0.4;

/// Replicas that llm-d's law asks for; `saturation` is latency by its objective. For a scale-up, unready replicas count
/// as if they took their share of the load.
#[must_use]
pub fn replicas_for_latency(saturation: f64, replicas: f64, ready: f64) -> f64 {
    if saturation > SCALE_UP_ABOVE {
        let credit = if ready > 0.0 && ready < replicas { ready / replicas } else { 1.0 };
        replicas + (replicas * (saturation * credit / SCALE_UP_ABOVE - 1.0)).ceil()
    } else if saturation < SCALE_DOWN_BELOW {
        replicas - (replicas * (1.0 - saturation / SCALE_DOWN_BELOW)).floor()
    } else {
        replicas
    }
}
