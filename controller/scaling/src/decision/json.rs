//! JSON of decisions, in the output of `wva decide -o json` and `wva explain -o json`.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::{Action, Decision, Shadow, Step};
use crate::reason::WaitingReplicas;
use crate::snapshot::Attainment;

/// Target of a variant, and the steps that led to it.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct DecisionJson<'a> {
    /// Namespace of the variant.
    namespace: &'a str,
    /// Model that the variant serves.
    #[serde(rename = "modelID")]
    model_id: &'a str,
    /// Name of the VariantAutoscaling.
    variant: &'a str,
    /// Accelerator, or `unresolved`.
    accelerator: &'a str,
    /// `spec.replicas` of the workload.
    current: u32,
    /// Target; in mode `recommend`, the one that would be published.
    target: u32,
    /// Direction from `current` to `target`.
    action: Action,
    /// Code of the reason that decides.
    reason: &'static str,
    /// Accelerator without enough free GPUs, or what else is too scarce.
    limited_by: Option<Cow<'a, str>>,
    /// Replicas that a scheduling gate or a ResourceQuota holds back.
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting_for_quota: Option<&'a WaitingReplicas>,
    /// Steps in the order of the stages.
    steps: &'a [Step],
    /// Decision of the shadow analyzer.
    #[serde(skip_serializing_if = "Option::is_none")]
    shadow: Option<ShadowJson<'a>>,
    /// Measured shares within the objectives of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    attainment: Option<Attainment>,
}

/// Decision of another analyzer, which changes no target.
#[derive(Serialize, JsonSchema)]
struct ShadowJson<'a> {
    /// Name of the analyzer.
    analyzer: &'a str,
    /// Target of the analyzer.
    target: u32,
    /// Code of the reason that decides.
    reason: &'static str,
    /// Steps in the order of the stages.
    steps: &'a [Step],
}

/// Schema of a reason: the figures may change in any release.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only the schema is used")]
pub(super) struct ReasonJson {
    /// Code of the reason.
    reason: String,
    /// Figures of the reason. They may change in any release.
    figures: Map<String, Value>,
}

impl Serialize for Decision {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        DecisionJson {
            namespace: &self.key.namespace,
            model_id: &self.model_id,
            variant: &self.key.name,
            accelerator: &self.report.accelerator,
            current: self.current,
            target: self.target(),
            action: self.action(),
            reason: self.reason().code(),
            limited_by: self.limited_by(),
            waiting_for_quota: self.report.replicas.waiting_for_quota.as_ref(),
            steps: &self.steps,
            shadow: self.shadow.as_deref().map(ShadowJson::new),
            attainment: Some(self.report.model.attainment).filter(|attainment| !attainment.is_empty()),
        }
        .serialize(serializer)
    }
}

impl<'a> ShadowJson<'a> {
    fn new(shadow: &'a Shadow) -> Self {
        Self {
            analyzer: shadow.analyzer.label(),
            target: shadow.target(),
            reason: shadow.reason().code(),
            steps: &shadow.steps,
        }
    }
}
