//! What comes out of a cycle: for each variant the chain of steps from its current replicas to its target, and what
//! the next cycle has to know.

mod lacking;

use std::collections::BTreeMap;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use wva_crds::GoDuration;

use crate::reason::{FallbackSource, Reason};
use crate::resolve::DroppedLayer;
use crate::snapshot::{AnalyzerName, Learned, Mode, Remembered, WakeObstacle};

pub use lacking::{Lacking, MainSignal};

/// A stage of the pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Stage {
    /// What the load asks for.
    Analyze,
    /// Which variants give it.
    Optimize,
    /// Zero, waking, and the bounds.
    Enforce,
    /// What the inventory has left.
    Limit,
    /// What a person has set.
    Publish,
}

impl Stage {
    /// Its name in traces.
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

/// One step of a decision.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// The stage that took it.
    pub stage: Stage,
    /// Replicas before it: those after the previous step, or the current ones.
    pub before: u32,
    /// Replicas after it.
    pub after: u32,
    /// Why, with figures.
    #[serde(flatten)]
    pub reason: Reason,
}

/// Which way a target lies from current.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// More replicas.
    Up,
    /// Fewer.
    Down,
    /// As many.
    None,
}

/// Bounds of a variant as they hold in this cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Fewest replicas; 0 where scale to zero lifts an HPA's 1.
    pub min: u32,
    /// Most replicas. `None`: no bound.
    pub max: Option<u32>,
}

impl Bounds {
    /// The nearest number of replicas within the bounds. Where they contradict each other, the maximum holds.
    #[must_use]
    pub fn clamp(self, replicas: u32) -> u32 {
        replicas.max(self.min).min(self.max.unwrap_or(u32::MAX))
    }
}

/// The target of one variant, and how it came about.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The variant's namespace.
    pub namespace: String,
    /// The model it serves.
    pub model_id: String,
    /// The `VariantAutoscaling`.
    pub variant: String,
    /// Its accelerator, or `unresolved`.
    pub accelerator: String,
    /// Replicas the workload has.
    pub current: u32,
    /// Ready ones, at most `current`.
    pub ready: u32,
    /// From `current` to the target; never empty, in order of the stages.
    pub steps: Vec<Step>,
    /// What becomes of the target.
    pub mode: Mode,
    /// The bounds it was held to.
    pub bounds: Bounds,
    /// The analyzer that was asked for.
    pub analyzer: AnalyzerName,
    /// Replicas that do not become ready keep it from growing.
    pub stuck: bool,
    /// The analysis failed; what is held instead.
    pub safety_net: Option<FallbackSource>,
    /// An earlier target that ended without being carried out.
    pub not_carried_out: Option<u32>,
    /// The accelerator of which too few are left.
    pub limited_by: Option<String>,
    /// Every variant of the model is at 0, so that it has no metrics and needs none.
    pub model_at_zero: bool,
    /// Scale to zero is on for the model.
    pub scale_to_zero: bool,
    /// Why scale to zero, which is on, does not take the model to 0, or nothing would wake it there.
    pub wake_obstacle: Option<WakeObstacle>,
    /// Replicas whose sample counts.
    pub reporting: u32,
    /// Replicas whose sample is too old to count, but not missing.
    pub stale: u32,
    /// Those of `reporting` that lack a signal.
    pub lacking: Lacking,
    /// What another analyzer would have decided, where the model's settings name one to be shown. Nothing follows from it.
    pub shadow: Option<Box<Shadow>>,
}

/// What would be decided in this cycle if another analyzer were asked, before the mode.
#[derive(Clone, Debug, PartialEq)]
pub struct Shadow {
    /// That analyzer.
    pub analyzer: AnalyzerName,
    /// From the current replicas to its target; never empty, in order of the stages.
    pub steps: Vec<Step>,
}

impl Shadow {
    /// Its target.
    #[must_use]
    pub fn target(&self) -> u32 {
        self.steps.last().map_or(0, |step| step.after)
    }

    /// The reason of the last step that has something to say; where none has, what the analyzer saw.
    #[must_use]
    pub fn reason(&self) -> &Reason {
        reason(&self.steps)
    }
}

impl Serialize for Shadow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(4))?;
        map.serialize_entry("analyzer", self.analyzer.label())?;
        map.serialize_entry("target", &self.target())?;
        map.serialize_entry("reason", self.reason().code())?;
        map.serialize_entry("steps", &self.steps)?;
        map.end()
    }
}

/// The reason of the last step that has something to say; where none has, what the analyzer saw.
fn reason(steps: &[Step]) -> &Reason {
    let spoken = steps.iter().rev().map(|step| &step.reason).find(|r| !r.is_no_change());
    spoken.or_else(|| steps.first().map(|step| &step.reason)).unwrap_or(&Reason::NO_CHANGE)
}

/// Whether steps say that somebody needs more replicas. A bound alone does not, nor does a target of before: who scaled
/// a variant to 0 has switched its HPA off, and is not overruled.
pub(crate) fn lifts(steps: &[Step]) -> bool {
    steps.iter().any(|step| match step.reason {
        Reason::RequestsWaiting { .. } | Reason::WakeHold { .. } => true,
        Reason::AtMinimum { .. }
        | Reason::MinimumKept {}
        | Reason::KeptDecision { .. }
        | Reason::SafetyNet { .. } => false,
        _ => step.after > step.before,
    })
}

impl Decision {
    /// The target, after the mode. Under `recommend`: what would be published.
    #[must_use]
    pub fn target(&self) -> u32 {
        self.steps.last().map_or(self.current, |step| step.after)
    }

