//! Directions in which an autoscaler does not act because its object says so.

use std::fmt;

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::ResourceExt;
use kube::core::DynamicObject;
use serde_json::Value;

/// Direction of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// More replicas.
    Up,
    /// Fewer replicas.
    Down,
}

impl Direction {
    const fn rules(self) -> &'static str {
        match self {
            Self::Up => "scaleUp",
            Self::Down => "scaleDown",
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Up => "up",
            Self::Down => "down",
        })
    }
}

/// Annotation with which KEDA pauses a ScaledObject.
#[derive(Clone, Copy, Debug)]
pub struct PauseAnnotation {
    /// Key.
    pub key: &'static str,
    /// `None`: it pauses both directions, and KEDA deletes the HPA.
    pub direction: Option<Direction>,
    /// The value may turn it off. False: any value pauses.
    is_boolean: bool,
}

/// All, those for both directions first.
pub const PAUSE_ANNOTATIONS: [PauseAnnotation; 4] = {
    const fn row(key: &'static str, direction: Option<Direction>, is_boolean: bool) -> PauseAnnotation {
        PauseAnnotation { key, direction, is_boolean }
    }
    [
        // At a number of replicas, whatever `paused` says.
        row("autoscaling.keda.sh/paused-replicas", None, false),
        row("autoscaling.keda.sh/paused", None, true),
        row("autoscaling.keda.sh/paused-scale-in", Some(Direction::Down), true),
        row("autoscaling.keda.sh/paused-scale-out", Some(Direction::Up), true),
    ]
};

impl PauseAnnotation {
    /// Whether a value sets the annotation. KEDA takes any value that Go does not parse as false.
    #[must_use]
    pub fn is_set(&self, value: &str) -> bool {
        !(self.is_boolean && matches!(value, "0" | "f" | "F" | "false" | "FALSE" | "False"))
    }
}

/// Field that keeps an autoscaler from acting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseSource {
    /// Annotation of KEDA.
    Annotation(&'static str),
    /// `selectPolicy: Disabled` in the behavior of an HPA.
    HpaPolicy(Direction),
    /// The same in the behavior that a ScaledObject gives its HPA.
    ScaledObjectPolicy(Direction),
}

impl fmt::Display for PauseSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Annotation(key) => write!(f, "annotation {key} is set"),
            Self::HpaPolicy(direction) => {
                write!(f, "behavior.{}.selectPolicy is Disabled", direction.rules())
            }
            Self::ScaledObjectPolicy(direction) => write!(
                f,
                "advanced.horizontalPodAutoscalerConfig.behavior.{}.selectPolicy is Disabled",
                direction.rules()
            ),
        }
    }
}

/// What pauses each direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pauses {
    pub(crate) up: Option<PauseSource>,
    pub(crate) down: Option<PauseSource>,
}

impl Pauses {
    pub(super) fn from_hpa(hpa: &HorizontalPodAutoscaler) -> Self {
        let behavior = hpa.spec.behavior.as_ref();
        let policy = |direction: Direction| {
            let rules = match direction {
                Direction::Up => behavior?.scale_up.as_ref()?,
                Direction::Down => behavior?.scale_down.as_ref()?,
            };
            (rules.select_policy.as_deref() == Some("Disabled")).then_some(PauseSource::HpaPolicy(direction))
        };
        Self { up: policy(Direction::Up), down: policy(Direction::Down) }
    }

