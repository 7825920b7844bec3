//! Requests of a history: as many in each cell as the scrapes count, with lengths from the histograms, scaled so that
//! the tokens are those that the servers counted.

use std::ops::Range;
use std::sync::Arc;

use rand_distr::{Distribution, StandardUniform};
use rand_pcg::Pcg64Mcg;

use super::arrangement::Arrangement;
use super::history::{Cell, Histogram, History};
use super::lengths::Lengths;
use crate::fleet::server::Request;
use crate::random::{Stream, random_stream};

/// Factor within which a drawn length follows the counted tokens.
const LONGEST_SCALE: f64 = 8.0;
/// Cells after one in which its requests get their first tokens, at most.
const DELAY: usize = 2;
/// Windows with fewer requests have the mean output of all.
const FEWEST: f64 = 20.0;
/// Lengths without any series.
const UNKNOWN_PROMPT: f64 = 500.0;
/// See [`UNKNOWN_PROMPT`].
const UNKNOWN_OUTPUT: f64 = 200.0;

/// Draws the requests of a history.
pub struct Drawer<'a> {
    pub(super) history: &'a History,
    prompts: Vec<Arc<Lengths>>,
    outputs: Vec<Arc<Lengths>>,
    /// Mean output of the requests of each window, as the servers counted their tokens. `None`: too few requests.
    mean_outputs: Vec<Option<f64>>,
}

impl<'a> Drawer<'a> {
    /// Prepares the lengths of each window.
    #[must_use]
    pub fn new(history: &'a History) -> Self {
        let count = history.window_count();
        let sums = |value: fn(&super::history::Cell) -> f32| -> Vec<f64> {
            let windows = history.cells.chunks(history.cells_of_window());
            windows.map(|cells| cells.iter().map(|cell| f64::from(value(cell))).sum()).collect()
        };
        let (first, prompt, generated) =
            (sums(|c| c.first_tokens), sums(|c| c.prompt_tokens), sums(|c| c.generated));
        let mean = |tokens: &[f64], unknown| {
            let requests: f64 = first.iter().sum();
            if requests > 0.0 { tokens.iter().sum::<f64>() / requests } else { unknown }
        };
        let prompts = by_window(&history.windows.prompt, count, mean(&prompt, UNKNOWN_PROMPT));
        let outputs = by_window(&history.windows.output, count, mean(&generated, UNKNOWN_OUTPUT));
        let mean_outputs = mean_outputs(history);
        Self { history, prompts, outputs, mean_outputs }
    }

    /// Requests with an arrangement for each cell, in order of time, seconds since the start of the history. Those of a cell
    /// do not depend on the arrangements of the others.
    #[must_use]
    pub fn draw(&self, arrangement: impl Fn(usize) -> Arrangement, seed: u64) -> Arc<[Request]> {
        let step = f64::from(self.history.step);
        let mut lengths = random_stream(seed, Stream::Lengths);
        let cells_of_window = self.history.cells_of_window();
        let mut requests = Vec::new();
        let mut owed = 0.0;
        for (window, cells) in self.history.cells.chunks(cells_of_window).enumerate() {
            let first = window * cells_of_window;
            let counts: Vec<u32> = cells.iter().map(|cell| whole(&mut owed, cell.arrivals)).collect();
            let prompts = self.prompts_of_cells(window, first, &counts, &mut lengths);
            let mut outputs = self.outputs_of(window, counts.iter().sum(), &mut lengths).into_iter();
            for (i, (count, prompts)) in counts.iter().zip(prompts).enumerate() {
                let cell = first + i;
                let start = step * to_f64(cell);
                let mut arrivals = random_stream(seed ^ ((cell as u64) << 8), Stream::Arrivals);
                let places = arrangement(cell).places(*count, step, &mut arrivals);
                requests.extend(places.into_iter().zip(prompts).map(|(place, input)| Request {
                    arrived: start + step * place,
                    input: tokens(input),
                    output: tokens(outputs.next().unwrap_or(1.0)),
                }));
            }
        }
        requests.into()
    }

