//! Tests of the reader: series whose text arrives in pieces, and damaged text.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// Gives a text in pieces of this length.
struct Pieces<'a>(&'a [u8], usize);

impl Read for Pieces<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let length = self.1.min(self.0.len()).min(into.len());
        into[..length].copy_from_slice(&self.0[..length]);
        self.0 = &self.0[length..];
        Ok(length)
    }
}

/// Labels and values that are read from a text in pieces of this length.
fn read_in_pieces(text: &str, length: usize) -> Result<Vec<Value>, String> {
    let mut sink: Vec<Series> = Vec::new();
    let summary = read(Pieces(text.as_bytes(), length), &mut sink).map_err(|error| error.to_string())?;
    assert_eq!(summary.status, "success");
    Ok(sink.into_iter().map(|series| json!([series.labels, series.value.to_string()])).collect())
}

proptest! {
    #[test]
    fn pieces_of_any_length_have_the_same_series(
        all in proptest::collection::vec(("[\\PC\"\\\\{}\\[\\],:]{0,12}", 0_u32..1000), 0..6),
        is_pretty: bool,
        is_result_first: bool,
        length in 1_usize..80,
    ) {
        let result: Vec<Value> =
            all.iter().map(|(text, value)| json!({"metric": {"pod": text, text: "x"}, "value": [1.5, value.to_string()]})).collect();
        // Objects at the same depth that are no elements, and keys with the names of others.
        let other = json!({"result": [{"a": 1}], "data": {"result": [{"b": [{}]}]}, "text": "\"data\":{\"result\":[{"});
        let (list, kind) = (format!("\"result\":{}", json!(result)), "\"resultType\":\"vector\"".to_owned());
        let [first, second] = if is_result_first { [list, kind] } else { [kind, list] };
        let mut text = format!(
            "{{\"stats\":{other},\"data\":{{{first},{second}}},\"status\":\"success\",\"more\":[{{}}]}}"
        );
        if is_pretty {
            text = format!("{:#}", serde_json::from_str::<Value>(&text).unwrap());
        }
        let wanted: Vec<Value> = result.iter().map(|one| json!([one["metric"], one["value"][1]])).collect();
        prop_assert_eq!(read_in_pieces(&text, length), Ok(wanted));
    }

    #[test]
    fn damaged_text_has_no_more_series(
        cut in 0_usize..120,
        byte: u8,
        length in 1_usize..40,
    ) {
        let text = r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":"{\\\"}"},"value":[1,"2"]}]}}"#;
        let mut bytes = text.as_bytes().to_vec();
        let cut = cut.min(bytes.len() - 1);
        bytes[cut] = byte;
        let mut sink: Vec<Series> = Vec::new();
        let _ = read(Pieces(&bytes, length), &mut sink);
        prop_assert!(sink.len() <= 1);
        let mut sink: Vec<Series> = Vec::new();
        prop_assert!(read(Pieces(&text.as_bytes()[..cut], length), &mut sink).is_err());
    }
}

#[test]
fn elements_unseen_by_the_splitter_count_and_null_is_an_error() {
    let escaped = r#"{"status":"success","d\u0061ta":{"resultType":"vector","result":[{"metric":{},"value":[1,"2"]}]}}"#;
    assert_eq!(read_in_pieces(escaped, 7), Ok(vec![json!([{}, "2"])]));
    let null = r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"2"]},null]}}"#;
    assert!(read_in_pieces(null, 9).unwrap_err().contains("null"));
    for broken in ["[{}{}]", "[{},,{}]", "[{},]", "[{]}", "[1]"] {
        let text = format!(r#"{{"status":"success","data":{{"resultType":"vector","result":{broken}}}}}"#);
        let text = text.replace("{}", r#"{"value":[1,"2"]}"#);
        assert!(read_in_pieces(&text, 11).is_err(), "{broken}");
    }
}
