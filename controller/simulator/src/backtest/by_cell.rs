//! Arrangement of each cell on its own. A scrape counts the seconds that first tokens took since the one before: of all
//! arrangements, the one with which a simulation shows the same tells in which cells the requests came in bunches.

use std::sync::Arc;

use super::arrangement::{ARRANGEMENTS, Arrangement};
use super::calibrate::windows_of;
use super::ran::{self, Latencies};
use super::requests::Drawer;
use super::shares::Shares;
use crate::fleet::engine::Engine;
use crate::fleet::server::Request;
use crate::measure::Objectives;
use crate::study::run_on_all_cores;

/// Cells whose first tokens a cell is judged by: its own, and those of the next one, in which late ones come.
const REACH: usize = 2;

/// Simulates the replicas that ran with an engine.
#[derive(Clone, Copy)]
pub(super) struct Simulator<'a> {
    pub(super) drawer: &'a Drawer<'a>,
    pub(super) engine: Engine,
    pub(super) objectives: Objectives,
}

impl Simulator<'_> {
    pub(super) fn run(&self, requests: &Arc<[Request]>) -> Latencies {
        let history = self.drawer.history;
        ran::simulate(history, self.engine, requests, self.objectives, 0..history.window_count())
    }

    /// Runs each of [`ARRANGEMENTS`] for all cells.
    pub(super) fn run_each(&self, seed: u64) -> Vec<Latencies> {
        run_on_all_cores(&ARRANGEMENTS, |arrangement| self.run(&self.drawer.draw(|_| *arrangement, seed)))
    }

    /// The arrangement of each cell. `shown`: with each of [`ARRANGEMENTS`]. `None`: the servers do not export the seconds
    /// of first tokens.
    pub(super) fn arrangements(&self, shown: &[Latencies]) -> Option<Vec<Arrangement>> {
        let history = self.drawer.history;
        let measured: Vec<f32> = history.cells.iter().map(|cell| cell.first_token_seconds).collect();
        let (hours, cells) = (0..history.hour_count(), history.cells_of_hour());
        let of_hour = |hour: usize| {
            let distances = self.distances(shown, hour);
            let nearest = |cell: usize| {
                let seconds = shown.iter().map(|own| sum_from(&own.first_token_seconds, cell));
                nearest(sum_from(&measured, cell), seconds.zip(distances.iter().copied()))
            };
            (cells * hour..(cells * (hour + 1)).min(measured.len())).map(nearest).collect::<Vec<_>>()
        };
        measured.iter().any(|seconds| *seconds > 0.0).then(|| hours.flat_map(of_hour).collect())
    }

    /// How far the first tokens of an hour are from the measured ones, with each arrangement for all of its cells.
    fn distances(&self, shown: &[Latencies], hour: usize) -> Vec<f64> {
        let history = self.drawer.history;
        let windows = windows_of(hour, history);
        let measured = Shares::new(&history.windows.ttft, windows.clone());
        let distance = |own: &Latencies| {
            let both = measured.as_ref().zip(Shares::new(&own.windows.ttft, windows.clone()));
            both.map_or(0.0, |(measured, own)| own.distance(measured))
        };
        shown.iter().map(distance).collect()
    }
}

/// The arrangement that shows both the seconds of a cell and the latencies of its hour. `all`: seconds with each of
/// [`ARRANGEMENTS`], and its distance in the hour, 0 to 1.
fn nearest(measured: f64, all: impl Iterator<Item = (f64, f64)>) -> Arrangement {
    let off = |(seconds, distance): (f64, f64)| {
        distance + if measured > 0.0 { (seconds / measured - 1.0).abs() } else { seconds.min(1.0) }
    };
    let nearest = ARRANGEMENTS.into_iter().zip(all.map(off)).min_by(|a, b| a.1.total_cmp(&b.1));
    nearest.map_or(Arrangement::Random, |(own, _)| own)
}

fn sum_from(values: &[f32], cell: usize) -> f64 {
    values.iter().skip(cell).take(REACH).map(|value| f64::from(*value)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backtest::history::{Cell, Histogram, History, ModelKey};
    use crate::scenario::engines::QWEN3_32B_H100;

    /// A replica for 20 minutes, with 45 prompts of 1,000 tokens every 15 s.
    fn history() -> History {
        let mut history = History::new(ModelKey::default(), 0, 1200, 15);
        let cell = Cell {
            arrivals: 45.0,
            first_tokens: 45.0,
            prompt_tokens: 45_000.0,
            generated: 450.0,
            replicas: 1.0,
            ..Cell::default()
        };
        history.cells.fill(cell);
        history.windows.ttft = Histogram { bounds: vec![0.1, 0.2, 0.5, 1.0, 2.5], rows: Vec::new() };
        history
    }

    fn simulator<'a>(drawer: &'a Drawer<'a>) -> Simulator<'a> {
        Simulator { drawer, engine: QWEN3_32B_H100, objectives: Objectives::default() }
    }

    #[test]
    fn a_burst_comes_in_the_cell_whose_first_tokens_took_long() {
        let mut history = history();
        let (burst, calm) = (ARRANGEMENTS[ARRANGEMENTS.len() - 1], Arrangement::Even);
        let shown = {
            let drawer = Drawer::new(&history);
            let own = simulator(&drawer);
            own.run(&drawer.draw(|cell| if cell == 40 { burst } else { calm }, 1))
        };
        for (cell, seconds) in history.cells.iter_mut().zip(&shown.first_token_seconds) {
            cell.first_token_seconds = *seconds;
        }
        history.windows.ttft = shown.windows.ttft;
        let drawer = Drawer::new(&history);
        let own = simulator(&drawer);
        let found = own.arrangements(&own.run_each(1)).unwrap();
        assert_eq!(found.len(), 80);
        assert!(found[..38].iter().chain(&found[42..]).all(|own| *own == calm), "{found:?}");
        assert_ne!(found[40], calm, "{found:?}");
    }

    #[test]
    fn nothing_is_known_without_the_seconds_of_first_tokens() {
        let history = history();
        let drawer = Drawer::new(&history);
        let own = simulator(&drawer);
        assert_eq!(own.arrangements(&own.run_each(1)), None);
    }

    #[test]
    fn a_rare_arrangement_needs_more_seconds() {
        let with = |index: usize, seconds: f64, distance: f64| {
            let all = (0..ARRANGEMENTS.len())
                .map(move |i| if i == index { (seconds, distance) } else { (9.0, 0.01) });
            nearest(10.0, all)
        };
        assert_eq!(with(20, 10.0, 0.3), ARRANGEMENTS[0], "a tenth of the seconds is too little");
        assert_eq!(with(20, 10.0, 0.05), ARRANGEMENTS[20]);
    }
}