    pub(super) fn from_scaled_object(object: &DynamicObject) -> Self {
        let annotation = |direction: Direction| {
            let pauses = |pause: &&PauseAnnotation| {
                pause.direction.is_none_or(|paused| paused == direction)
                    && object.annotations().get(pause.key).is_some_and(|value| pause.is_set(value))
            };
            PAUSE_ANNOTATIONS.iter().find(pauses).map(|pause| PauseSource::Annotation(pause.key))
        };
        let policy = |direction: Direction| {
            let rules = direction.rules();
            let path = format!("/spec/advanced/horizontalPodAutoscalerConfig/behavior/{rules}/selectPolicy");
            let value = object.data.pointer(&path).and_then(Value::as_str);
            (value == Some("Disabled")).then_some(PauseSource::ScaledObjectPolicy(direction))
        };
        let of = |direction| annotation(direction).or_else(|| policy(direction));
        Self { up: of(Direction::Up), down: of(Direction::Down) }
    }

    /// What pauses both directions at once.
    pub(crate) fn whole(self) -> Option<PauseSource> {
        self.up.filter(|up| self.down == Some(*up))
    }

    pub(crate) const fn of(self, direction: Direction) -> Option<PauseSource> {
        match direction {
            Direction::Up => self.up,
            Direction::Down => self.down,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "callers write JSON in place")]
    fn of_scaled_object(annotations: Value, spec: Value) -> [Option<String>; 2] {
        let object = json!({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject",
            "metadata": {"name": "s", "annotations": annotations}, "spec": spec});
        texts(Pauses::from_scaled_object(&serde_json::from_value(object).unwrap()))
    }

    fn texts(pauses: Pauses) -> [Option<String>; 2] {
        [pauses.up, pauses.down].map(|source| source.map(|source| source.to_string()))
    }

    #[test]
    fn annotations_pause_as_keda_reads_them() {
        let set = |key: &str| Some(format!("annotation autoscaling.keda.sh/{key} is set"));
        for (key, value, [up, down]) in [
            ("paused", "true", [set("paused"), set("paused")]),
            ("paused", "", [set("paused"), set("paused")]),
            ("paused", "no", [set("paused"), set("paused")]),
            ("paused", "false", [None, None]),
            ("paused", "F", [None, None]),
            ("paused", "0", [None, None]),
            ("paused-replicas", "2", [set("paused-replicas"), set("paused-replicas")]),
            ("paused-replicas", "false", [set("paused-replicas"), set("paused-replicas")]),
            ("paused-scale-out", "true", [set("paused-scale-out"), None]),
            ("paused-scale-in", "1", [None, set("paused-scale-in")]),
            ("paused-scale-in", "False", [None, None]),
            ("other", "true", [None, None]),
        ] {
            let found = of_scaled_object(json!({format!("autoscaling.keda.sh/{key}"): value}), json!({}));
            assert_eq!(found, [up, down], "{key}={value}");
        }
        let both = json!({"autoscaling.keda.sh/paused": "false", "autoscaling.keda.sh/paused-replicas": "1"});
        assert_eq!(of_scaled_object(both, json!({}))[0], set("paused-replicas"));
    }

    #[test]
    fn disabled_policies_pause_a_direction() {
        let rules = json!({"scaleUp": {"selectPolicy": "Disabled"}, "scaleDown": {"selectPolicy": "Max"}});
        let spec = json!({"advanced": {"horizontalPodAutoscalerConfig": {"behavior": rules.clone()}}});
        let path = "advanced.horizontalPodAutoscalerConfig.behavior.scaleUp.selectPolicy is Disabled";
        assert_eq!(of_scaled_object(json!({}), spec), [Some(path.to_owned()), None]);
        let hpa = |behavior: Value| {
            let spec = json!({"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "maxReplicas": 3,
                "behavior": behavior});
            texts(Pauses::from_hpa(&serde_json::from_value(json!({"spec": spec})).unwrap()))
        };
        assert_eq!(hpa(rules), [Some("behavior.scaleUp.selectPolicy is Disabled".to_owned()), None]);
        let down = json!({"scaleDown": {"selectPolicy": "Disabled"}});
        assert_eq!(hpa(down), [None, Some("behavior.scaleDown.selectPolicy is Disabled".to_owned())]);
        assert_eq!(hpa(Value::Null), [None, None]);
    }
}
