//! API of wva: the `VariantAutoscaling` resource, public names, settings, ConfigMap entries and the files generated
//! from them. No I/O.

pub mod conditions;
pub mod digest;
pub mod duration;
pub mod entries;
pub mod envelope;
pub mod events;
pub mod intent;
pub mod look_alikes;
pub mod manifest;
pub mod names;
pub mod parse_error;
pub mod picker_report;
pub mod runbook_lines;
pub mod settings;
pub mod text;
pub mod unknown_fields;
pub mod variant;

pub use conditions::{ConditionReason, ConditionStatus, ConditionType};
pub use duration::GoDuration;
pub use variant::{
    Actuation, ControllerState, LearnedCurves, LearnedReserve, OptimizedAlloc, RefusedCount, ScaleTargetRef,
    VariantAutoscaling, VariantAutoscalingSpec, VariantAutoscalingStatus, VariantMode,
};
