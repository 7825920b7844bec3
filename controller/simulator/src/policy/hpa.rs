//! `HorizontalPodAutoscaler` (autoscaling/v2): tolerance, stabilization windows and limits, as its controller computes
//! them.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use wva_crds::entries::Amount;

/// `spec.behavior`, and the controller's flags.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Behavior {
    /// Upwards.
    pub scale_up: ScalingRules,
    /// Downwards.
    pub scale_down: ScalingRules,
}

impl Default for Behavior {
    /// Kubernetes' default.
    fn default() -> Self {
        let doubling = ScalingPolicy { kind: PolicyKind::Percent, value: 100, period_seconds: 15 };
        let four = ScalingPolicy { kind: PolicyKind::Pods, value: 4, period_seconds: 15 };
        Self {
            scale_up: ScalingRules { policies: vec![doubling, four], ..ScalingRules::default() },
            scale_down: ScalingRules {
                stabilization_window_seconds: 300,
                policies: vec![doubling],
                ..ScalingRules::default()
            },
        }
    }
}

impl Behavior {
    /// HPA for the `percentage` and `token` analyzers: the signal is already steady, so scale-up does not wait.
    #[must_use]
    pub fn wva_default() -> Self {
        let ten = ScalingPolicy { kind: PolicyKind::Pods, value: 10, period_seconds: 150 };
        Self {
            scale_up: ScalingRules { policies: vec![ten], ..ScalingRules::default() },
            scale_down: ScalingRules {
                stabilization_window_seconds: 240,
                policies: vec![ten],
                ..ScalingRules::default()
            },
        }
    }
}

/// Rules for one direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ScalingRules {
    /// Stabilization window in seconds.
    pub stabilization_window_seconds: u32,
    /// Selects the limit that counts.
    pub select_policy: PolicySelect,
    /// Limits on the change in a period.
    pub policies: Vec<ScalingPolicy>,
    /// Relative change that is ignored.
    pub tolerance: Amount,
}

impl Default for ScalingRules {
    fn default() -> Self {
        Self {
            stabilization_window_seconds: 0,
            select_policy: PolicySelect::Max,
            policies: Vec::new(),
            tolerance: wva_scaling::snapshot::HpaTolerance::default().up,
        }
    }
}

/// Selects one of several limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PolicySelect {
    /// The one that allows most.
    Max,
    /// The one that allows least.
    Min,
    /// Nothing changes in this direction.
    Disabled,
}

/// A limit on change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ScalingPolicy {
    /// Unit of the value.
    #[serde(rename = "type")]
    pub kind: PolicyKind,
    /// Maximum change, in replicas or percent.
    pub value: u32,
    /// Length of the period, seconds.
    pub period_seconds: u32,
}

/// Unit of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PolicyKind {
    /// Replicas.
    Pods,
    /// Percent of the replicas at the beginning of the period.
    Percent,
}

/// State of the controller for one autoscaler.
#[derive(Clone, Debug)]
pub struct Hpa {
    behavior: Behavior,
    min: u32,
    max: u32,
    /// Recommendations, oldest first.
    recommended: VecDeque<(f64, u32)>,
    /// Changes, oldest first.
    changes: VecDeque<(f64, i64)>,
}

impl Hpa {
    /// An autoscaler that has seen nothing yet.
    #[must_use]
    pub fn new(behavior: Behavior, min: u32, max: u32) -> Self {
        Self { behavior, min, max, recommended: VecDeque::new(), changes: VecDeque::new() }
    }

    /// Whether a ratio of usage to target is too near to 1 to act on.
    #[must_use]
    pub fn tolerates(&self, ratio: f64) -> bool {
        let down = self.behavior.scale_down.tolerance.get();
        let up = self.behavior.scale_up.tolerance.get();
        (1.0 - down..=1.0 + up).contains(&ratio)
    }

    /// Replicas after one sync.
    pub fn sync(&mut self, now: f64, current: u32, recommended: u32) -> u32 {
        let stable = self.stabilize(now, current, recommended);
        let next = self.limit(now, current, stable);
        if next != current {
            self.changes.push_back((now, i64::from(next) - i64::from(current)));
        }
        next
    }

    fn stabilize(&mut self, now: f64, current: u32, recommended: u32) -> u32 {
        let up = f64::from(self.behavior.scale_up.stabilization_window_seconds);
        let down = f64::from(self.behavior.scale_down.stabilization_window_seconds);
        // The first replica count is a recommendation, so the stabilization window applies to it.
        if self.recommended.is_empty() {
            self.recommended.push_back((now, current));
        }
        self.recommended.push_back((now, recommended));
        self.recommended.retain(|(at, _)| now - at <= up.max(down));
        let within = |window: f64| {
            let kept = self.recommended.iter().filter(move |(at, _)| now - at < window);
            kept.map(|(_, n)| *n).chain([recommended])
        };
        let least = within(up).min().unwrap_or(recommended);
        let most = within(down).max().unwrap_or(recommended);
        current.max(least).min(most)
    }

    fn limit(&mut self, now: f64, current: u32, desired: u32) -> u32 {
        self.changes.retain(|(at, _)| now - at <= 3600.0);
        let allowed = match desired.cmp(&current) {
            std::cmp::Ordering::Equal => desired,
            std::cmp::Ordering::Greater => {
                let most = self.allowed(&self.behavior.scale_up, now, current, 1.0);
                desired.min(most.max(current))
            }
            std::cmp::Ordering::Less => {
                let least = self.allowed(&self.behavior.scale_down, now, current, -1.0);
                desired.max(least.min(current))
            }
        };
        allowed.clamp(self.min, self.max.max(self.min))
    }

    /// Replicas that the policies of one direction allow.
    fn allowed(&self, rules: &ScalingRules, now: f64, current: u32, sign: f64) -> u32 {
        let each = rules.policies.iter().map(|limit| {
            let within = self.changes.iter().filter(|(at, _)| now - at < f64::from(limit.period_seconds));
            let before = i64::from(current) - within.map(|(_, change)| change).sum::<i64>();
            #[expect(clippy::cast_precision_loss, reason = "replicas are few")]
            let before = before.max(0) as f64;
            let value = f64::from(limit.value);
            match limit.kind {
                PolicyKind::Pods => before + sign * value,
                PolicyKind::Percent if sign > 0.0 => (before * (1.0 + value / 100.0)).ceil(),
                PolicyKind::Percent => (before * (1.0 - value / 100.0)).floor(),
            }
        });
        let most = match (rules.select_policy, sign > 0.0) {
            (PolicySelect::Disabled, _) => return current,
            _ if rules.policies.is_empty() => return if sign > 0.0 { u32::MAX } else { 0 },
            (PolicySelect::Max, true) | (PolicySelect::Min, false) => each.fold(0.0, f64::max),
            (PolicySelect::Min, true) | (PolicySelect::Max, false) => each.fold(f64::INFINITY, f64::min),
        };
        to_u32(most)
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
pub(super) fn to_u32(replicas: f64) -> u32 {
    replicas as u32
}
