//! Traces in their published layouts: Azure and `BurstGPT` as CSV, Mooncake as JSON lines, also gzipped. The first
//! request arrives at 0.

use std::io::{BufRead, BufReader};

use flate2::bufread::MultiGzDecoder;
use serde::Deserialize;

use crate::fleet::server::Request;

/// The layout of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Layout {
    /// CSV `TIMESTAMP,ContextTokens,GeneratedTokens`; times as date and time.
    Azure,
    /// CSV `Timestamp,Model,Request tokens,Response tokens,...`; times in seconds.
    BurstGpt,
    /// JSON lines `{"timestamp": ms, "input_length": n, "output_length": n, ...}`.
    Mooncake,
}

/// Error in a trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// A column is missing.
    #[error("line 1: no column {column:?} among {found:?}: is it another layout?")]
    Column {
        /// Name of the column.
        column: &'static str,
        /// Header of the file.
        found: String,
    },
    /// A value is of the wrong kind.
    #[error("line {line}: {field}: {found:?} is not a {wanted}")]
    Value {
        /// Number of the line, from 1.
        line: u64,
        /// Name of the field.
        field: &'static str,
        /// Value found.
        found: String,
        /// Kind of value expected.
        wanted: &'static str,
    },
    /// A line does not match the layout.
    #[error("line {line}: {problem}")]
    Line {
        /// Number of the line, from 1.
        line: u64,
        /// Error of the parser.
        problem: String,
    },
    /// The trace has no requests.
    #[error("no request{of}: a trace needs one at least")]
    Empty {
        /// The model asked for, if any.
        of: String,
    },
}

/// Reads a trace, in any order of time. With a model, reads only its requests.
///
/// # Errors
/// The first error, with its line and field.
pub fn read(
    mut input: impl BufRead,
    layout: Layout,
    model: Option<&str>,
) -> Result<Vec<Request>, TraceError> {
    let start = input.fill_buf().map_err(|e| TraceError::Line { line: 1, problem: e.to_string() })?;
    if start.starts_with(&GZIP) {
        requests(BufReader::new(MultiGzDecoder::new(input)), layout, model)
    } else {
        requests(input, layout, model)
    }
}

/// First bytes of a gzip file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

fn requests(input: impl BufRead, layout: Layout, model: Option<&str>) -> Result<Vec<Request>, TraceError> {
    let mut requests = match layout {
        Layout::Azure => azure(input)?,
        Layout::BurstGpt => burst_gpt(input, model)?,
        Layout::Mooncake => mooncake(input)?,
    };
    requests.sort_by(|a, b| a.arrived.total_cmp(&b.arrived));
    let of = || model.map(|m| format!(" of the model {m:?}")).unwrap_or_default();
    let first = requests.first().ok_or_else(|| TraceError::Empty { of: of() })?.arrived;
    for request in &mut requests {
        request.arrived -= first;
    }
    Ok(requests)
}

