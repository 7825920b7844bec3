//! Calibration: how well a simulation of the replicas that ran shows the measured latencies, hour by hour, and the hours
//! on which no policy can be judged.

use std::ops::Range;
use std::sync::Arc;

use super::arrangement::Arrangement;
use super::by_cell::Simulator;
use super::candidates::{BY_CELL, Candidates, Fitness, arrangement};
use super::fit::{FIT_ERROR, Fit};
use super::history::{Histogram, History, Windows};
use super::refusal::{Error, MAX_ERROR, Refusal};
use super::requests::Drawer;
use super::shares::Shares;
use super::{HOUR, WINDOW};
use crate::fleet::engine::{Engine, to_f64};
use crate::fleet::server::Request;
use crate::measure::Objectives;

/// Hours with fewer requests count for the cost only.
pub const FEWEST_REQUESTS: f64 = 20.0;
/// Greatest share of missing scrapes of an hour.
const MAX_MISSING: f64 = 0.02;
/// Greatest relative difference between arrivals and first tokens.
const MAX_LEAK: f64 = 0.05;
/// Greatest relative error of the mean time between tokens, of servers without a histogram by request.
const MAX_GAP_ERROR: f64 = 0.1;

/// Requests of all draws together with which chance is small.
const ENOUGH_REQUESTS: f64 = 60_000.0;
/// See [`ENOUGH_REQUESTS`].
const MOST_DRAWS: u64 = 4;

/// An hour of a history; the last one perhaps in part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hour {
    /// Requests that arrived.
    pub requests: f64,
    /// Arrangements of its requests.
    pub candidates: Candidates,
    /// Share within the objective for first tokens, 0 to 1.
    pub ttft: Option<Error>,
    /// The same between tokens.
    pub itl: Option<Error>,
    /// `None`: it is judged.
    pub refusal: Option<Refusal>,
}

/// Calibration of a history.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibration {
    /// Hours in order of time.
    pub hours: Vec<Hour>,
    /// Arrangement of each cell on its own, of the draws with the seeds from 1 on.
    pub cells: Vec<Vec<Arrangement>>,
}

impl Hour {
    /// Whether it has requests that count.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.requests >= FEWEST_REQUESTS
    }
}

impl Calibration {
    /// Error of the shares over all judged hours, 0 to 1. `None`: no hour with requests is judged.
    #[must_use]
    pub fn overall_error(&self) -> Option<f64> {
        let judged = || self.hours.iter().filter(|hour| hour.refusal.is_none() && hour.is_busy());
        let off = |of: fn(&Hour) -> Option<Error>| {
            let errors = judged().filter_map(|hour| Some((hour.requests, of(hour)?)));
            let (requests, sum) = errors.fold((0.0, 0.0), |(all, sum), (requests, error)| {
                (all + requests, sum + requests * (error.simulated - error.measured))
            });
            if requests > 0.0 { (sum / requests).abs() } else { 0.0 }
        };
        judged().next().map(|_| off(|hour| hour.ttft).max(off(|hour| hour.itl)))
    }

    /// Whether the shares over all judged hours are within [`MAX_ERROR`], or within chance. Chance of hours evens out.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let judged = || self.hours.iter().filter(|hour| hour.refusal.is_none() && hour.is_busy());
        let allowed = |of: fn(&Hour) -> Option<Error>| {
            let errors = judged().filter_map(|hour| Some((hour.requests, of(hour)?)));
            let (all, squares) = errors.fold((0.0, 0.0), |(all, squares), (requests, error)| {
                (all + requests, squares + (requests * error.tolerance(requests)).powi(2))
            });
            if all > 0.0 { squares.sqrt() / all } else { 0.0 }
        };
        let allowed = MAX_ERROR.max(allowed(|hour| hour.ttft)).max(allowed(|hour| hour.itl));
        self.overall_error().is_some_and(|error| error <= allowed)
    }

    /// Requests of the hours that are judged.
    #[must_use]
    pub fn judged_requests(&self) -> f64 {
        self.hours.iter().filter(|hour| hour.refusal.is_none()).map(|hour| hour.requests).sum()
    }

    /// Arranges the cells of further draws on their own, up to the seed `draws`, if those of the first ones are.
    pub(super) fn arrange_cells(&mut self, simulator: &Simulator<'_>, draws: u64) {
        let known = self.cells.len() as u64;
        for seed in (known + 1..=draws).take_while(|_| known > 0) {
            self.cells.extend(simulator.arrangements(&simulator.run_each(seed)));
        }
    }

    /// Requests with the best arrangement of each hour.
    #[must_use]
    pub fn requests(&self, drawer: &Drawer<'_>, seed: u64) -> Arc<[Request]> {
        self.draw(drawer, |own| own.best, seed)
    }

    /// Requests with the other arrangements that stand for what the data allows. Empty: the best ones are certain.
    #[must_use]
    pub fn others(&self, drawer: &Drawer<'_>) -> Vec<Arc<[Request]>> {
        if self.hours.iter().all(|hour| hour.candidates.is_certain()) {
            return Vec::new();
        }
        let all: [fn(&Candidates) -> usize; 4] =
            [|own| own.smoothest, |own| own.burstiest, |own| own.early, |own| own.late];
        let is_new = |of: &fn(&Candidates) -> usize| {
            self.hours.iter().any(|hour| of(&hour.candidates) != hour.candidates.best)
        };
        all.into_iter().filter(is_new).map(|of| self.draw(drawer, of, 1)).collect()
    }

    fn draw(&self, drawer: &Drawer<'_>, of: fn(&Candidates) -> usize, seed: u64) -> Arc<[Request]> {
        let index = |hour: usize| self.hours.get(hour).map_or(1, |hour| of(&hour.candidates));
        let cells_of_hour = drawer.history.cells_of_hour();
        let own = usize::try_from(seed).ok().and_then(|seed| self.cells.get(seed.checked_sub(1)?));
        let of_cell = |cell: usize| match index(cell / cells_of_hour) {
            BY_CELL => own.and_then(|own| own.get(cell)).copied().unwrap_or(Arrangement::Random),
            index => arrangement(index),
        };
        drawer.draw(of_cell, seed)
    }
}

