//! Fields of a file that this release does not know: typing errors of people, or fields of a later release.

use std::fmt;

use serde::{Deserialize, Deserializer};
use serde_ignored::Path;

use crate::envelope::HEADER_FIELDS;
use crate::text::{join_field, shorten};

/// More paths are only counted as "others".
const MAX_LISTED: usize = 10;
const MAX_PATH_CHARS: usize = 120;

/// Paths of unknown fields. A field that several items of a list have is listed once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnknownFields {
    /// Paths in the order of the file, each of another field.
    paths: Vec<FieldPath>,
    has_others: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct FieldPath {
    /// Path in the first item of each list, such as `models[0].variants[1].cots`.
    first: String,
    /// Path without the positions in lists.
    field: String,
}

impl UnknownFields {
    /// Deserializes a file, and adds the unknown fields of its structs. The fields of its [`crate::envelope`] are known.
    ///
    /// # Errors
    /// Those of the type.
    pub fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        &mut self,
        deserializer: D,
    ) -> Result<T, D::Error> {
        serde_ignored::deserialize(deserializer, |path| {
            let is_header = |key: &String| HEADER_FIELDS.contains(&key.as_str());
            if !matches!(&path, Path::Map { parent: Path::Root, key } if is_header(key)) {
                self.add(FieldPath { first: text(&path, true), field: text(&path, false) });
            }
        })
    }

    /// Adds the fields of another part of the file.
    pub fn merge(&mut self, other: Self) {
        other.paths.into_iter().for_each(|path| self.add(path));
        self.has_others |= other.has_others;
    }

    fn add(&mut self, path: FieldPath) {
        if self.paths.iter().any(|known| known.field == path.field) {
            return;
        }
        if self.paths.len() < MAX_LISTED {
            self.paths.push(path);
        } else {
            self.has_others = true;
        }
    }

    /// Path of the first one.
    #[must_use]
    pub fn first(&self) -> Option<&str> {
        self.paths.first().map(|path| path.first.as_str())
    }
}

impl fmt::Display for UnknownFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths: Vec<&str> = self.paths.iter().map(|path| path.first.as_str()).collect();
        f.write_str(&paths.join(", "))?;
        if self.has_others { f.write_str(" and others") } else { Ok(()) }
    }
}

/// A position in a list is left out unless `with_positions`.
fn text(path: &Path<'_>, with_positions: bool) -> String {
    let outer = |parent: &Path<'_>| text(parent, with_positions);
    let path = match path {
        Path::Root => String::new(),
        Path::Seq { parent, index } if with_positions => format!("{}[{index}]", outer(parent)),
        Path::Map { parent, key } => join_field(&outer(parent), key),
        Path::Seq { parent, .. }
        | Path::Some { parent }
        | Path::NewtypeStruct { parent }
        | Path::NewtypeVariant { parent } => outer(parent),
    };
    shorten(path.strip_prefix('.').unwrap_or(&path), MAX_PATH_CHARS)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::*;

    #[derive(Debug, Deserialize)]
    struct Item {
        #[expect(dead_code, reason = "only its presence matters")]
        name: Option<BTreeMap<String, Option<Box<Item>>>>,
    }

    #[derive(Debug, Deserialize)]
    struct File {
        items: Vec<Item>,
    }

    fn unknown(file: &Value) -> String {
        let mut unknown = UnknownFields::default();
        assert!(!unknown.deserialize::<File, _>(file).unwrap().items.is_empty());
        unknown.to_string()
    }

    #[test]
    fn lists_each_field_once_with_its_path() {
        let inner = json!({"name": {"a.b": {"x": 1}}, "y\n": {"z": 1}});
        let file = json!({"kind": "File", "apiVersion": "v", "wvaVersion": "9", "items": [{"kind": 1}, {"kind": 2}, inner]});
        assert_eq!(unknown(&file), "items[0].kind, items[2].name[a.b].x, items[2].y\\n");
    }

    #[test]
    fn list_is_bounded() {
        let fields: BTreeMap<String, u32> = (10..30).map(|i| (format!("f{i}"), i)).collect();
        let listed = unknown(&json!({"items": [fields]}));
        assert!(listed.starts_with("items[0].f10, ") && listed.ends_with("f19 and others"), "{listed}");
        let long = unknown(&json!({"items": [{"n".repeat(9000): 1}]}));
        assert_eq!(long.chars().count(), MAX_PATH_CHARS);
        let mut all = UnknownFields::default();
        for key in ["a", "b", "a"] {
            let mut one = UnknownFields::default();
            one.deserialize::<File, _>(&json!({"items": [], key: 1})).unwrap();
            all.merge(one);
        }
        assert_eq!(all.to_string(), "a, b");
    }
}
