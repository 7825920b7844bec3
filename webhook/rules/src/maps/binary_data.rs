//! `binaryData`, which wva does not read. kubectl puts a file there without a word if one byte of it is not UTF-8.

use k8s_openapi::ByteString;
use serde_json::Value;

use crate::maps::DENY;
use crate::rule::{Check, Rule};
use crate::text::join_field;
use wva_objects::json::at;

pub(crate) const UNREAD: Rule = Rule {
    code: "WVA-CM-008",
    field: "binaryData",
    message: "{found}, so wva does not read it",
    docs: "wva reads only `data`. kubectl puts a file with a byte that is not UTF-8 into `binaryData`, for example a comment \
           in Latin-1. Save the file as UTF-8 and create the map again.",
    check: Check::ConfigMap(|facts, out| {
        if !facts.is_main() && !facts.has_entries() {
            return;
        }
        let values = at(facts.object, &["binaryData"]).and_then(Value::as_object);
        for (key, value) in values.into_iter().flatten() {
            let Problem { found, remedy } = describe(value);
            out.add_at(join_field("binaryData", key), found, "");
            out.set_remedy(remedy);
            out.set_basis(value.clone());
        }
    }),
    ..DENY
};

struct Problem {
    found: String,
    remedy: &'static str,
}

fn describe(value: &Value) -> Problem {
    let Ok(ByteString(bytes)) = serde_json::from_value(value.clone()) else {
        return Problem { found: "not base64".to_owned(), remedy: "; move the text to data" };
    };
    let Err(error) = std::str::from_utf8(&bytes) else {
        return Problem { found: "in binaryData".to_owned(), remedy: "; move the text to data" };
    };
    let start = error.valid_up_to();
    let line = bytes[..start].split(|byte| *byte == b'\n').count();
    let byte = bytes.get(start).copied().unwrap_or_default();
    Problem {
        found: format!("byte 0x{byte:02x} in line {line} is not UTF-8"),
        remedy: "; save the file as UTF-8",
    }
}