/// Windows of an hour.
#[must_use]
pub fn windows_of(hour: usize, history: &History) -> Range<usize> {
    let count = (HOUR / WINDOW) as usize;
    hour * count..((hour + 1) * count).min(history.window_count())
}

/// Calibrates an engine on all hours.
#[must_use]
pub fn calibrate(
    history: &History,
    drawer: &Drawer<'_>,
    engine: Engine,
    objectives: Objectives,
) -> Calibration {
    let simulator = Simulator { drawer, engine, objectives };
    let mut cells = Vec::new();
    let mut shown: Vec<Vec<Windows>> = vec![Vec::new(); BY_CELL + 1];
    for seed in 1..=draws(history) {
        let all = simulator.run_each(seed);
        if let Some(own) = simulator.arrangements(&all) {
            shown[BY_CELL].push(simulator.run(&drawer.draw(|cell| own[cell], seed)).windows);
            cells.push(own);
        }
        for (place, own) in shown.iter_mut().zip(all) {
            place.push(own.windows);
        }
    }
    let simulated: Vec<Simulated> =
        shown.into_iter().filter(|draws| !draws.is_empty()).map(Simulated::new).collect();
    let hours = 0..history.hour_count();
    Calibration { hours: hours.map(|i| hour(history, &simulated, objectives, i)).collect(), cells }
}

/// A fit with the calibration of its engine.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibrated {
    /// The fit.
    pub fit: Fit,
    /// What a simulation with its engine shows.
    pub calibration: Calibration,
}

/// Calibrates all fits. The first is the one with which most requests are judged, with the speed within its error that shows
/// most.
#[must_use]
pub fn best_first(
    fits: Vec<Fit>,
    history: &History,
    drawer: &Drawer<'_>,
    objectives: Objectives,
) -> Vec<Calibrated> {
    let calibrated = |fit: Fit| {
        let calibration = calibrate(history, drawer, fit.engine, objectives);
        Calibrated { fit, calibration }
    };
    let judged = |own: &Calibrated| own.calibration.judged_requests();
    let mut all: Vec<Calibrated> = fits.into_iter().map(calibrated).collect();
    for i in 1..all.len() {
        if judged(&all[i]) > judged(&all[0]) {
            all.swap(0, i);
        }
    }
    let Some(fitted) = all.first().map(|best| best.fit) else { return all };
    for factor in [1.0 - FIT_ERROR, 1.0 + FIT_ERROR] {
        all.push(calibrated(Fit { engine: fitted.engine.slowed_by(factor), ..fitted }));
        let last = all.len() - 1;
        if judged(&all[last]) > judged(&all[0]) {
            all.swap(0, last);
        }
    }
    all
}

/// Draws of the requests that are simulated: a short history is one of many that might have been.
fn draws(history: &History) -> u64 {
    let requests: f64 = history.cells.iter().map(|cell| f64::from(cell.arrivals)).sum();
    (1..MOST_DRAWS).find(|draws| to_f64(*draws) * requests >= ENOUGH_REQUESTS).unwrap_or(MOST_DRAWS)
}

/// Latencies of an arrangement.
struct Simulated {
    /// Latencies of all draws.
    sum: Windows,
    draws: Vec<Windows>,
}

impl Simulated {
    fn new(draws: Vec<Windows>) -> Self {
        let mut sum = Windows::default();
        for draw in &draws {
            sum.plus(draw);
        }
        Self { sum, draws }
    }

