//! One series of an answer: `{"metric": {..}, "value": [time, "0.25"]}`. No string is allocated.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::LabelSet;

/// Reads the labels, and returns the value.
pub(super) struct One<'a, L>(pub(super) &'a mut L);

/// Reads the labels.
struct Labels<'a, L>(&'a mut L);

/// Finds the slot of a label by its name.
struct Slot<'a, L>(&'a mut L);

/// Reads the value of a label.
struct Text<'a>(&'a mut String);

/// Reads a time, and a number.
struct Sample;

/// Reads a number as a string such as `0.25`, `NaN` or `+Inf`.
struct Number;

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum Field {
    Metric,
    Value,
    #[serde(other)]
    Other,
}

/// Lets serde call the visitor through this method.
macro_rules! seed {
    ($name:ident $(<$life:lifetime $(, $labels:ident)?>)?, $value:ty, $method:ident) => {
        impl<'de $(, $life $(, $labels: LabelSet)?)?> DeserializeSeed<'de> for $name$(<$life $(, $labels)?>)? {
            type Value = $value;

            fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<$value, D::Error> {
                deserializer.$method(self)
            }
        }
    };
}

seed!(One<'a, L>, f64, deserialize_map);
seed!(Labels<'a, L>, (), deserialize_map);
seed!(Slot<'a, L>, Option<&'a mut String>, deserialize_identifier);
seed!(Text<'a>, (), deserialize_str);
seed!(Sample, f64, deserialize_seq);
seed!(Number, f64, deserialize_str);

impl<'de, L: LabelSet> Visitor<'de> for One<'_, L> {
    type Value = f64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a series")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<f64, A::Error> {
        self.0.clear();
        let mut value = None;
        while let Some(field) = map.next_key()? {
            match field {
                Field::Metric => map.next_value_seed(Labels(&mut *self.0))?,
                Field::Value => value = Some(map.next_value_seed(Sample)?),
                Field::Other => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        value.ok_or_else(|| A::Error::missing_field("value"))
    }
}

impl<'de, L: LabelSet> Visitor<'de> for Labels<'_, L> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("labels")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(slot) = map.next_key_seed(Slot(&mut *self.0))? {
            match slot {
                Some(text) => map.next_value_seed(Text(text))?,
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

impl<'a, L: LabelSet> Visitor<'_> for Slot<'a, L> {
    type Value = Option<&'a mut String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a label name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.slot(name))
    }
}

impl Visitor<'_> for Text<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a label value")
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        value.clone_into(self.0);
        Ok(())
    }
}

impl<'de> Visitor<'de> for Sample {
    type Value = f64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time and a number")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<f64, A::Error> {
        let time = all.next_element::<IgnoredAny>()?;
        let number = all.next_element_seed(Number)?.filter(|_| time.is_some());
        number.ok_or_else(|| A::Error::invalid_length(usize::from(time.is_some()), &self))
    }
}

impl Visitor<'_> for Number {
    type Value = f64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number as a string")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<f64, E> {
        text.parse().map_err(|_| {
            let short: String = text.chars().take(40).collect();
            E::custom(format!("{short:?} is not a number"))
        })
    }
}
