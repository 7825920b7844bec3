//! The report: one page with everything in it.

use super::plot::{Axes, COLOURS, Series, lines, points};
use super::{Section, rows, seeds};
use crate::measure::{FIGURES, Minute};
use crate::study::Study;

const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;max-width:1180px;margin:2em auto;padding:0 1em;color:#222}\
h2{margin-top:2em}h3{margin:1.2em 0 .2em}table{border-collapse:collapse;font-size:12.5px;display:block;overflow-x:auto}\
td,th{padding:3px 7px;border-bottom:1px solid #ddd;text-align:right;white-space:nowrap}\
td:first-child,th:first-child{text-align:left}svg{width:100%;max-width:860px;font:11px sans-serif;display:block}\
.grid{stroke:#e4e4e4}.mark{stroke:#c00;stroke-dasharray:5 4}.legend{margin:0;font-size:12.5px}\
.legend span{margin-right:1.2em}.legend i{display:inline-block;width:11px;height:11px;margin-right:5px}\
dt{font-weight:600}dd{margin:0 0 .3em 1.5em}";

/// Text as it may stand in a page.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// All sections as one page.
#[must_use]
pub fn html(sections: &[Section]) -> String {
    let body: String = sections.iter().map(section).collect();
    let meanings: String = FIGURES
        .iter()
        .map(|f| ["<dt>", &escape(f.title), "</dt><dd>", &escape(f.help), "</dd>"].concat())
        .collect();
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>wva simulate</title>\
         <meta name=\"viewport\" content=\"width=device-width\"><style>{STYLE}</style></head><body>\
         <h1>wva simulate</h1>{body}<h2>What the figures mean</h2><dl>{meanings}</dl></body></html>\n"
    )
}

fn section(section: &Section) -> String {
    let slo = &section.scenario.setting.objectives;
    let mut page = format!(
        "<h2>{}</h2><p>{}. Held to {} s to the first token and {} ms between tokens, for {} % of all requests.</p>{}",
        escape(&section.title),
        seeds(section.seeds),
        slo.ttft,
        1000.0 * slo.itl,
        100.0 * slo.attainment,
        table(section)
    );
    page += "<h3>Cost against attainment: to the upper left is better</h3>";
    page += &frontier(section);
    page += "<h3>The load, and the ready replicas of all variants (first seed)</h3>";
    page += &lines(&Axes { x: "minutes", y: "requests/s", logarithmic: false, mark: None }, &load(section));
    page += &lines(
        &Axes { x: "minutes", y: "ready replicas", logarithmic: false, mark: None },
        &each(section, &replicas),
    );
    page += "<h3>The slowest first token of each minute, and the objective (first seed)</h3>";
    page += &lines(
        &Axes { x: "minutes", y: "seconds", logarithmic: true, mark: Some(slo.ttft) },
        &each(section, &|m| f64::from(m.slowest)),
    );
    page
}

fn table(section: &Section) -> String {
    let line = |(i, cells): (usize, Vec<String>)| {
        let tag = if i == 0 { "th" } else { "td" };
        let cells: String =
            cells.iter().map(|c| ["<", tag, ">", &escape(c), "</", tag, ">"].concat()).collect();
        format!("<tr>{cells}</tr>")
    };
    format!("<table>{}</table>", rows(section).into_iter().enumerate().map(line).collect::<String>())
}

fn frontier(section: &Section) -> String {
    let place = |key: &str| FIGURES.iter().position(|f| f.key == key).unwrap_or(0);
    let (cost, kept) = (place("cost"), place("attainment"));
    let point = |study: &Study| vec![(study.mean(cost).mean, study.mean(kept).mean)];
    let goal = 100.0 * section.scenario.setting.objectives.attainment;
    points(
        &Axes { x: "cost", y: "% in SLO", logarithmic: false, mark: Some(goal) },
        &of_each(section, &point),
    )
}

fn load(section: &Section) -> Vec<Series> {
    let minutes = section.studies.first().map(|s| s.first.minutes.as_slice()).unwrap_or_default();
    let points = (0_u32..).zip(minutes).map(|(i, m)| (f64::from(i), f64::from(m.arrived) / 60.0)).collect();
    vec![Series { label: "requests that arrive".to_owned(), colour: COLOURS[7], points }]
}

fn replicas(minute: &Minute) -> f64 {
    minute.ready.iter().map(|n| f64::from(*n)).sum()
}

/// A line of each policy over the minutes.
fn each(section: &Section, value: &dyn Fn(&Minute) -> f64) -> Vec<Series> {
    of_each(section, &|study| {
        (0_u32..).zip(&study.first.minutes).map(|(i, m)| (f64::from(i), value(m))).collect()
    })
}

fn of_each(section: &Section, points: &dyn Fn(&Study) -> Vec<(f64, f64)>) -> Vec<Series> {
    let series = |(study, colour): (&Study, &&'static str)| Series {
        label: study.policy.clone(),
        colour,
        points: points(study),
    };
    section.studies.iter().zip(COLOURS.iter().cycle()).map(series).collect()
}
