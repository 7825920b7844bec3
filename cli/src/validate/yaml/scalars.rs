//! YAML scalars as kubectl reads them (YAML 1.1 with goyaml.v2): `yes` is a boolean, `014` and `0o14` are 12, `1_000`
//! is a number, `2001-01-01` is a string.

use granit_parser::{ScalarStyle, Tag};
use serde_json::{Number, Value};

const NAMESPACE: &str = "tag:yaml.org,2002:";

/// JSON value of a scalar.
///
/// # Errors
/// The scalar has no JSON form, or its text contradicts its tag.
pub(super) fn resolve(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Value, String> {
    let kind = tag.map(|t| t.suffix_in_namespace(NAMESPACE).unwrap_or_default());
    match kind.as_deref() {
        None if style == ScalarStyle::Plain => resolve_plain(text),
        Some(type_ @ ("bool" | "int" | "float" | "null")) => {
            let value = resolve_plain(text)?;
            let is_valid = match type_ {
                "bool" => value.is_boolean(),
                "int" => value.is_i64() || value.is_u64(),
                "float" => value.is_number(),
                _ => value.is_null(),
            };
            if is_valid {
                Ok(value)
            } else {
                Err(format!("`{text}` is not a valid {type_}, as its tag says"))
            }
        }
        // Quoted, tagged as a string, or with an unknown tag.
        _ => Ok(Value::String(text.to_owned())),
    }
}

/// Resolves a scalar without quotes and tag.
fn resolve_plain(text: &str) -> Result<Value, String> {
    Ok(match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Value::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Value::Bool(false)
        }
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        ".nan" | ".NaN" | ".NAN" | ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" | "-.inf"
        | "-.Inf" | "-.INF" => {
            return Err(format!(
                "`{text}` is a number that JSON does not have: put it in quotes if it is a string"
            ));
        }
        _ => number(text).map_or_else(|| Value::String(text.to_owned()), Value::Number),
    })
}

fn number(text: &str) -> Option<Number> {
    match text.as_bytes().first()? {
        // Go syntax: underscores only between digits.
        b'.' => {
            let is_between = |w: &[u8]| w[1] != b'_' || (w[0].is_ascii_digit() && w[2].is_ascii_digit());
            let is_valid = text.as_bytes().windows(3).all(is_between) && !text.ends_with('_');
            if is_valid { float(&text.replace('_', "")) } else { None }
        }
        b'0'..=b'9' | b'+' | b'-' => {
            let digits = text.replace('_', "");
            integer(&digits).or_else(|| float(&digits))
        }
        _ => None,
    }
}

/// Parses an integer in the syntax of Go's `ParseInt` and `ParseUint` with base 0.
fn integer(text: &str) -> Option<Number> {
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' => ("-", &text[1..]),
        b'+' => ("+", &text[1..]),
        _ => ("", text),
    };
    let prefixed = |p: [&str; 2]| digits.strip_prefix(p[0]).or_else(|| digits.strip_prefix(p[1]));
    let (radix, digits) = if let Some(rest) = prefixed(["0x", "0X"]) {
        (16, rest)
    } else if let Some(rest) = prefixed(["0b", "0B"]) {
        (2, rest)
    } else if let Some(rest) = prefixed(["0o", "0O"]) {
        (8, rest)
    } else if digits.len() > 1 && digits.starts_with('0') {
        (8, &digits[1..])
    } else {
        (10, digits)
    };
    // Rust would accept a second sign here.
    if !digits.starts_with(|c: char| c.is_ascii_hexdigit()) {
        return None;
    }
    match i64::from_str_radix(&format!("{sign}{digits}"), radix) {
        Ok(number) => Some(number.into()),
        Err(_) if sign.is_empty() => u64::from_str_radix(digits, radix).ok().map(Number::from),
        Err(_) => None,
    }
}

/// A finite `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`.
fn float(text: &str) -> Option<Number> {
    let is_numeric =
        text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'));
    if !is_numeric {
        return None;
    }
    Number::from_f64(text.parse().ok()?)
}

/// Converted as kubectl does. `None` for a key that JSON cannot have.
pub(super) fn key(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(boolean) => Some(boolean.to_string()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The output of `kubectl label --local -o json` of 1.36.
    #[test]
    fn reads_plain_scalars_like_kubectl() {
        for (want, texts) in [
            (json!(true), "yes"),
            (json!(false), "n NO"),
            (json!(null), "~ Null"),
            (json!(10), "10 1__0"),
            (json!(10.0), "10.0"),
            (json!(1.0), "1."),
            (json!(0.5), ".5 .5_0"),
            (json!(-0.5), "-.5"),
            (json!(10000.0), ".1e5"),
            (json!(1000.0), "1e3"),
            (json!(1e10), "1e1_0"),
            (json!(1), "+1 1_ 0_1 0b_1_"),
            (json!(0), "-0"),
            (json!(1000), "1_000"),
            (json!(10.5), "1_0.5"),
            (json!(12), "014 0o14"),
            (json!(7), "0O7"),
            (json!(8.0), "08"),
            (json!(89.0), "089"),
            (json!(31), "0x1F 0X1f"),
            (json!(-31), "-0x1F"),
            (json!(15), "+0x_F"),
            (json!(3), "0b11"),
            (json!(-3), "-0b1_1"),
            (json!(9_223_372_036_854_775_808_u64), "9223372036854775808"),
            (json!(18_446_744_073_709_551_616.0), "18446744073709551616"),
        ] {
            for text in texts.split(' ') {
                assert_eq!(resolve(text, ScalarStyle::Plain, None), Ok(want.clone()), "{text}");
            }
        }
        for text in "oFF .e1 .0x1p4 1e400 _1 0o8 0b12 - + . 1:30 2001-01-01 +-1".split(' ') {
            assert_eq!(resolve(text, ScalarStyle::Plain, None), Ok(json!(text)));
        }
        assert!(resolve(".inf", ScalarStyle::Plain, None).is_err());
        assert_eq!(resolve("yes", ScalarStyle::DoubleQuoted, None), Ok(json!("yes")));
        assert_eq!(resolve("10.0", ScalarStyle::SingleQuoted, None), Ok(json!("10.0")));
    }

    #[test]
    fn applies_tags_or_refuses_the_scalar() {
        let core = |suffix: &str| Tag::new(NAMESPACE, suffix);
        for (text, tag, want) in [
            ("10", core("str"), Some(json!("10"))),
            ("3", core("int"), Some(json!(3))),
            ("3", core("float"), Some(json!(3))),
            ("yes", core("bool"), Some(json!(true))),
            ("x", core("int"), None),
            ("x", core("null"), None),
            ("2001-01-01", core("timestamp"), Some(json!("2001-01-01"))),
            ("12", Tag::new("!", "foo"), Some(json!("12"))),
        ] {
            assert_eq!(resolve(text, ScalarStyle::Plain, Some(&tag)).ok(), want, "{text} {tag:?}");
        }
    }
}
