//! The API of wva: the `VariantAutoscaling` resource, the names its users rely on, the settings, the
//! entries of the config maps, and what is generated from them. Every other crate knows this one; this one knows no other and does no I/O.

pub mod digest;
pub mod duration;
pub mod entries;
pub mod events;
pub mod manifest;
pub mod names;
pub mod plain;
pub mod settings;
pub mod text;
pub mod variant;

pub use duration::GoDuration;
pub use variant::{
    Actuation, ControllerState, LearnedCurves, OptimizedAlloc, ScaleTargetRef, VariantAutoscaling,
    VariantAutoscalingSpec, VariantAutoscalingStatus,
};
