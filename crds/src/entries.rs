//! Entries of the saturation, scale-to-zero and service-class ConfigMaps: types with units and ranges, parsing with all
//! faults, merging of layers, and JSON Schemas. Admission, engine and editors share this code.

mod check;
mod endpoint_picker;
mod fault;
mod fields;
mod index;
mod merge;
mod misplaced;
mod objectives;
mod pattern;
mod read;
mod saturation;
mod scale_to_zero;
mod schema;
mod service_class;
mod throughput;
mod units;

pub use check::did_you_mean;
pub use endpoint_picker::{EndpointPicker, InvalidEndpointPicker, PickerPods};
pub use fault::{Fault, FaultKind};
pub use index::EntryIndex;
pub use merge::{Conflict, DEFAULT_ENTRY, DroppedLayer, MergedSettings, Order, Saturation, Scoped, merge};
pub use objectives::{Objective, parse_objectives};
pub use read::{Entry, ParsedEntry, read_entry, read_text, read_value, yaml_value};
pub use saturation::{AnalyzerName, Optimizer, SaturationEntry, WarmSpare};
pub use scale_to_zero::{MAX_RETENTION, ScaleToZero, ScaleToZeroEntry};
pub use schema::{Kind, schema, schema_text};
pub use service_class::{
    OLD_OBJECTIVES, ServiceClassEntry, ServiceClassList, ServiceClassModel, ServiceClassRow,
};
pub use throughput::Throughput;
#[doc(hidden)]
pub use units::deserialize_number;
pub use units::{
    Amount, Fraction, Millis, OutOfRange, PositiveDuration, PositiveDurationError, PositiveFraction,
    Priority, SloTarget,
};

/// Most entries of a map. More take longer than a review may, and a megabyte of the shortest ones takes fifty megabytes of
/// memory.
pub const MAX_ENTRIES: usize = 10_000;
