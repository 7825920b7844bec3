//! The document of a recording.

use wva_scaling::VariantKey;

use super::rows::{LoadSeries, Note, ReplicaSeries, Row, Summary, format_figure};
use super::{History, MAX_LISTED, MAX_ROWS};
use crate::report::document::{
    self, Axis, Block, Chart, Charts, Document, Heading, Line, Scale, Size, Table,
};
use crate::report::series::Series;

pub(super) fn document(history: &History, name: &str) -> Document {
    let time = TimeAxis::new(history);
    let mut blocks = intro(history, name);
    blocks.push(Block::Table(table(history)));
    if history.variants() > 1 {
        let (of_load, of_replicas) = (&history.totals.load, &history.totals.replicas);
        let waiting = time.waiting(&of_load.waiting);
        let charts = vec![time.load(of_load), time.replicas(of_replicas), waiting, time.cost(of_replicas)];
        blocks.extend([Block::heading(2, "All together"), time.block(charts, Vec::new())]);
    }
    for ((namespace, model_id), model) in &history.models {
        blocks.push(Block::heading(2, format!("{namespace}: {model_id}")));
        // "All together" has the load of a single model.
        if history.models.len() > 1 || history.variants() == 1 {
            blocks.push(time.block(vec![time.load(&model.load)], Vec::new()));
        }
        for (name, row) in &model.variants {
            let key = VariantKey { namespace: namespace.clone(), name: name.clone() };
            let aside = history.summaries.get(&key).map(describe).unwrap_or_default();
            let id = Some(format!("{namespace}/{name}"));
            blocks.push(Block::Heading(Heading { level: 3, text: name.clone(), aside, id }));
            blocks.push(time.row(row));
        }
    }
    Document { title: format!("wva report: {name}"), blocks }
}

fn intro(history: &History, name: &str) -> Vec<Block> {
    let span = match (history.start, history.end) {
        (Some(start), Some(end)) => format!(" from {start:.0} to {end:.0}"),
        _ => String::new(),
    };
    let mut blocks = vec![Block::text(format!(
        "{} cycles of {} variants{span}, recorded in {name}. The decisions are computed again from the recorded input. \
         Point at a plot of a variant: a box shows the decision of that time. A circle is a new target.",
        history.cycles,
        history.variants(),
    ))];
    if history.variants() > MAX_ROWS {
        let text = format!(
            "Plots of single variants need a choice of at most {MAX_ROWS}: run wva report with names, or with -n NAMESPACE."
        );
        blocks.push(Block::Text { text, warns: true });
    }
    if history.variants() > MAX_LISTED {
        blocks.push(Block::text(format!("The table has the {MAX_LISTED} variants with the highest cost.")));
    }
    blocks
}

fn table(history: &History) -> Table {
    let titles = [
        "variant", "mean target", "highest", "new targets", "mean cost", "last decision", "cycles",
        "accelerator", "model",
    ];
    let mut listed: Vec<(&VariantKey, &Summary)> = history.summaries.iter().collect();
    if listed.len() > MAX_LISTED {
        listed.sort_by(|a, b| b.1.mean_cost().total_cmp(&a.1.mean_cost()));
        listed.truncate(MAX_LISTED);
    }
    let row = |(key, summary): (&VariantKey, &Summary)| {
        vec![
            format!("{}/{}", key.namespace, key.name),
            format_figure(summary.mean_target()),
            summary.highest.to_string(),
            summary.changes.to_string(),
            format_figure(summary.mean_cost()),
            summary.code.to_owned(),
            summary.cycles.to_string(),
            summary.accelerator.clone(),
            summary.model_id.clone(),
        ]
    };
    let titles = std::iter::once(titles.map(str::to_owned).to_vec());
    let rows = titles.chain(listed.into_iter().map(row)).collect();
    Table { rows, has_links: !history.models.is_empty(), ..Table::default() }
}

fn describe(summary: &Summary) -> String {
    let (min, max) = summary.bounds;
    let max = max.map_or_else(|| "no limit".to_owned(), |max| max.to_string());
    let Summary { accelerator, mode, changes, .. } = summary;
    format!("{accelerator}, bounds {min}..{max}, mode {mode}, {changes} new targets")
}

/// Time axis of all charts.
pub(super) struct TimeAxis {
    /// Seconds of a unit.
    unit: f64,
    pub(super) unit_name: &'static str,
    /// In units.
    pub(super) end: f64,
    title: String,
}

impl TimeAxis {
    pub(super) fn new(history: &History) -> Self {
        let (unit, unit_name) = match history.last {
            _ if history.start.is_none() => (1.0, "cycles"),
            length if length > 3.0 * 86_400.0 => (86_400.0, "days"),
            length if length > 3.0 * 3600.0 => (3600.0, "hours"),
            length if length > 180.0 => (60.0, "minutes"),
            _ => (1.0, "seconds"),
        };
        let since = history.start.map(|start| format!(" since {start:.0}")).unwrap_or_default();
        Self { unit, unit_name, end: history.last / unit, title: format!("{unit_name}{since}") }
    }

    fn block(&self, charts: Vec<Chart>, notes: Vec<document::Note>) -> Block {
        Block::Charts(Charts { size: Size::Small, title: self.title.clone(), end: self.end, charts, notes })
    }

    /// Charts and decisions of a variant.
    fn row(&self, row: &Row) -> Block {
        let kv = [self.line("highest", "two", &row.kv_highest), self.line("mean", "one", &row.kv)];
        let kv = Chart::new("KV cache use", Axis::with(Scale::Zero, [1.0]), false, kv);
        let note = |note: &Note| document::Note {
            at: note.moment.at / self.unit,
            text: note.text(),
            target: (note.changes > 0).then_some(note.facts.target),
        };
        let charts =
            vec![self.replicas(&row.replicas), kv, self.waiting(&row.queue), self.cost(&row.replicas)];
        self.block(charts, row.notes.iter().map(note).collect())
    }

    fn line(&self, name: &'static str, style: &'static str, series: &Series) -> Line {
        let scaled =
            |run: Vec<(f64, f64)>| run.into_iter().map(|(at, value)| (at / self.unit, value)).collect();
        Line { name, style, runs: series.runs().into_iter().map(scaled).collect() }
    }

    /// Arrivals if an analyzer counts them, otherwise the requests in the servers.
    fn load(&self, load: &LoadSeries) -> Chart {
        if load.arrivals.points().is_empty() {
            let lines =
                [self.line("running", "one", &load.running), self.line("waiting", "two", &load.waiting)];
            Chart::new("load, requests", Axis::counts(), false, lines)
        } else {
            let lines =
                [self.line("forecast", "two", &load.forecast), self.line("arriving", "one", &load.arrivals)];
            Chart::new("load, requests/s", Axis::new(Scale::Outliers), false, lines)
        }
    }

    fn replicas(&self, replicas: &ReplicaSeries) -> Chart {
        let lines = [
            self.line("ready", "three", &replicas.ready),
            self.line("current (HPA)", "two", &replicas.current),
            self.line("target", "one", &replicas.target),
        ];
        Chart::new("replicas", Axis::counts(), true, lines)
    }

    fn waiting(&self, waiting: &Series) -> Chart {
        Chart::new("waiting requests", Axis::counts(), false, [self.line("waiting", "one", waiting)])
    }

    fn cost(&self, replicas: &ReplicaSeries) -> Chart {
        let line = self.line("current replicas", "one", &replicas.cost);
        Chart::new("cost", Axis::new(Scale::Outliers), true, [line])
    }
}
