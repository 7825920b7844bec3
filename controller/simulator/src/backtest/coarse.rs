//! A history as scrapes at half the rate would have shown it. What policies do on it, compared with the history itself, is
//! a measured error: the finer cells are the truth for the coarser ones.

use super::WINDOW;
use super::history::{Cell, History};
use crate::fleet::engine::to_f64;

impl History {
    /// The history in cells that are at least twice as long. `None`: its cells are as long as windows.
    #[must_use]
    pub fn coarsened(&self) -> Option<Self> {
        let step = (2 * self.step.max(1)..=WINDOW).find(|step| WINDOW.is_multiple_of(*step))?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of cells")]
        let count = (self.seconds() / f64::from(step)).ceil() as usize;
        let mut cells = vec![Cell::default(); count];
        for (i, cell) in self.cells.iter().enumerate() {
            let from = f64::from(self.step) * to_f64(i as u64);
            self.share_out(*cell, from, step, &mut cells);
        }
        Some(Self { step, cells, ..self.clone() })
    }

    /// Adds a cell to the longer ones that it overlaps. `from`: seconds since the start.
    fn share_out(&self, cell: Cell, from: f64, step: u32, cells: &mut [Cell]) {
        let (own, long) = (f64::from(self.step.max(1)), f64::from(step));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the history")]
        let first = (from / long + 1e-9) as usize;
        for (i, place) in cells.iter_mut().enumerate().skip(first).take(2) {
            let start = long * to_f64(i as u64);
            let overlap = ((from + own).min(start + long) - from.max(start)).max(0.0);
            place.plus(cell, overlap / own, overlap / long);
        }
    }
}

impl Cell {
    /// Adds a share of the counts of another, and what it has of replicas for a share of the time.
    fn plus(&mut self, other: Self, counts: f64, time: f64) {
        #[expect(clippy::cast_possible_truncation, reason = "shares")]
        let (counts, time) = (counts as f32, time as f32);
        self.arrivals += counts * other.arrivals;
        self.first_tokens += counts * other.first_tokens;
        self.first_token_seconds += counts * other.first_token_seconds;
        self.prompt_tokens += counts * other.prompt_tokens;
        self.generated += counts * other.generated;
        self.replicas += time * other.replicas;
        self.missing += time * other.missing;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backtest::history::ModelKey;

    fn coarse(step: u32) -> (History, History) {
        let mut history = History::new(ModelKey::default(), 0, 600, step);
        for (i, cell) in (0_u8..).zip(&mut history.cells) {
            *cell = Cell { arrivals: f32::from(i), replicas: 2.0, missing: 1.0, ..Cell::default() };
        }
        let coarse = history.coarsened().unwrap();
        (history, coarse)
    }

    #[test]
    fn a_coarser_history_has_the_same_requests_and_replicas() {
        for (step, longer) in [(15, 30), (60, 150), (20, 50), (150, 300)] {
            let (history, coarse) = coarse(step);
            assert_eq!((coarse.step, coarse.cells.len()), (longer, (600 / longer) as usize), "{step}");
            let sum = |history: &History| history.cells.iter().map(|cell| cell.arrivals).sum::<f32>();
            assert!((sum(&history) - sum(&coarse)).abs() < 1e-3, "{step}");
            for cell in &coarse.cells {
                assert!((cell.replicas - 2.0).abs() < 1e-3 && (cell.missing - 1.0).abs() < 1e-3, "{cell:?}");
            }
        }
        assert!((coarse(15).1.cells[1].arrivals - 5.0).abs() < 1e-3);
        assert_eq!(History { step: 300, ..coarse(15).0 }.coarsened(), None);
    }
}
