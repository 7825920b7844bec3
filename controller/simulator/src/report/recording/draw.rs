//! The page of a recording.

use std::fmt::Write;

use serde_json::{Value, json};
use wva_scaling::VariantKey;

use super::rows::{LoadSeries, ModelRows, Note, ReplicaSeries, Row, Summary, format_figure};
use super::{History, MAX_LISTED, MAX_ROWS};
use crate::report::page::{escape, render_page, render_table};
use crate::report::plot::{LEFT, Line, Plot, RIGHT, Shape};
use crate::report::scale::Scale;
use crate::report::series::{Groups, Run, Series};

const SCRIPT: &str = include_str!("hover.js");

pub(super) fn page(history: &History, name: &str) -> String {
    let axis = Axis::new(history);
    let mut body = intro(history, name);
    body += &table(history);
    if history.variants() > 1 {
        body += "<h2>All together</h2><div class=\"row\">";
        body += &load(&axis, &history.totals.load);
        body += &replicas(&axis, &history.totals.replicas, None);
        body += &waiting(&axis, &history.totals.load.waiting);
        body += &cost(&axis, &history.totals.replicas);
        body += "</div>";
    }
    let mut rows: Vec<Value> = Vec::new();
    for ((namespace, model_id), model) in &history.models {
        body += &section(history, &axis, namespace, model_id, model, &mut rows);
    }
    let (low, high) = axis.scale.ends();
    let data = json!({ "left": LEFT, "right": RIGHT, "low": low, "high": high, "rows": rows });
    // No text of the recording ends the element.
    let data = data.to_string().replace('<', "\\u003c");
    let _ = write!(
        body,
        "<div id=\"tip\" role=\"status\" hidden></div><script type=\"application/json\" id=\"data\">{data}</script>"
    );
    render_page(&format!("wva report: {name}"), &body, Some(SCRIPT))
}

fn intro(history: &History, name: &str) -> String {
    let span = match (history.start, history.end) {
        (Some(start), Some(end)) => format!(" from {start:.0} to {end:.0}"),
        _ => String::new(),
    };
    let mut text = format!(
        "<p>{} cycles of {} variants{span}, recorded in {}. The decisions are computed again from the recorded input. \
         Point at a plot of a variant: a box shows the decision of that time. A circle is a new target.</p>",
        history.cycles,
        history.variants(),
        escape(name)
    );
    if history.variants() > MAX_ROWS {
        let _ = write!(
            text,
            "<p><strong>Plots of single variants need a choice of at most {MAX_ROWS}:</strong> run \
             <code>wva report</code> with names, or with -n NAMESPACE.</p>"
        );
    }
    if history.variants() > MAX_LISTED {
        let _ = write!(text, "<p>The table has the {MAX_LISTED} variants with the highest cost.</p>");
    }
    text
}

fn table(history: &History) -> String {
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
        let name = escape(&format!("{}/{}", key.namespace, key.name));
        let is_drawn = !history.models.is_empty();
        vec![
            if is_drawn { format!("<a href=\"#{name}\">{name}</a>") } else { name },
            format_figure(summary.mean_target()),
            summary.highest.to_string(),
            summary.changes.to_string(),
            format_figure(summary.mean_cost()),
            summary.code.to_owned(),
            summary.cycles.to_string(),
            escape(&summary.accelerator),
            escape(&summary.model_id),
        ]
    };
    render_table(std::iter::once(titles.map(str::to_owned).to_vec()).chain(listed.into_iter().map(row)))
}

fn section(
    history: &History,
    axis: &Axis,
    namespace: &str,
    model_id: &str,
    model: &ModelRows,
    rows: &mut Vec<Value>,
) -> String {
    let mut text = format!("<h2>{}: {}</h2>", escape(namespace), escape(model_id));
    // "All together" has the load of a single model.
    if history.models.len() > 1 || history.variants() == 1 {
        text += &["<div class=\"row\">", &load(axis, &model.load), "</div>"].concat();
    }
    for (name, row) in &model.variants {
        let key = VariantKey { namespace: namespace.to_owned(), name: name.clone() };
        let id = escape(&format!("{namespace}/{name}"));
        let facts = history.summaries.get(&key).map(describe).unwrap_or_default();
        let _ = write!(
            text,
            "<h3 id=\"{id}\">{} <span>{}</span></h3><div class=\"row\" data-row=\"{}\">{}{}{}{}</div>",
            escape(name),
            escape(&facts),
            rows.len(),
            replicas(axis, &row.replicas, Some(&row.notes)),
            kv(axis, row),
            waiting(axis, &row.queue),
            cost(axis, &row.replicas),
        );
        rows.push(notes(axis, &row.notes));
    }
    text
}

fn describe(summary: &Summary) -> String {
    let (min, max) = summary.bounds;
    let max = max.map_or_else(|| "no limit".to_owned(), |max| max.to_string());
    let Summary { accelerator, mode, changes, .. } = summary;
    format!("{accelerator}, bounds {min}..{max}, mode {mode}, {changes} new targets")
}

fn notes(axis: &Axis, notes: &Groups<Note>) -> Value {
    let times: Vec<f64> = notes.iter().map(|note| (note.moment.at / axis.unit * 1e5).round() / 1e5).collect();
    let texts: Vec<String> = notes.iter().map(Note::text).collect();
    json!({ "t": times, "s": texts })
}

