//! The document of simulated scenarios.

use super::document::{Axis, Block, Chart, Document, NamedPoint, Points, Scale, Table};
use super::minutes::{MinuteAxis, arrived};
use super::{Section, describe_seeds, rows};
use crate::measure::{FIGURES, Minute};
use crate::study::Study;

/// All sections as one report.
#[must_use]
pub fn document(sections: &[Section]) -> Document {
    let mut blocks: Vec<Block> = sections.iter().flat_map(section).collect();
    let terms = FIGURES.iter().map(|figure| (figure.title.to_owned(), figure.help.to_owned())).collect();
    blocks.extend([Block::heading(2, "What the figures mean"), Block::Terms { terms }]);
    Document { title: "wva simulate".to_owned(), blocks }
}

fn section(section: &Section) -> Vec<Block> {
    let slo = &section.scenario.setting.objectives;
    let mut blocks = vec![
        Block::heading(2, &section.title),
        Block::text(format!(
            "{}. Held to {} s to the first token and {} ms between tokens, for {} % of all requests.",
            describe_seeds(section.seeds),
            slo.ttft,
            1000.0 * slo.itl,
            100.0 * slo.attainment
        )),
        Block::Table(Table { rows: rows(section), ..Table::default() }),
        Block::heading(3, "Cost against attainment: to the upper left is better"),
        frontier(section),
    ];
    blocks.extend(over_time(section));
    blocks
}

fn figure_index(key: &str) -> usize {
    FIGURES.iter().position(|f| f.key == key).unwrap_or(0)
}

fn frontier(section: &Section) -> Block {
    let (cost, kept) = (figure_index("cost"), figure_index("attainment"));
    let point = |study: &Study| NamedPoint {
        name: study.policy.clone(),
        at: (study.mean(cost).mean, study.mean(kept).mean),
        ranges: None,
        is_certain: true,
    };
    let goal = 100.0 * section.scenario.setting.objectives.attainment;
    let axis = Axis { mark: Some(goal), ..Axis::with(Scale::Percent, [100.0]) };
    Block::Points(Points { axis, points: section.studies.iter().map(point).collect() })
}

fn oracle_study(section: &Section) -> Option<&Study> {
    let oracle = section.scenario.policies.iter().find(|p| p.oracle.is_some())?;
    section.studies.iter().find(|s| s.policy == oracle.name)
}

/// Charts over the same time, one below the other: the load, then the replicas and the latency of each policy.
fn over_time(section: &Section) -> Vec<Block> {
    let length = section.studies.iter().map(|s| s.first.minutes.len()).max().unwrap_or(0);
    let time = MinuteAxis::new(length, 1.0, "minutes");
    let line = |style: &'static str, study: &Study, value| time.line(style, &study.first.minutes, value);
    // Policies compare on the same axis.
    let axis = |scale, value| Axis::with(scale, extremes(section, value));

    let mut blocks = vec![
        Block::heading(3, "Over time (first seed)"),
        Block::text(
            "Ready replicas of all variants on the left, the oracle in grey; on the right the slowest first token of \
             each minute, and the objective.",
        ),
    ];
    if let Some(first) = section.studies.first() {
        let load =
            Chart::new("requests/s", axis(Scale::Zero, arrived), false, [line("load", first, arrived)]);
        blocks.extend([Block::heading(4, "the load"), time.block(vec![load])]);
    }
    let (cost, kept) = (figure_index("cost"), figure_index("attainment"));
    let objective = section.scenario.setting.objectives.ttft;
    let of_replicas = axis(Scale::Zero, replicas);
    let of_latency = Axis { mark: Some(objective), ..axis(Scale::Logarithmic, slowest) };
    for study in &section.studies {
        let (kept, cost) = (study.mean(kept).mean, study.mean(cost).mean);
        let oracle = oracle_study(section).map(|oracle| line("plan", oracle, replicas));
        let lines: Vec<_> = oracle.into_iter().chain([line("one", study, replicas)]).collect();
        let ready = Chart::new("replicas", of_replicas.clone(), false, lines);
        let wait = [line("one", study, slowest)];
        let wait = Chart::new("s to first token", of_latency.clone(), false, wait);
        let aside = format!("{kept:.1} % in SLO, cost {cost:.0}");
        blocks.extend([Block::aside(4, &study.policy, aside), time.block(vec![ready, wait])]);
    }
    blocks
}

/// The lowest and the highest value of all policies, if any is known.
fn extremes(section: &Section, value: fn(&Minute) -> f64) -> Vec<f64> {
    let known = || {
        let minutes = section.studies.iter().flat_map(|study| &study.first.minutes);
        minutes.map(value).filter(|value| value.is_finite())
    };
    known().reduce(f64::min).into_iter().chain(known().reduce(f64::max)).collect()
}

fn replicas(minute: &Minute) -> f64 {
    minute.ready.iter().map(|n| f64::from(*n)).sum()
}

fn slowest(minute: &Minute) -> f64 {
    f64::from(minute.slowest)
}