    /// How the first tokens compare with the measured ones.
    fn fitness(&self, measured: &Histogram, windows: &Range<usize>, objective: f64) -> Fitness {
        let both = Shares::new(&self.sum.ttft, windows.clone()).zip(Shares::new(measured, windows.clone()));
        let Some((own, real)) = both else {
            return Fitness { distance: f64::INFINITY, surplus: (0.0, 0.0) };
        };
        let (simulated, measured) = (own.within(objective), real.within(objective));
        let (low, high) = (simulated.0 - measured.0, simulated.1 - measured.1);
        Fitness { distance: own.distance(&real), surplus: (low.min(high), low.max(high)) }
    }

    /// Standard deviation between draws of a share within the objective.
    fn chance(&self, of: fn(&Windows) -> &Histogram, windows: &Range<usize>, objective: f64) -> f64 {
        let share = |draw: &Windows| Some(Shares::new(of(draw), windows.clone())?.within(objective).0);
        let shares: Vec<f64> = self.draws.iter().filter_map(share).collect();
        if shares.len() < 2 {
            return 0.0;
        }
        let count = to_f64(shares.len() as u64);
        let mean = shares.iter().sum::<f64>() / count;
        (shares.iter().map(|share| (share - mean).powi(2)).sum::<f64>() / (count - 1.0)).sqrt()
    }
}

fn hour(history: &History, simulated: &[Simulated], objectives: Objectives, index: usize) -> Hour {
    let windows = windows_of(index, history);
    let cells = history.cells_of_window();
    let own = || history.cells.iter().take(windows.end * cells).skip(windows.start * cells);
    let sum = |value: fn(&super::history::Cell) -> f32| own().map(|cell| f64::from(value(cell))).sum::<f64>();
    let requests = sum(|c| c.arrivals);
    let fitness: Vec<Fitness> =
        simulated.iter().map(|own| own.fitness(&history.windows.ttft, &windows, objectives.ttft)).collect();
    // Within the error of a sample of this size (Kolmogorov, 95 %) an arrangement fits as well.
    let candidates = Candidates::new(&fitness, (1.36 / requests.max(1.0).sqrt()).max(0.01));
    let best = candidates.best;
    let compared = |index: usize, of: fn(&Windows) -> &Histogram, objective: f64| {
        let real = Shares::new(of(&history.windows), windows.clone())?;
        let own = Shares::new(of(&simulated[index].sum), windows.clone())?;
        let (low, high) = real.within(objective);
        let (least, most) = own.within(objective);
        Some(Error {
            measured: f64::midpoint(low, high),
            simulated: f64::midpoint(least, most),
            error: own.error_at(&real, objective),
            chance: simulated[index].chance(of, &windows, objective),
        })
    };
    let mut hour = Hour {
        requests,
        candidates,
        ttft: compared(best, |w| &w.ttft, objectives.ttft),
        itl: compared(best, |w| &w.request_gap, objectives.itl),
        refusal: None,
    };
    let (missing, held) = (sum(|c| c.missing), sum(|c| c.replicas + c.missing));
    if held > 0.0 && missing / held > MAX_MISSING {
        hour.refusal = Some(Refusal::MissingScrapes { missing: missing / held });
    } else if hour.is_busy() {
        let gaps = history.windows.mean_gap(&windows).zip(simulated[best].sum.mean_gap(&windows));
        let gaps = gaps.map(|(measured, simulated)| gap_error(measured, simulated));
        let beyond = candidates.beyond(&fitness).and_then(|(off, nearest)| {
            let error = compared(nearest, |w| &w.ttft, objectives.ttft)?;
            (off > error.chance_of(requests)).then_some(Refusal::OneSided(error))
        });
        hour.refusal = refusal(&hour, sum(|c| c.first_tokens), gaps).or(beyond);
    }
    hour
}

/// Difference of the mean gaps between tokens, in seconds.
fn gap_error(measured: f64, simulated: f64) -> Error {
    Error { measured, simulated, error: (simulated / measured - 1.0).abs(), chance: 0.0 }
}

fn refusal(hour: &Hour, first_tokens: f64, gaps: Option<Error>) -> Option<Refusal> {
    if (hour.requests - first_tokens).abs() > MAX_LEAK * hour.requests + 5.0 {
        return Some(Refusal::Counters { arrived: hour.requests, first_tokens });
    }
    let Some(ttft) = hour.ttft else { return Some(Refusal::NoLatencies) };
    if ttft.error > ttft.tolerance(hour.requests) {
        return Some(Refusal::Ttft(ttft));
    }
    match (hour.itl, gaps) {
        (Some(itl), _) if itl.error > itl.tolerance(hour.requests) => Some(Refusal::Itl(itl)),
        (None, Some(gaps)) => (gaps.error > MAX_GAP_ERROR).then_some(Refusal::TokenTimes(gaps)),
        (None, None) => Some(Refusal::NoLatencies),
        _ => None,
    }
}
