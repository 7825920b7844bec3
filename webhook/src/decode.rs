//! Reads JSON into a value that takes no more memory than it may. A text of megabytes can ask for a hundred times its
//! size: each of the objects in `[{"":0},{"":0}]` has a tree of its own.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Bytes of an element of a list, which grows by doubling.
const ELEMENT: usize = 2 * size_of::<Value>();
/// Bytes of an object with its first field: a leaf of a B-tree has room for eleven.
const OBJECT: usize = 11 * (size_of::<String>() + size_of::<Value>()) + 16;
/// Bytes of a further field, in leaves that are half empty.
const FIELD: usize = 2 * (size_of::<String>() + size_of::<Value>());
/// What an allocation takes beyond its bytes, at least.
const ALLOCATION: usize = 16;

/// Why a body is not read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// It is no JSON, or nested too deep.
    #[error("the body is no JSON that this server reads (nested at most 128 deep): {0}")]
    Syntax(#[source] serde_json::Error),
    /// Its value would take more than this many bytes.
    #[error("the body has more fields and elements than {0} bytes of memory hold")]
    TooMuch(usize),
}

/// The value of a JSON text, by an estimate of the memory it takes of at most `bytes`.
///
/// # Errors
/// [`Error`].
pub(crate) fn decode(text: &[u8], bytes: usize) -> Result<Value, Error> {
    let left = Cell::new(Some(bytes));
    let mut reader = serde_json::Deserializer::from_slice(text);
    let read = Bounded(&left).deserialize(&mut reader).and_then(|value| reader.end().map(|()| value));
    match (read, left.get()) {
        (_, None) => Err(Error::TooMuch(bytes)),
        (Err(error), _) => Err(Error::Syntax(error)),
        (Ok(value), Some(_)) => Ok(value),
    }
}

/// A value that takes from what is left; `None` once it was too little.
#[derive(Clone, Copy)]
struct Bounded<'b>(&'b Cell<Option<usize>>);

impl Bounded<'_> {
    fn take<E: serde::de::Error>(self, bytes: usize) -> Result<(), E> {
        self.0.set(self.0.get().and_then(|left| left.checked_sub(bytes)));
        self.0.get().map(|_| ()).ok_or_else(|| E::custom("it takes too much memory"))
    }
}

impl<'de> DeserializeSeed<'de> for Bounded<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Bounded<'_> {
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
        self.take(ALLOCATION + value.len())?;
        Ok(Value::String(value.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut out = Vec::new();
        while let Some(value) = list.next_element_seed(self)? {
            self.take(ELEMENT)?;
            out.push(value);
        }
        Ok(Value::Array(out))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut out = Map::new();
        while let Some(key) = fields.next_key::<String>()? {
            self.take(ALLOCATION + key.len() + if out.is_empty() { OBJECT } else { FIELD })?;
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
    fn what_fits_is_read_as_serde_json_reads_it() {
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
    fn what_is_no_json_is_told() {
        let deep = "[".repeat(10_000);
        for (text, problem) in [
            ("", "EOF"),
            ("{} {}", "trailing characters"),
            (r#"{"a":"\ud800"}"#, "hex escape"),
            (&deep, "recursion limit"),
        ] {
            let told = decode(text.as_bytes(), 1 << 20).unwrap_err().to_string();
            assert!(told.contains("no JSON") && told.contains(problem), "{told}");
        }
        assert!(matches!(decode(b"\"\xff\"", 1 << 20), Err(Error::Syntax(_))));
    }

    #[test]
    fn what_takes_too_much_is_not_read_to_the_end() {
        for part in ["0,", "[],", r#"{"":0},"#, "\"xxxxxxxxxxxxxxxx\","] {
            let text = format!("[{}0]", part.repeat(10_000));
            assert!(matches!(decode(text.as_bytes(), 64 << 10), Err(Error::TooMuch(65_536))), "{part}");
            assert!(decode(text.as_bytes(), 16 << 20).is_ok(), "{part}");
        }
    }
}
