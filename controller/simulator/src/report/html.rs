//! The report as one HTML page that loads nothing else.

use std::fmt::Write;

use super::page::{escape, render_page, render_table};
use super::plot::{Line, NamedPoint, Plot};
use super::scale::Scale;
use super::series::thin;
use super::{Section, describe_seeds, rows};
use crate::measure::{FIGURES, Minute};
use crate::study::Study;

/// Groups of minutes of a line, each drawn by first, last and extremes.
const GROUPS: usize = 400;

/// All sections as one page.
#[must_use]
pub fn html(sections: &[Section]) -> String {
    let body: String = sections.iter().map(section).collect();
    let meanings: String = FIGURES
        .iter()
        .map(|f| ["<dt>", &escape(f.title), "</dt><dd>", &escape(f.help), "</dd>"].concat())
        .collect();
    let body = format!("{body}<h2>What the figures mean</h2><dl>{meanings}</dl>");
    render_page("wva simulate", &body, None)
}

fn section(section: &Section) -> String {
    let slo = &section.scenario.setting.objectives;
    let mut page = format!(
        "<h2>{}</h2><p>{}. Held to {} s to the first token and {} ms between tokens, for {} % of all requests.</p>{}",
        escape(&section.title),
        describe_seeds(section.seeds),
        slo.ttft,
        1000.0 * slo.itl,
        100.0 * slo.attainment,
        table(section)
    );
    page += "<h3>Cost against attainment: to the upper left is better</h3>";
    page += &frontier(section);
    page += &over_time(section);
    page
}

fn table(section: &Section) -> String {
    render_table(rows(section).into_iter().map(|row| row.iter().map(|cell| escape(cell)).collect()))
}

fn figure_index(key: &str) -> usize {
    FIGURES.iter().position(|f| f.key == key).unwrap_or(0)
}

fn frontier(section: &Section) -> String {
    let (cost, kept) = (figure_index("cost"), figure_index("attainment"));
    let point = |s: &Study| NamedPoint {
        name: s.policy.clone(),
        at: (s.mean(cost).mean, s.mean(kept).mean),
        ranges: None,
        is_certain: true,
    };
    let named: Vec<_> = section.studies.iter().map(point).collect();
    let goal = 100.0 * section.scenario.setting.objectives.attainment;
    let plot = Plot {
        width: 860.0,
        height: 340.0,
        titles: ("cost", "% of requests in SLO"),
        x: Scale::linear(named.iter().map(|p| p.at.0)),
        y: Scale::percent(named.iter().map(|p| p.at.1).chain([goal, 100.0])),
        mark: Some(goal),
    };
    ["<div class=\"wide\">", &plot.points(&named), "</div>"].concat()
}

fn oracle_study(section: &Section) -> Option<&Study> {
    let oracle = section.scenario.policies.iter().find(|p| p.oracle.is_some())?;
    section.studies.iter().find(|s| s.policy == oracle.name)
}

/// Plots over time on the same axes, one below the other: the load, then the replicas and the latency of each policy.
fn over_time(section: &Section) -> String {
    let slo = &section.scenario.setting.objectives;
    let minutes = || section.studies.iter().flat_map(|s| &s.first.minutes);
    let length = section.studies.iter().map(|s| s.first.minutes.len()).max().unwrap_or(0);
    // Long runs are shown in days.
    let (unit, title) = if length > 3000 { (1440.0, "days") } else { (1.0, "minutes") };
    let line = |study: &Study, value: &dyn Fn(&Minute) -> f64| -> Vec<(f64, f64)> {
        thin((0_u32..).zip(&study.first.minutes).map(|(i, m)| (f64::from(i) / unit, value(m))), GROUPS)
    };
    let x = Scale::tight((0_u32..).take(length).map(|i| f64::from(i) / unit));
    let plot = |height: f64, y_title: &'static str, y: Scale, mark: Option<f64>| Plot {
        width: 570.0,
        height,
        titles: (title, y_title),
        x,
        y,
        mark,
    };
    let load = plot(170.0, "requests/s", Scale::from_zero(minutes().map(arrived)), None);
    let ready = plot(150.0, "replicas", Scale::from_zero(minutes().map(replicas)), None);
    let wait = Scale::logarithmic(minutes().map(slowest).chain([slo.ttft]));
    let wait = plot(150.0, "s to first token", wait, Some(slo.ttft));
    let oracle_line = oracle_study(section).map(|s| line(s, &replicas)).unwrap_or_default();

    let mut page =
        "<h3>Over time (first seed)</h3><p>Ready replicas of all variants on the left, the oracle in \
        grey; on the right the slowest first token of each minute, and the objective.</p>"
            .to_owned();
    if let Some(first) = section.studies.first() {
        let points = line(first, &arrived);
        page += "<h4>the load</h4><div class=\"pair\">";
        page += &load.lines(&[Line::slopes("load", &points)], "");
        page += "</div>";
    }
    let (cost, kept) = (figure_index("cost"), figure_index("attainment"));
    for study in &section.studies {
        let (had, waited) = (line(study, &replicas), line(study, &slowest));
        let _ = write!(
            page,
            "<h4>{} <span>{:.1} % in SLO, cost {:.0}</span></h4><div class=\"pair\">{}{}</div>",
            escape(&study.policy),
            study.mean(kept).mean,
            study.mean(cost).mean,
            ready.lines(&[Line::slopes("plan", &oracle_line), Line::slopes("one", &had)], ""),
            wait.lines(&[Line::slopes("one", &waited)], ""),
        );
    }
    page
}

fn arrived(minute: &Minute) -> f64 {
    f64::from(minute.arrived) / 60.0
}

fn replicas(minute: &Minute) -> f64 {
    minute.ready.iter().map(|n| f64::from(*n)).sum()
}

fn slowest(minute: &Minute) -> f64 {
    f64::from(minute.slowest)
}
