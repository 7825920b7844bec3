//! Reports: of studies as a table, as JSON and as a page; of backtests and of recorded cycles as a page. A page is data for
//! one HTML file that needs no network ([`document`]).

pub mod backtest;
pub mod document;
mod minutes;
pub mod recording;
mod series;
pub mod simulation;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

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
        let of_wva = section.scenario.policies.iter().any(|p| p.name == study.policy && p.wva.is_some());
        let owner = if of_wva { "wva: " } else { "" };
        let mut row = vec![format!("{owner}{}{}", study.policy, size.unwrap_or_default())];
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

/// Report of `wva simulate -o json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SimulationReport {
    /// In the order of the command line and of the swept values.
    scenarios: Vec<ScenarioResult>,
}

/// Results of one scenario.
#[derive(Debug, Serialize, JsonSchema)]
struct ScenarioResult {
    /// Name of the scenario and the changed fields.
    title: String,
    /// Seeds that each policy ran on.
    seeds: u64,
    /// In the order of the scenario.
    policies: Vec<PolicyResult>,
}

/// Results of one policy.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct PolicyResult {
    /// Name of the policy.
    name: String,
    /// Means over the seeds, by name of the figure.
    figures: BTreeMap<&'static str, MeanFigure>,
    /// Best number of replicas in hindsight, of the policy `fixedBest`.
    #[serde(skip_serializing_if = "Option::is_none")]
    best_size: Option<u32>,
    /// Cost divided by that of the oracle.
    #[serde(skip_serializing_if = "Option::is_none")]
    cost_by_oracle: Option<MeanFigure>,
}

/// A mean with its 95 % confidence interval. Unknown values are `null`.
#[derive(Debug, Serialize, JsonSchema)]
struct MeanFigure {
    /// Mean.
    mean: Option<f64>,
    /// Lower end.
    from: Option<f64>,
    /// Upper end.
    to: Option<f64>,
}

impl MeanFigure {
    fn new(Mean { mean, from, to }: Mean) -> Self {
        let known = |value: f64| Some(value).filter(|value| value.is_finite());
        Self { mean: known(mean), from: known(from), to: known(to) }
    }
}

impl SimulationReport {
    /// All figures of all sections.
    #[must_use]
    pub fn new(sections: &[Section]) -> Self {
        let policy = |study: &Study| PolicyResult {
            name: study.policy.clone(),
            figures: FIGURES
                .iter()
                .enumerate()
                .map(|(i, figure)| (figure.key, MeanFigure::new(study.mean(i))))
                .collect(),
            best_size: study.best_size,
            cost_by_oracle: study.ratio().map(MeanFigure::new),
        };
        let section = |section: &Section| ScenarioResult {
            title: section.title.clone(),
            seeds: section.seeds,
            policies: section.studies.iter().map(policy).collect(),
        };
        Self { scenarios: sections.iter().map(section).collect() }
    }
}
