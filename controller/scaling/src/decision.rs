//! Result of a cycle: steps and target of each variant, and the state for the next cycle.

mod bounds;
mod json;
mod next_state;
mod report;
mod signal_gaps;

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::Serialize;

use crate::reason::{FallbackSource, Reason};
use crate::snapshot::{AnalyzerName, WakeObstacle};
use wva_crds::entries::DroppedLayer;
use wva_objects::servers::ServerKind;

pub use bounds::Bounds;
pub use next_state::{NextState, VariantState};
pub use report::{ModelReport, ReplicaReport, Report};
pub use signal_gaps::{MainSignal, SignalGaps};

/// A stage of the pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Stage {
    /// Compares load and capacity.
    Analyze,
    /// Distributes added or removed replicas over the variants.
    Optimize,
    /// Applies scale to zero, wake-up and bounds.
    Enforce,
    /// Limits scale-ups to the free GPUs and to ResourceQuotas, and gives replicas back to better priorities.
    Limit,
    /// Applies the mode annotation.
    Publish,
}

impl Stage {
    /// Name in traces.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Analyze => "analyze",
            Self::Optimize => "optimize",
            Self::Enforce => "enforce",
            Self::Limit => "limit",
            Self::Publish => "publish",
        }
    }
}

/// Step of a decision.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Step {
    /// Stage of the pipeline.
    pub stage: Stage,
    /// Replicas before the step.
    pub before: u32,
    /// Replicas after the step.
    pub after: u32,
    /// Reason with its figures.
    #[serde(flatten)]
    #[schemars(with = "json::ReasonJson")]
    pub reason: Reason,
}

/// Direction from the current replicas to the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// More replicas.
    Up,
    /// Fewer replicas.
    Down,
    /// The same number of replicas.
    None,
}

/// Target of one variant, and the steps that led to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The variant.
    pub key: VariantKey,
    /// Model that the variant serves.
    pub model_id: String,
    /// `spec.replicas` of the workload.
    pub current: u32,
    /// Replicas from which the steps start: the last target within the bounds, else `current`.
    pub base: u32,
    /// Steps from `base` to the target, in order of the stages. Never empty.
    pub steps: Vec<Step>,
    /// Decision of the shadow analyzer, if the settings name one. It changes no target.
    pub shadow: Option<Box<Shadow>>,
    /// What the decision saw.
    pub report: Report,
}

/// Decision of another analyzer, before the mode applies.
#[derive(Clone, Debug, PartialEq)]
pub struct Shadow {
    /// Shadow analyzer.
    pub analyzer: AnalyzerName,
    /// Steps in order of the stages. Never empty.
    pub steps: Vec<Step>,
}

impl Shadow {
    /// Target of the shadow analyzer.
    #[must_use]
    pub fn target(&self) -> u32 {
        self.steps.last().map_or(0, |step| step.after)
    }

    /// See [`Decision::reason`].
    #[must_use]
    pub fn reason(&self) -> &Reason {
        deciding_reason(&self.steps)
    }
}

fn deciding_reason(steps: &[Step]) -> &Reason {
    let last = steps.iter().rev().map(|step| &step.reason).find(|r| !r.is_no_change());
    last.or_else(|| steps.first().map(|step| &step.reason)).unwrap_or(&Reason::NO_CHANGE)
}

/// What `find` finds in the last step that has it.
pub(crate) fn last_of<'a, T>(steps: &'a [Step], find: impl Fn(&'a Reason) -> Option<T>) -> Option<T> {
    steps.iter().rev().find_map(|step| find(&step.reason))
}

/// True if load, waiting requests or the mode ask for more. A bound does not count: a user who scales to 0 has switched
/// the HPA off, and is not overruled.
pub(crate) fn wants_more(steps: &[Step]) -> bool {
    steps.iter().any(|step| match step.reason {
        Reason::RequestsWaiting { .. } | Reason::RequestsRefused { .. } | Reason::WakeHold { .. } => true,
        Reason::AtMinimum { .. }
        | Reason::MinimumKept {}
        | Reason::KeptDecision { .. }
        | Reason::SafetyNet { .. } => false,
        _ => step.after > step.before,
    })
}

impl Decision {
    /// Target; in mode `recommend`, the one that would be published.
    #[must_use]
    pub fn target(&self) -> u32 {
        self.steps.last().map_or(self.base, |step| step.after)
    }

    /// Target before the mode applies.
    #[must_use]
    pub fn target_before_mode(&self) -> u32 {
        let before_mode = |step: &&Step| step.stage != Stage::Publish;
        self.steps.iter().rev().find(before_mode).map_or(self.base, |step| step.after)
    }

