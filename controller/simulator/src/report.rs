//! Reports: of studies as a table, JSON, and one HTML page that needs no network; of recorded cycles as such a page.

pub mod hour;
mod html;
pub mod overview;
mod page;
mod plot;
pub mod recording;
mod scale;
mod series;

#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};

pub use html::html;

use crate::measure::FIGURES;
use crate::study::{Mean, Study};

/// The studies of one scenario.
#[derive(Clone, Debug)]
pub struct Section {
    /// Name of the scenario and the changed fields.
    pub title: String,
    /// Seeds that each policy ran on.
    pub seeds: u64,
    /// Input of the plots.
    pub scenario: crate::scenario::Scenario,
    /// One study for each policy.
    pub studies: Vec<Study>,
}

const RATIO: &str = "cost/oracle";
const GAP: &str = "  ";

/// Width of a table that is not wide, characters.
const MAX_WIDTH: usize = 100;
/// Columns of a table that is not wide, the most important first.
const PRIORITY: [&str; 15] = [
    "in SLO %", "cost", "TTFT p99 s", "ITL p99 ms", RATIO, "moves", "errors %", "GPU h", "TTFT %", "ITL %",
    "min. over", "flaps", "recovery s", "TTFT p50 s", "ITL p50 ms",
];

/// All sections as text: with all figures if `wide`, otherwise those that fit into 100 columns.
#[must_use]
pub fn table(sections: &[Section], wide: bool) -> String {
    let fitted = |rows: Vec<Vec<String>>| if wide { rows } else { fit(&rows) };
    sections
        .iter()
        .map(|s| format!("{} ({})\n\n{}", s.title, describe_seeds(s.seeds), format_table(&fitted(rows(s)))))
        .collect::<Vec<_>>()
        .join("\n")
}

fn describe_seeds(count: u64) -> String {
    if count == 1 {
        "1 seed".to_owned()
    } else {
        format!("{count} seeds; ± is half the 95 % confidence interval")
    }
}

fn rows(section: &Section) -> Vec<Vec<String>> {
    let with_ratio = section.studies.iter().any(|s| s.ratio().is_some());
    let mut header = vec!["policy".to_owned()];
    header.extend(FIGURES.iter().map(|f| f.title.to_owned()));
    header.extend(with_ratio.then(|| RATIO.to_owned()));
    let mut rows = vec![header];
    for study in &section.studies {
        let size = study.best_size.map(|size| format!(", {size}"));
        let mut row = vec![study.policy.clone() + &size.unwrap_or_default()];
        row.extend(FIGURES.iter().enumerate().map(|(i, f)| format_cell(study.mean(i), f.digits)));
        row.extend(study.ratio().map(|ratio| format_cell(ratio, 2)));
        rows.push(row);
    }
    rows
}

fn format_cell(value: Mean, digits: usize) -> String {
    let half = (value.to - value.from) / 2.0;
    if !value.mean.is_finite() {
        "-".to_owned()
    } else if half > 0.0 {
        format!("{:.digits$} ±{half:.digits$}", value.mean)
    } else {
        format!("{:.digits$}", value.mean)
    }
}

/// The first column, and the others by priority as long as they fit. Their order stays.
fn fit(rows: &[Vec<String>]) -> Vec<Vec<String>> {
    let header = rows.first().map_or(&[][..], Vec::as_slice);
    let mut kept = vec![0];
    let mut width = column_width(rows, 0);
    for title in PRIORITY {
        let Some(column) = header.iter().position(|cell| cell == title) else { continue };
        let more = GAP.len() + column_width(rows, column);
        if width + more <= MAX_WIDTH {
            width += more;
            kept.push(column);
        }
    }
    kept.sort_unstable();
    rows.iter().map(|row| kept.iter().filter_map(|column| row.get(*column).cloned()).collect()).collect()
}

fn column_width(rows: &[Vec<String>], column: usize) -> usize {
    rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
}

/// Figures to the right.
pub(crate) fn format_table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let widths: Vec<usize> = (0..columns).map(|column| column_width(rows, column)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(c, (t, w))| if c == 0 { format!("{t:<w$}") } else { format!("{t:>w$}") });
        cells.collect::<Vec<_>>().join(GAP).trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

/// All sections as JSON. Unknown values are `null`.
#[must_use]
pub fn json(sections: &[Section]) -> Value {
    let mean = |m: Mean| json!({ "mean": m.mean, "from": m.from, "to": m.to });
    let policy = |study: &Study| {
        let figures = FIGURES.iter().enumerate().map(|(i, f)| (f.key.to_owned(), mean(study.mean(i))));
        let mut object = Map::from_iter([("name".to_owned(), Value::from(study.policy.clone()))]);
        object.insert("figures".to_owned(), Value::Object(figures.collect()));
        if let Some(size) = study.best_size {
            object.insert("bestSize".to_owned(), size.into());
        }
        if let Some(ratio) = study.ratio() {
            object.insert("costByOracle".to_owned(), mean(ratio));
        }
        Value::Object(object)
    };
    let section = |s: &Section| json!({ "title": s.title, "seeds": s.seeds, "policies": s.studies.iter().map(policy).collect::<Vec<_>>() });
    json!({ "scenarios": sections.iter().map(section).collect::<Vec<_>>() })
}