    /// The target before the mode.
    #[must_use]
    pub fn decided(&self) -> u32 {
        let decides = |step: &&Step| step.stage != Stage::Publish;
        self.steps.iter().rev().find(decides).map_or(self.current, |step| step.after)
    }

    /// Which way the target lies from current.
    #[must_use]
    pub fn action(&self) -> Action {
        match self.target().cmp(&self.current) {
            std::cmp::Ordering::Greater => Action::Up,
            std::cmp::Ordering::Less => Action::Down,
            std::cmp::Ordering::Equal => Action::None,
        }
    }

    /// The reason of the last step that has something to say; where none has, what the analyzer saw.
    #[must_use]
    pub fn reason(&self) -> &Reason {
        reason(&self.steps)
    }

    /// It is being woken from 0, or held since.
    #[must_use]
    pub fn is_woken(&self) -> bool {
        let woken =
            |reason: &Reason| matches!(reason, Reason::RequestsWaiting { .. } | Reason::WakeHold { .. });
        self.steps.iter().any(|step| woken(&step.reason))
    }

    /// Load, waiting requests or a person ask for more than it has, or it is held since they did: see [`lifts`].
    #[must_use]
    pub fn lifts(&self) -> bool {
        lifts(&self.steps)
    }

    /// Name of the variant.
    #[must_use]
    pub fn key(&self) -> VariantKey {
        VariantKey { namespace: self.namespace.clone(), name: self.variant.clone() }
    }
}

impl Serialize for Decision {
    /// The form `wva decide --format json` prints.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("namespace", &self.namespace)?;
        map.serialize_entry("modelID", &self.model_id)?;
        map.serialize_entry("variant", &self.variant)?;
        map.serialize_entry("accelerator", &self.accelerator)?;
        map.serialize_entry("current", &self.current)?;
        map.serialize_entry("target", &self.target())?;
        map.serialize_entry("action", &self.action())?;
        map.serialize_entry("reason", self.reason().code())?;
        map.serialize_entry("limitedBy", &self.limited_by)?;
        map.serialize_entry("steps", &self.steps)?;
        if let Some(shadow) = &self.shadow {
            map.serialize_entry("shadow", shadow)?;
        }
        map.end()
    }
}

/// Names one `VariantAutoscaling`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VariantKey {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Everything one cycle decided. Serializes as `wva decide --format json` prints it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// One decision a variant, ordered by namespace, model and variant.
    pub decisions: Vec<Decision>,
    /// What the next snapshot has to carry.
    #[serde(skip)]
    pub next: NextState,
    /// What a person should know and no decision says.
    #[serde(skip)]
    pub warnings: Vec<Warning>,
}

/// Memory from one cycle to the next. Whoever builds snapshots keeps it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NextState {
    /// Of each variant.
    pub variants: BTreeMap<VariantKey, VariantState>,
    /// Observed compute bounds, for `Snapshot::remembered`.
    pub remembered: Vec<Remembered>,
    /// Memory of the throughput analyzer as of this cycle, for `Snapshot::learned` once [`Learned::after`] has aged it.
    pub learned: Vec<Learned>,
}

/// Memory of one variant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VariantState {
    /// The target, for `Variant::desired`.
    pub desired: u32,
    /// The replicas it was decided at.
    pub current: u32,
    /// How long the target has been without progress, as of this cycle.
    pub desired_age: GoDuration,
    /// Tokens a replica holds, for `Variant::remembered_capacity`.
    pub capacity: Option<f64>,
}

impl VariantState {
    /// `Variant::desired_age` of a later snapshot: `elapsed` after this cycle, with `current` replicas. The age
    /// starts anew when current has come nearer to the target.
    #[must_use]
    pub fn age_after(&self, elapsed: std::time::Duration, current: u32) -> GoDuration {
        if self.desired.abs_diff(current) < self.desired.abs_diff(self.current) {
            GoDuration::default()
        } else {
            self.desired_age.get().saturating_add(elapsed).into()
        }
    }
}

/// Something a person should know that is no decision.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Warning {
    /// A layer of settings breaks a rule together with those below it.
    #[error("model {model_id} in namespace {namespace}: {layer}")]
    SettingsDropped {
        /// The model's namespace.
        namespace: String,
        /// The model.
        model_id: String,
        /// The layer and what it broke.
        layer: DroppedLayer,
    },
    /// The limiter is on, and the inventory does not know the accelerator.
    #[error(
        "variant {namespace}/{variant} is not limited: the inventory has no accelerator {accelerator}; set the label \
         inference.optimization/acceleratorName to one it has"
    )]
    AcceleratorNotInInventory {
        /// The variant's namespace.
        namespace: String,
        /// The variant.
        variant: String,
        /// Its accelerator.
        accelerator: String,
    },
    /// Nothing could wake the model.
    #[error("model {model_id} in namespace {namespace} may go to zero, but {obstacle}")]
    NothingWakesIt {
        /// The model's namespace.
        namespace: String,
        /// The model.
        model_id: String,
        /// Why not.
        obstacle: WakeObstacle,
    },
    /// Replicas are judged by one of the two main signals alone.
    #[error(
        "variant {namespace}/{variant}: {replicas} replica(s) report no {}, which counts as 0: check that neither the \
         server nor a relabelling of its monitor drops it",
        signal.metric()
    )]
    SignalLacking {
        /// The variant's namespace.
        namespace: String,
        /// The variant.
        variant: String,
        /// What they do not report.
        signal: MainSignal,
        /// How many they are.
        replicas: u32,
    },
}
