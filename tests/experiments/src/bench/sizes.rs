//! Table and plot of `bench-cycle` by size, from the files that it wrote.

use std::path::Path;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::command::print_line;

/// Rows of the table: title, pointer into the figures, factor and decimals.
const ROWS: [(&str, &str, f64, usize); 13] = [
    ("pods", "/pods", 1.0, 0),
    ("queries a round", "/queriesARound", 1.0, 0),
    ("all queries and the cycle, one after the other, s", "/secondsInAllOneAfterTheOther", 1.0, 2),
    ("assemble, decide, publish, ms", "/secondsOfACycle", 1e3, 0),
    ("processor time of a cycle, ms", "/processorSecondsOfTheProgram", 1e3, 0),
    ("the same with six scrapes, ms", "/processorSecondsWithScrapes", 1e3, 0),
    ("a scrape, plain, KB", "/bytesOfAScrape/0", 1e-3, 0),
    ("a scrape, packed, KB", "/bytesOfAScrape/1", 1e-3, 0),
    ("resident, MiB", "/residentKiB/now", 1.0 / 1024.0, 1),
    ("resident, at most since the start, MiB", "/residentKiB/most", 1.0 / 1024.0, 1),
    ("from the start until all are decided, s", "/secondsUntilAllAreDecided", 1.0, 1),
    (
        "patches of statuses until the measurement",
        "/requestsOfTheStart/patch variantautoscalings~1status",
        1.0,
        0,
    ),
    ("requests to the API server during 12 cycles", "/requestsOfTheMeasurement", 1.0, 0),
];

/// Prints the table of all sizes in this folder, and the plot of processor time against models.
pub(crate) fn print(folder: &Path) -> anyhow::Result<()> {
    let files = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut sizes = Vec::new();
    for file in files {
        let path = file?.path();
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with("cycle-") && path.extension().is_some_and(|extension| extension == "json") {
            let text = std::fs::read_to_string(&path)?;
            let figures: Value =
                serde_json::from_str(&text).with_context(|| format!("{} is not JSON", path.display()))?;
            sizes.push((figures["models"].as_u64().context("figures without models")?, figures));
        }
    }
    ensure!(!sizes.is_empty(), "no cycle-*.json in {}: run `make bench-cycle` first", folder.display());
    sizes.sort_by_key(|(models, _)| *models);
    let models: Vec<String> = sizes.iter().map(|(models, _)| models.to_string()).collect();
    print_line(&format!("| models | {} |", models.join(" | ")))?;
    print_line(&format!("|---|{}", "---:|".repeat(models.len())))?;
    for (title, pointer, factor, decimals) in ROWS {
        let cells: Vec<String> = sizes
            .iter()
            .map(|(_, figures)| format!("{:.decimals$}", factor * figure(figures, pointer)))
            .collect();
        print_line(&format!("| {title} | {} |", cells.join(" | ")))?;
    }
    let own = |figures: &Value| format!("{:.0}", 1e3 * figure(figures, "/processorSecondsOfTheProgram"));
    let times: Vec<String> = sizes.iter().map(|(_, figures)| own(figures)).collect();
    let [axis, bars] = [&models, &times].map(|all| all.join(", "));
    print_line(&format!(
        "\n```mermaid\nxychart-beta\n  title \"Processor time of a cycle by models\"\n  x-axis [{axis}]\n  \
         y-axis \"ms\"\n  bar [{bars}]\n```"
    ))
}

/// A figure; the sum of a map of counts; 0 if absent.
fn figure(figures: &Value, pointer: &str) -> f64 {
    match figures.pointer(pointer) {
        Some(Value::Object(counts)) => counts.values().filter_map(Value::as_f64).sum(),
        found => found.and_then(Value::as_f64).unwrap_or_default(),
    }
}
