//! Arrangement of each cell on its own. A scrape counts the seconds that first tokens took since the one before: of all
//! arrangements, the one with which a simulation shows the same tells in which cells the requests came in bunches.

use std::sync::Arc;

use super::arrangement::{ARRANGEMENTS, Arrangement};
use super::calibrate::windows_of;
use super::history::History;
use super::ran::{self, Shown};
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
    pub(super) history: &'a History,
    pub(super) drawer: &'a Drawer<'a>,
    pub(super) engine: Engine,
    pub(super) objectives: Objectives,
}

impl Simulator<'_> {
    pub(super) fn run(&self, requests: &Arc<[Request]>) -> Shown {
        ran::simulate(self.history, self.engine, requests, self.objectives, 0..self.history.window_count())
    }

    /// Runs each of [`ARRANGEMENTS`] for all cells.
    pub(super) fn run_each(&self, seed: u64) -> Vec<Shown> {
        run_on_all_cores(&ARRANGEMENTS, |arrangement| self.run(&self.drawer.draw(|_| *arrangement, seed)))
    }

    /// The arrangement of each cell. `shown`: with each of [`ARRANGEMENTS`]. `None`: the servers do not export the seconds
    /// of first tokens.
    pub(super) fn arrangements(&self, shown: &[Shown]) -> Option<Vec<Arrangement>> {
        let is_known = self.history.cells.iter().any(|cell| cell.first_token_seconds > 0.0);
        let (hours, cells) = (0..self.history.hour_count(), self.drawer.cells_of_hour());
        let of_hour = |hour: usize| {
            let distances = self.distances(shown, hour);
            let own = cells * hour..(cells * (hour + 1)).min(self.history.cells.len());
            own.map(|cell| self.nearest(shown, &distances, cell)).collect::<Vec<_>>()
        };
        is_known.then(|| hours.flat_map(of_hour).collect())
    }

    /// How far the first tokens of an hour are from the measured ones, with each arrangement for all of its cells.
    fn distances(&self, shown: &[Shown], hour: usize) -> Vec<f64> {
        let windows = windows_of(hour, self.history);
        let measured = Shares::new(&self.history.windows.ttft, windows.clone());
        let distance = |own: &Shown| {
            let both = measured.as_ref().zip(Shares::new(&own.windows.ttft, windows.clone()));
            both.map_or(0.0, |(measured, own)| own.distance(measured))
        };
        shown.iter().map(distance).collect()
    }

    fn nearest(&self, shown: &[Shown], distances: &[f64], cell: usize) -> Arrangement {
        let measured = sum_from(self.history.cells.iter().map(|cell| cell.first_token_seconds), cell);
        let off = |own: &Shown| {
            let own = sum_from(own.first_token_seconds.iter().copied(), cell);
            if measured > 0.0 { (own / measured - 1.0).abs() } else { own.min(1.0) }
        };
        let all = ARRANGEMENTS
            .into_iter()
            .zip(shown.iter().zip(distances).map(|(own, distance)| off(own) + distance));
        all.min_by(|a, b| a.1.total_cmp(&b.1)).map_or(Arrangement::Random, |(own, _)| own)
    }
}

fn sum_from(values: impl Iterator<Item = f32>, cell: usize) -> f64 {
    values.skip(cell).take(REACH).map(f64::from).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backtest::history::{Cell, ModelKey};

    #[test]
    fn a_cell_has_the_arrangement_that_shows_its_first_tokens() {
        let mut history = History::new(ModelKey::default(), 0, 300, 60);
        let simulated: Vec<Vec<f32>> =
            (0..ARRANGEMENTS.len()).map(|i| vec![f32::from(u8::try_from(i).unwrap()); 5]).collect();
        let simulated: Vec<&[f32]> = simulated.iter().map(Vec::as_slice).collect();
        assert_eq!(arrangements(&history, &simulated), None, "nothing was measured");
        for (cell, seconds) in history.cells.iter_mut().zip([3.0, 3.0, 3.0, 0.0, 20.0]) {
            *cell = Cell { first_token_seconds: seconds, ..Cell::default() };
        }
        let found = arrangements(&history, &simulated).unwrap();
        assert_eq!((found[0], found[4]), (ARRANGEMENTS[3], ARRANGEMENTS[20]));
    }
}
