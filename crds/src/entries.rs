//! The entries of the config maps besides the main one: thresholds, scale to zero, service classes. Here are their
//! types with units and ranges, the reading of a text with all its faults, the merging of layers with the rules
//! between fields, and the JSON Schemas made from the types. Admission, engine and editors share all of it.

mod check;
mod index;
mod merge;
mod pattern;
mod read;
mod saturation;
mod scale_to_zero;
mod schema;
mod service_class;
mod throughput;
mod units;

pub use index::EntryIndex;
pub use merge::{Conflict, DEFAULT_ENTRY, DroppedLayer, Merged, Order, Saturation, Scoped, merge};
pub use read::{Entry, Fault, Reading, Wrong, read_text, read_value, yaml_value};
pub use saturation::{AnalyzerName, Optimizer, SaturationEntry, WarmSpare};
pub use scale_to_zero::{MAX_RETENTION, ScaleToZero, ScaleToZeroEntry};
pub use schema::{Kind, schema, schema_text};
pub use service_class::{
    Objective, ServiceClassEntry, ServiceClassList, ServiceClassMap, ServiceClassModel, ServiceClassRow,
};
pub use throughput::Throughput;
#[doc(hidden)]
pub use units::number;
pub use units::{
    Amount, Fraction, Millis, OutOfRange, PositiveDuration, PositiveDurationError, PositiveFraction, Priority,
};
