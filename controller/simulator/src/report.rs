//! Reports of studies: a table, JSON, and one HTML page that needs no network.

mod html;
pub mod overview;
mod plot;
mod scale;

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

/// All sections as text.
#[must_use]
pub fn table(sections: &[Section]) -> String {
    sections
        .iter()
        .map(|s| format!("{} ({})\n\n{}", s.title, describe_seeds(s.seeds), format_table(&rows(s))))
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

/// Figures to the right.
pub(crate) fn format_table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |c: usize| rows.iter().filter_map(|r| r.get(c)).map(|t| t.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(c, (t, w))| if c == 0 { format!("{t:<w$}") } else { format!("{t:>w$}") });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
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
