//! The chart's Grafana dashboards, from `charts/dashboards.yaml`.

mod json;
mod page;
mod source;

use std::collections::BTreeMap;

pub(crate) use self::page::page;

use self::source::Source;

/// File names in the chart, with the text of each dashboard.
pub(crate) fn files() -> BTreeMap<String, String> {
    let source = Source::read();
    let file = |board| json::text(&json::dashboard(&source, board));
    source.dashboards.iter().map(|board| (format!("{}.json", board.file), file(board))).collect()
}