    /// Outputs of the requests of a window: drawn, and scaled to the tokens that the servers counted.
    fn outputs_of(&self, window: usize, count: u32, random: &mut Pcg64Mcg) -> Vec<f64> {
        let mut drawn: Vec<f64> = (0..count).map(|_| self.outputs[window].draw(random)).collect();
        if let Some(mean) = self.mean_outputs[window] {
            let factor = scale(mean * f64::from(count) / drawn.iter().sum::<f64>());
            for length in &mut drawn {
                *length *= factor;
            }
        }
        drawn
    }

    /// Prompts of each cell of a window: drawn for the window, so that long ones stay as frequent as they were, and put
    /// where the servers counted their tokens. `counts`: requests of each cell; `first`: index of the first cell.
    fn prompts_of_cells(
        &self,
        window: usize,
        first: usize,
        counts: &[u32],
        random: &mut Pcg64Mcg,
    ) -> Vec<Vec<f64>> {
        let drawer = &self.prompts[window];
        let mut drawn: Vec<f64> =
            counts.iter().flat_map(|count| 0..*count).map(|_| drawer.draw(random)).collect();
        drawn.sort_by(|a, b| b.total_cmp(a));
        let mean = drawn.iter().sum::<f64>() / crate::fleet::engine::to_f64(drawn.len().max(1) as u64);
        // Tokens that are left for each cell.
        let mut left: Vec<f64> = (counts.iter().enumerate())
            .map(|(i, count)| f64::from(*count) * self.mean_prompt(first + i).unwrap_or(mean))
            .collect();
        let factor = scale(left.iter().sum::<f64>() / drawn.iter().sum::<f64>());
        let mut cells: Vec<Vec<f64>> = counts.iter().map(|_| Vec::new()).collect();
        for length in drawn.into_iter().map(|length| length * factor) {
            let open = (0..cells.len()).filter(|i| to_f64(cells[*i].len()) < f64::from(counts[*i]));
            if let Some(cell) = open.max_by(|a, b| left[*a].total_cmp(&left[*b])) {
                left[cell] -= length;
                cells[cell].push(length);
            }
        }
        // The longest is not always the first.
        for prompts in &mut cells {
            for i in (1..prompts.len()).rev() {
                let share: f64 = StandardUniform.sample(random);
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "below the length"
                )]
                let other = (share * to_f64(i + 1)) as usize;
                prompts.swap(i, other.min(i));
            }
        }
        cells
    }

    /// Mean prompt of the requests that got their first tokens in this cell and soon after.
    fn mean_prompt(&self, cell: usize) -> Option<f64> {
        let mut requests = 0.0;
        let mut tokens = 0.0;
        for later in self.history.cells.iter().skip(cell).take(DELAY) {
            requests += f64::from(later.first_tokens);
            tokens += f64::from(later.prompt_tokens);
            if requests >= 1.0 {
                break;
            }
        }
        (requests >= 0.5 && tokens > 0.0).then(|| tokens / requests)
    }
}

