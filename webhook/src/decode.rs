//! Decodes JSON within a memory limit. The value can take a hundred times the size of its text: each object in
//! `[{"":0},{"":0}]` allocates a B-tree.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// A list grows by doubling.
const ELEMENT: usize = 2 * size_of::<Value>();
/// Memory of an object with one field: a B-tree leaf has space for eleven.
const OBJECT: usize = 11 * (size_of::<String>() + size_of::<Value>()) + 16;
/// Memory of a field in half-empty leaves.
const FIELD: usize = 2 * (size_of::<String>() + size_of::<Value>());
/// Overhead of an allocation, bytes.
const ALLOCATION: usize = 16;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The body is not JSON, or is nested too deeply.
    #[error("the body is not valid JSON with at most 128 levels: {0}")]
    Syntax(#[source] serde_json::Error),
    /// The value exceeds this many bytes.
    #[error("the decoded body exceeds the memory limit of {0} bytes")]
    MemoryLimit(usize),
}

/// `limit`: estimated bytes of the value.
///
/// # Errors
/// [`Error`].
pub(crate) fn decode(text: &[u8], limit: usize) -> Result<Value, Error> {
    let left = Cell::new(Some(limit));
    let mut reader = serde_json::Deserializer::from_slice(text);
    let read = BudgetedDecoder(&left).deserialize(&mut reader).and_then(|value| reader.end().map(|()| value));
    match (read, left.get()) {
        (_, None) => Err(Error::MemoryLimit(limit)),
        (Err(error), _) => Err(Error::Syntax(error)),
        (Ok(value), Some(_)) => Ok(value),
    }
}

/// Subtracts memory from the budget, which is `None` once exceeded.
#[derive(Clone, Copy)]
struct BudgetedDecoder<'b>(&'b Cell<Option<usize>>);

impl BudgetedDecoder<'_> {
    fn reserve<E: serde::de::Error>(self, bytes: usize) -> Result<(), E> {
        self.0.set(self.0.get().and_then(|left| left.checked_sub(bytes)));
        self.0.get().map(|_| ()).ok_or_else(|| E::custom("memory limit exceeded"))
    }
}

impl<'de> DeserializeSeed<'de> for BudgetedDecoder<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for BudgetedDecoder<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.reserve(ALLOCATION + value.len())?;
        Ok(Value::String(value.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut out = Vec::new();
        while let Some(value) = list.next_element_seed(self)? {
            self.reserve(ELEMENT)?;
            out.push(value);
        }
        Ok(Value::Array(out))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut out = Map::new();
        while let Some(key) = fields.next_key::<String>()? {
            self.reserve(ALLOCATION + key.len() + if out.is_empty() { OBJECT } else { FIELD })?;
            let value = fields.next_value_seed(self)?;
            out.insert(key, value);
        }
        Ok(Value::Object(out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_like_serde_json_within_the_limit() {
        for text in [
            "null",
            r#"{"a":[1,-2,2.5,true,null,"x"],"b":{"c":{}},"d":"\ud83d\ude00"}"#,
            r#"{"a":1,"a":2}"#,
            " 18446744073709551616 ",
        ] {
            let want: Value = serde_json::from_str(text).unwrap();
            assert_eq!(decode(text.as_bytes(), 1 << 20).unwrap(), want, "{text}");
        }
    }

    #[test]
    fn reports_invalid_json() {
        let deep = "[".repeat(10_000);
        for (text, problem) in [
            ("", "EOF"),
            ("{} {}", "trailing characters"),
            (r#"{"a":"\ud800"}"#, "hex escape"),
            (&deep, "recursion limit"),
        ] {
            let error = decode(text.as_bytes(), 1 << 20).unwrap_err().to_string();
            assert!(error.contains("not valid JSON") && error.contains(problem), "{error}");
        }
        assert!(matches!(decode(b"\"\xff\"", 1 << 20), Err(Error::Syntax(_))));
    }

    #[test]
    fn stops_at_the_memory_limit() {
        for part in ["0,", "[],", r#"{"":0},"#, "\"xxxxxxxxxxxxxxxx\","] {
            let text = format!("[{}0]", part.repeat(10_000));
            assert!(matches!(decode(text.as_bytes(), 64 << 10), Err(Error::MemoryLimit(65_536))), "{part}");
            assert!(decode(text.as_bytes(), 16 << 20).is_ok(), "{part}");
        }
    }
}
