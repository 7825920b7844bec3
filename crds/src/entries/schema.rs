//! JSON Schemas of ConfigMap entries, for editors and users. They are generated from the types and checked in
//! (`crds/schemas/`).

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::{SaturationEntry, ScaleToZeroEntry, ServiceClassEntry, ServiceClassList};

/// Kinds of ConfigMap entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// One key of a saturation map.
    Saturation,
    /// One key of a scale-to-zero map.
    ScaleToZero,
    /// One key of a service-class map, except `serviceClasses`.
    ServiceClass,
    /// The key `serviceClasses` of a service-class map.
    ServiceClassesList,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 4] =
        [Self::Saturation, Self::ScaleToZero, Self::ServiceClass, Self::ServiceClassesList];

    /// File name in `crds/schemas/`.
    #[must_use]
    pub const fn file_name(self) -> &'static str {
        match self {
            Self::Saturation => "saturation-entry.schema.json",
            Self::ScaleToZero => "scale-to-zero-entry.schema.json",
            Self::ServiceClass => "service-class-entry.schema.json",
            Self::ServiceClassesList => "service-classes-list.schema.json",
        }
    }
}

/// JSON Schema (draft 2020-12) of one entry, with the key spelling of ConfigMaps.
#[must_use]
pub fn schema(kind: Kind) -> Value {
    match kind {
        Kind::Saturation => schema_of::<SaturationEntry>(),
        Kind::ScaleToZero => schema_of::<ScaleToZeroEntry>(),
        Kind::ServiceClass => schema_of::<ServiceClassEntry>(),
        Kind::ServiceClassesList => schema_of::<ServiceClassList>(),
    }
}

/// Text of the schema file, with a final newline.
#[must_use]
pub fn schema_text(kind: Kind) -> String {
    // The alternate form is indented.
    format!("{:#}\n", schema(kind))
}

fn schema_of<T: JsonSchema>() -> Value {
    // Inlined, so that each file is self-contained and editors show the description of a field.
    let settings = SchemaSettings::draft2020_12().with(|s| s.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    remove_null(&mut schema);
    schema
}

/// Removes `null` from the accepted values: an empty value is more likely a mistake than a wish to inherit.
fn remove_null(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::Array(types)) = fields.get_mut("type") {
                types.retain(|t| t != "null");
                if let [only] = types.as_slice() {
                    let only = only.clone();
                    fields.insert("type".to_owned(), only);
                }
            }
            if let Some(Value::Array(words)) = fields.get_mut("enum") {
                words.retain(|word| !word.is_null());
            }
            fields.values_mut().for_each(remove_null);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_null),
        _ => {}
    }
}