/// Time axis of all plots.
pub(super) struct Axis {
    pub(super) scale: Scale,
    /// Seconds of a unit.
    unit: f64,
    pub(super) unit_name: &'static str,
    title: String,
}

impl Axis {
    pub(super) fn new(history: &History) -> Self {
        let (unit, unit_name) = match history.last {
            _ if history.start.is_none() => (1.0, "cycles"),
            length if length > 3.0 * 86_400.0 => (86_400.0, "days"),
            length if length > 3.0 * 3600.0 => (3600.0, "hours"),
            length if length > 180.0 => (60.0, "minutes"),
            _ => (1.0, "seconds"),
        };
        let since = history.start.map(|start| format!(" since {start:.0}")).unwrap_or_default();
        let scale = Scale::tight([0.0, history.last / unit].into_iter());
        Self { scale, unit, unit_name, title: format!("{unit_name}{since}") }
    }

    fn plot<'a>(&'a self, title: &'a str, y: Scale) -> Plot<'a> {
        Plot { width: 290.0, height: 170.0, titles: (&self.title, title), x: self.scale, y, mark: None }
    }

    /// A plot with a legend. `y`: default by the values.
    fn draw(
        &self,
        title: &str,
        shape: Shape,
        lines: &[(&'static str, &str, &Series)],
        y: Option<Scale>,
        notes: Option<&Groups<Note>>,
    ) -> String {
        let runs: Vec<(&'static str, Vec<Run>)> =
            lines.iter().map(|(class, _, series)| (*class, self.runs(series))).collect();
        let values = || runs.iter().flat_map(|(_, runs)| runs.iter().flatten()).map(|point| point.1);
        let plot = self.plot(title, y.unwrap_or_else(|| Scale::with_outliers(values())));
        let marks = notes.map(|notes| self.steps(&plot, notes)).unwrap_or_default();
        let drawn: Vec<Line<'_>> = runs
            .iter()
            .flat_map(|(class, runs)| runs.iter().map(|points| Line { class, shape, points }))
            .collect();
        let legend: String = lines
            .iter()
            .map(|(class, name, _)| ["<span class=\"", class, "\">", name, "</span>"].concat())
            .collect();
        let absent = if values().next().is_none() { " (unknown)" } else { "" };
        format!(
            "<figure><figcaption>{}{absent} {legend}</figcaption>{}</figure>",
            escape(title),
            plot.lines(&drawn, &marks)
        )
    }

    pub(super) fn runs(&self, series: &Series) -> Vec<Run> {
        let scaled = |run: Run| run.into_iter().map(|(at, value)| (at / self.unit, value));
        series.runs().into_iter().map(|run| scaled(run).collect()).collect()
    }

    /// A circle for each new target, with the decision as its title.
    fn steps(&self, plot: &Plot<'_>, notes: &Groups<Note>) -> String {
        let mut marks = String::new();
        for note in notes.iter().filter(|note| note.changes > 0) {
            let (x, y) = plot.place((note.moment.at / self.unit, f64::from(note.facts.target)));
            let text = escape(&note.text());
            let _ = write!(
                marks,
                "<circle class=\"step\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"><title>{text}</title></circle>"
            );
        }
        marks
    }
}

/// Arrivals if an analyzer counts them, otherwise the requests in the servers.
fn load(axis: &Axis, load: &LoadSeries) -> String {
    if load.arrivals.points().is_empty() {
        let lines = [("one", "running", &load.running), ("two", "waiting", &load.waiting)];
        let values = lines.iter().flat_map(|(_, _, series)| series.points()).map(|point| point.1);
        axis.draw("load, requests", Shape::Slopes, &lines, Some(Scale::counts(values)), None)
    } else {
        let lines = [("two", "forecast", &load.forecast), ("one", "arriving", &load.arrivals)];
        axis.draw("load, requests/s", Shape::Slopes, &lines, None, None)
    }
}

fn replicas(axis: &Axis, replicas: &ReplicaSeries, notes: Option<&Groups<Note>>) -> String {
    let lines = [
        ("three", "ready", &replicas.ready),
        ("two", "current (HPA)", &replicas.current),
        ("one", "target", &replicas.target),
    ];
    let values = lines.iter().flat_map(|(_, _, series)| series.points()).map(|point| point.1);
    axis.draw("replicas", Shape::Steps, &lines, Some(Scale::counts(values)), notes)
}

fn kv(axis: &Axis, row: &Row) -> String {
    let lines = [("two", "highest", &row.kv_highest), ("one", "mean", &row.kv)];
    axis.draw("KV cache use", Shape::Slopes, &lines, Some(Scale::Linear { low: 0.0, high: 1.0 }), None)
}

fn waiting(axis: &Axis, waiting: &Series) -> String {
    let values = waiting.points().into_iter().map(|point| point.1);
    axis.draw(
        "waiting requests",
        Shape::Slopes,
        &[("one", "waiting", waiting)],
        Some(Scale::counts(values)),
        None,
    )
}

fn cost(axis: &Axis, replicas: &ReplicaSeries) -> String {
    axis.draw("cost", Shape::Steps, &[("one", "current replicas", &replicas.cost)], None, None)
}