/// Text in the requested columns.
fn rows<R: BufRead, const N: usize>(
    input: R,
    columns: [&'static str; N],
    mut row: impl FnMut(u64, [&str; N]) -> Result<(), TraceError>,
) -> Result<(), TraceError> {
    let mut reader = csv::Reader::from_reader(input);
    let failed = |e: &csv::Error| TraceError::Line {
        line: e.position().map_or(1, csv::Position::line),
        problem: e.to_string(),
    };
    let header = reader.headers().map_err(|e| failed(&e))?.clone();
    let mut places = [0; N];
    for (place, column) in places.iter_mut().zip(columns) {
        *place = header.iter().position(|h| h.trim() == column).ok_or_else(|| TraceError::Column {
            column,
            found: header.iter().collect::<Vec<_>>().join(","),
        })?;
    }
    let mut record = csv::StringRecord::new();
    while reader.read_record(&mut record).map_err(|e| failed(&e))? {
        let line = record.position().map_or(0, csv::Position::line);
        row(line, places.map(|place| record.get(place).unwrap_or_default().trim()))?;
    }
    Ok(())
}

fn azure(input: impl BufRead) -> Result<Vec<Request>, TraceError> {
    const COLUMNS: [&str; 3] = ["TIMESTAMP", "ContextTokens", "GeneratedTokens"];
    let mut requests = Vec::new();
    rows(input, COLUMNS, |line, [time, prompt, generated]| {
        let invalid = || value(line, COLUMNS[0], time, "date and time, such as 2023-11-16 18:17:03.9799600");
        // Later traces name the zone, which is always UTC.
        let local = time.trim_end_matches('Z').trim_end_matches("+00:00");
        let time: jiff::civil::DateTime = local.parse().map_err(|_| invalid())?;
        let time = time.to_zoned(jiff::tz::TimeZone::UTC).map_err(|_| invalid())?.timestamp();
        requests.push(Request {
            arrived: time.as_duration().as_secs_f64(),
            input: number(line, COLUMNS[1], prompt)?,
            output: number(line, COLUMNS[2], generated)?.max(1),
        });
        Ok(())
    })?;
    Ok(requests)
}

fn burst_gpt(input: impl BufRead, model: Option<&str>) -> Result<Vec<Request>, TraceError> {
    const COLUMNS: [&str; 4] = ["Timestamp", "Model", "Request tokens", "Response tokens"];
    let mut requests = Vec::new();
    rows(input, COLUMNS, |line, [time, of, prompt, generated]| {
        let generated = number(line, COLUMNS[3], generated)?;
        // A request without generated tokens failed, so it was not served.
        if generated > 0 && model.is_none_or(|m| m == of) {
            let seconds: Option<f64> = time.parse().ok().filter(|t: &f64| t.is_finite());
            requests.push(Request {
                arrived: seconds.ok_or_else(|| value(line, COLUMNS[0], time, "number of seconds"))?,
                input: number(line, COLUMNS[2], prompt)?,
                output: generated,
            });
        }
        Ok(())
    })?;
    Ok(requests)
}

#[derive(Deserialize)]
struct MooncakeLine {
    timestamp: u64,
    input_length: u32,
    output_length: u32,
}

fn mooncake(input: impl BufRead) -> Result<Vec<Request>, TraceError> {
    let mut requests = Vec::new();
    for (line, text) in (1..).zip(input.lines()) {
        let text = text.map_err(|e| TraceError::Line { line, problem: e.to_string() })?;
        if text.trim().is_empty() {
            continue;
        }
        let row: MooncakeLine = serde_json::from_str(&text).map_err(|e| {
            // The parser sees one line at a time, so its own line number is always 1.
            let problem = e.to_string().replace(" at line 1 column ", ", at column ");
            TraceError::Line { line, problem }
        })?;
        requests.push(Request {
            arrived: crate::fleet::engine::to_f64(row.timestamp) / 1000.0,
            input: row.input_length,
            output: row.output_length.max(1),
        });
    }
    Ok(requests)
}

fn number(line: u64, field: &'static str, text: &str) -> Result<u32, TraceError> {
    text.parse().map_err(|_| value(line, field, text, "whole number of tokens"))
}

fn value(line: u64, field: &'static str, found: &str, wanted: &'static str) -> TraceError {
    TraceError::Value { line, field, found: found.to_owned(), wanted }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn requests(text: &str, layout: Layout, model: Option<&str>) -> Vec<(f64, u32, u32)> {
        let read = read(text.as_bytes(), layout, model).unwrap();
        read.iter().map(|r| ((r.arrived * 1000.0).round() / 1000.0, r.input, r.output)).collect()
    }

    #[track_caller]
    fn refused(text: &str, layout: Layout, why: &str) {
        assert_eq!(read(text.as_bytes(), layout, Some("m")).unwrap_err().to_string(), why);
    }

    #[test]
    fn azure_in_both_years_forms() {
        let text = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,4808,10\r\n2023-11-16 18:17:04.0319600,3180,8\r\n";
        assert_eq!(requests(text, Layout::Azure, None), [(0.0, 4808, 10), (0.052, 3180, 8)]);
        let text = "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:01.5+00:00,7,1\n2024-05-10 00:00:00+00:00,5,0\n";
        assert_eq!(requests(text, Layout::Azure, None), [(0.0, 5, 1), (1.5, 7, 1)], "in order of time");
    }

    #[test]
    fn burst_gpt_of_one_model_without_failures() {
        let text = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,10,20,30,API log\n118,ChatGPT,100,0,100,API log\n200.5,ChatGPT,9,3,12,API log\n";
        assert_eq!(requests(text, Layout::BurstGpt, Some("ChatGPT")), [(0.0, 472, 18), (195.5, 9, 3)]);
        assert_eq!(requests(text, Layout::BurstGpt, None).len(), 3);
        refused(text, Layout::BurstGpt, "no request of the model \"m\": a trace needs one at least");
    }

    #[test]
    fn mooncake_lines() {
        let text = "{\"timestamp\": 27482, \"input_length\": 6955, \"output_length\": 52, \"hash_ids\": [46]}\n\n{\"timestamp\": 30535, \"input_length\": 6472, \"output_length\": 26, \"hash_ids\": []}\n";
        assert_eq!(requests(text, Layout::Mooncake, None), [(0.0, 6955, 52), (3.053, 6472, 26)]);
    }

    fn packed(text: &str) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn reads_packed_traces_of_one_or_several_parts() {
        let lines = |from: u32, to: u32| {
            let line =
                |i| format!("{{\"timestamp\": {i}000, \"input_length\": {i}, \"output_length\": 2}}\n");
            (from..to).map(line).collect::<String>()
        };
        let plain = read(lines(1, 5000).as_bytes(), Layout::Mooncake, None).unwrap();
        assert_eq!(read(&*packed(&lines(1, 5000)), Layout::Mooncake, None).unwrap(), plain);
        let parts = [packed(&lines(1, 1000)), packed(&lines(1000, 5000))].concat();
        assert_eq!(read(&*parts, Layout::Mooncake, None).unwrap(), plain);
    }

    #[test]
    fn refuses_a_packed_trace_that_is_cut_off() {
        let mut cut = packed(&"2023-11-16 18:17:03.97,5,5\n".repeat(1000));
        cut.truncate(cut.len() - 20);
        let error = read(&*cut, Layout::Azure, None).unwrap_err();
        assert!(matches!(error, TraceError::Column { .. } | TraceError::Line { .. }), "{error}");
        let mut cut = packed("{\"timestamp\": 1, \"input_length\": 1, \"output_length\": 2}\n");
        cut.truncate(cut.len() - 4);
        let error = read(&*cut, Layout::Mooncake, None).unwrap_err().to_string();
        assert_eq!(error, "line 2: unexpected end of file");
    }

    #[test]
    fn errors_name_line_and_field() {
        refused(
            "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97,5,5\n2023-11-16 18:17:04,x,5\n",
            Layout::Azure,
            "line 3: ContextTokens: \"x\" is not a whole number of tokens",
        );
        refused(
            "TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,5\n",
            Layout::Azure,
            "line 2: TIMESTAMP: \"yesterday\" is not a date and time, such as 2023-11-16 18:17:03.9799600",
        );
        refused(
            "Timestamp,Model\n1,m\n",
            Layout::BurstGpt,
            "line 1: no column \"Request tokens\" among \"Timestamp,Model\": is it another layout?",
        );
        refused(
            "{\"timestamp\": 1, \"input_length\": 1}\n",
            Layout::Mooncake,
            "line 1: missing field `output_length`, at column 35",
        );
    }
}