/// Mean outputs of the requests of each window. A request generates its tokens after its first one: they are counted
/// half of the mean duration of an answer later.
fn mean_outputs(history: &History) -> Vec<Option<f64>> {
    let cells = &history.cells;
    let sum = |range: Range<usize>, value: fn(&Cell) -> f32| -> f64 {
        cells.get(range).unwrap_or_default().iter().map(|cell| f64::from(value(cell))).sum()
    };
    let all = sum(0..cells.len(), |c| c.generated) / sum(0..cells.len(), |c| c.first_tokens);
    let gap = history.windows.mean_gap(&(0..history.window_count())).unwrap_or(0.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
    let later = (0.5 * all * gap / f64::from(history.step.max(1))).round() as usize;
    let size = history.cells_of_window();
    let mean = |window: usize| {
        let own = window * size..((window + 1) * size).min(cells.len());
        let shifted = own.start + later..own.end + later;
        let (requests, tokens) = (sum(own, |c| c.first_tokens), sum(shifted.clone(), |c| c.generated));
        (requests >= FEWEST && shifted.end <= cells.len()).then(|| tokens / requests)
    };
    (0..history.window_count()).map(|window| mean(window).or(all.is_finite().then_some(all))).collect()
}

/// Lengths of each window: its own, else those of all windows, else exponential ones.
fn by_window(histogram: &Histogram, count: usize, mean: f64) -> Vec<Arc<Lengths>> {
    let all = Lengths::new(&histogram.bounds, &histogram.sum(0..count));
    let all = Arc::new(all.unwrap_or_else(|| Lengths::exponential(mean.max(1.0))));
    let own = |window: usize| {
        let counts: Vec<f64> = histogram.rows.get(window)?.iter().map(|count| f64::from(*count)).collect();
        Lengths::new(&histogram.bounds, &counts).map(Arc::new)
    };
    (0..count.max(1)).map(|window| own(window).unwrap_or_else(|| all.clone())).collect()
}

fn scale(factor: f64) -> f64 {
    if factor.is_finite() && factor > 0.0 { factor.clamp(1.0 / LONGEST_SCALE, LONGEST_SCALE) } else { 1.0 }
}

/// Whole requests of a cell; the rest is owed to the next one.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
fn whole(owed: &mut f64, arrivals: f32) -> u32 {
    *owed += f64::from(arrivals.max(0.0));
    let count = (*owed + 1e-3) as u32;
    *owed -= f64::from(count);
    count
}

fn to_f64(count: usize) -> f64 {
    crate::fleet::engine::to_f64(count as u64)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
fn tokens(length: f64) -> u32 {
    (length.round() as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backtest::history::ModelKey;

    fn history() -> History {
        let mut history = History::new(ModelKey::default(), 0, 600, 15);
        for (i, cell) in (0_u8..).zip(&mut history.cells) {
            let requests = f32::from(i % 4) + 0.5;
            let prompt_tokens = requests * if i < 20 { 100.0 } else { 1000.0 };
            let generated = 50.0 * requests;
            *cell = Cell {
                arrivals: requests,
                first_tokens: requests,
                prompt_tokens,
                generated,
                ..Cell::default()
            };
        }
        history.windows.prompt =
            Histogram { bounds: vec![50.0, 5000.0], rows: vec![vec![10.0, 30.0, 0.0], vec![0.0, 40.0, 0.0]] };
        history
    }

    #[test]
    fn requests_and_tokens_are_as_many_as_counted() {
        let history = history();
        let requests = Drawer::new(&history).draw(|_| Arrangement::Random, 1);
        assert_eq!(requests.len(), 80);
        assert!(requests.windows(2).all(|pair| pair[0].arrived <= pair[1].arrived));
        let mean = |from: f64, to: f64| {
            let own: Vec<f64> = requests
                .iter()
                .filter(|r| (from..to).contains(&r.arrived))
                .map(|r| f64::from(r.input))
                .collect();
            own.iter().sum::<f64>() / crate::fleet::engine::to_f64(own.len() as u64)
        };
        assert!((mean(0.0, 300.0) / 100.0 - 1.0).abs() < 0.05, "{}", mean(0.0, 300.0));
        assert!((mean(300.0, 600.0) / 1000.0 - 1.0).abs() < 0.05, "{}", mean(300.0, 600.0));
        let output: f64 = requests.iter().map(|r| f64::from(r.output)).sum();
        assert!((output / 4000.0 - 1.0).abs() < 0.3, "{output}");
    }

    #[test]
    fn a_seed_gives_the_same_requests() {
        let history = history();
        let drawer = Drawer::new(&history);
        let draw = |arrangement, seed| drawer.draw(|_| arrangement, seed);
        assert_eq!(draw(Arrangement::Ticks(4), 1), draw(Arrangement::Ticks(4), 1));
        assert_ne!(draw(Arrangement::Ticks(4), 1), draw(Arrangement::Even, 1));
        assert_ne!(draw(Arrangement::Random, 1), draw(Arrangement::Random, 2));
    }
}
