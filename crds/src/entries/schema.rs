//! The JSON Schemas of config map entries, for editors and for people: what may be written under one key of a map.
//! They are made from the types that read the entries, and checked in (`crds/schemas/`).

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::{SaturationEntry, ScaleToZeroEntry, ServiceClassEntry, ServiceClassList};

/// The kinds of entries that config maps hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// One key of a saturation map.
    Saturation,
    /// One key of a scale-to-zero map.
    ScaleToZero,
    /// One key of a service class map, but `serviceClasses`.
    ServiceClass,
    /// The key `serviceClasses` of a service class map.
    ServiceClassesList,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 4] =
        [Self::Saturation, Self::ScaleToZero, Self::ServiceClass, Self::ServiceClassesList];

    /// Name of the checked-in file, below `crds/schemas/`.
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

/// The JSON Schema (draft 2020-12) of one entry, in the spelling of the map alone.
#[must_use]
pub fn schema(kind: Kind) -> Value {
    match kind {
        Kind::Saturation => of::<SaturationEntry>(),
        Kind::ScaleToZero => of::<ScaleToZeroEntry>(),
        Kind::ServiceClass => of::<ServiceClassEntry>(),
        Kind::ServiceClassesList => of::<ServiceClassList>(),
    }
}

/// The schema as the text of its file, with a final newline.
#[must_use]
pub fn schema_text(kind: Kind) -> String {
    // The alternate form of a JSON value is indented; it cannot fail.
    format!("{:#}\n", schema(kind))
}

fn of<T: JsonSchema>() -> Value {
    // Without references the file of one entry stands alone, and an editor shows a field's text where it is typed.
    let settings = SchemaSettings::draft2020_12().with(|s| s.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    never_null(&mut schema);
    schema
}

/// A field may be left out, but not `null`: an empty value is more often a slip than a wish to inherit.
fn never_null(value: &mut Value) {
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
            fields.values_mut().for_each(never_null);
        }
        Value::Array(items) => items.iter_mut().for_each(never_null),
        _ => {}
    }
}