    /// Direction from the current replicas to the target.
    #[must_use]
    pub fn action(&self) -> Action {
        match self.target().cmp(&self.current) {
            std::cmp::Ordering::Greater => Action::Up,
            std::cmp::Ordering::Less => Action::Down,
            std::cmp::Ordering::Equal => Action::None,
        }
    }

    /// True if this cycle asks for more than the last one.
    #[must_use]
    pub fn grows(&self) -> bool {
        self.target() > self.base
    }

    /// True while growth that this or an earlier cycle asked for is not carried out.
    #[must_use]
    pub fn is_growing(&self) -> bool {
        self.target() > self.base.min(self.current)
    }

    /// Reason of the last step other than `NoChange`, else of the analyzer's step.
    #[must_use]
    pub fn reason(&self) -> &Reason {
        deciding_reason(&self.steps)
    }

    /// True while the variant is woken from 0, or held since.
    #[must_use]
    pub fn is_woken(&self) -> bool {
        let woken = |reason: &Reason| {
            matches!(
                reason,
                Reason::RequestsWaiting { .. } | Reason::RequestsRefused { .. } | Reason::WakeHold { .. }
            )
        };
        self.steps.iter().any(|step| woken(&step.reason))
    }

    /// True if load, waiting requests or the mode ask for more, or a wake-up holds the variant.
    #[must_use]
    pub fn wants_more(&self) -> bool {
        wants_more(&self.steps)
    }

    /// Value that is held because the analysis failed.
    #[must_use]
    pub fn safety_net(&self) -> Option<FallbackSource> {
        last_of(&self.steps, |reason| match reason {
            Reason::SafetyNet { fallback_source, .. } => Some(*fallback_source),
            _ => None,
        })
    }

    /// Accelerator without enough free GPUs, or what else is too scarce.
    #[must_use]
    pub fn limited_by(&self) -> Option<Cow<'_, str>> {
        last_of(&self.steps, Reason::scarce_budget)
    }

    /// Key of its model.
    #[must_use]
    pub fn model_key(&self) -> ModelKey {
        ModelKey::new(&self.key.namespace, &self.model_id)
    }
}

/// Namespace and name of a `VariantAutoscaling`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VariantKey {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// All variants with one `modelID` in one namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelKey {
    /// Namespace.
    pub namespace: String,
    /// `spec.modelID`.
    pub model_id: String,
}

impl ModelKey {
    /// Key of a model.
    #[must_use]
    pub fn new(namespace: &str, model_id: &str) -> Self {
        Self { namespace: namespace.to_owned(), model_id: model_id.to_owned() }
    }
}

/// Result of one cycle. Its JSON is the output of `wva decide -o json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Outcome {
    /// Ordered by namespace, model and variant.
    #[schemars(with = "Vec<json::DecisionJson<'static>>")]
    pub decisions: Vec<Decision>,
    /// State for the next snapshot.
    #[serde(skip)]
    pub next: NextState,
    /// Warnings to log.
    #[serde(skip)]
    pub warnings: Vec<Warning>,
}

/// Finding to log.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Warning {
    /// A layer of settings is ignored: it breaks a rule together with the layers below it.
    #[error("model {model_id} in namespace {namespace}: {layer}")]
    SettingsDropped {
        /// Namespace of the model.
        namespace: String,
        /// Model.
        model_id: String,
        /// The layer and the rule it breaks.
        layer: DroppedLayer,
    },
    /// The inventory does not contain the accelerator.
    #[error(
        "variant {namespace}/{variant} is not limited: the inventory has no accelerator {accelerator}; set the label \
         inference.optimization/acceleratorName to an accelerator of the inventory"
    )]
    AcceleratorNotInInventory {
        /// Namespace of the variant.
        namespace: String,
        /// Variant.
        variant: String,
        /// Accelerator of the variant.
        accelerator: String,
    },
    /// ResourceQuotas limit nothing.
    #[error(
        "ResourceQuotas do not limit scale-ups: no permission to read resourcequotas; grant get, list and watch on \
         resourcequotas"
    )]
    QuotasForbidden,
    /// Waiting requests would not wake the model.
    #[error("model {model_id} in namespace {namespace} does not scale to zero: {obstacle}")]
    NothingWakesIt {
        /// Namespace of the model.
        namespace: String,
        /// Model.
        model_id: String,
        /// Cause.
        obstacle: WakeObstacle,
    },
    /// Replicas report only one main signal.
    #[error(
        "variant {namespace}/{variant}: {replicas} replica(s) report no {}, which counts as 0; check that neither the \
         server nor a relabelling rule of its monitor drops the metric",
        signal.metric(*server)
    )]
    SignalMissing {
        /// Namespace of the variant.
        namespace: String,
        /// Variant.
        variant: String,
        /// Missing signal.
        signal: MainSignal,
        /// Server of the first of them.
        server: ServerKind,
        /// Replicas without it.
        replicas: u32,
    },
}
