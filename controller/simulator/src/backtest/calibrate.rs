//! Calibration: how well a simulation of the replicas that ran shows the measured latencies, hour by hour, and the hours
//! on which no policy can be judged.

use std::ops::Range;
use std::sync::Arc;

use super::arrangement::{ARRANGEMENTS, Arrangement};
use super::fit::{FIT_ERROR, Fit};
use super::history::{Histogram, History, Windows};
use super::ran;
use super::requests::Drawer;
use super::shares::Shares;
use super::{HOUR, WINDOW};
use crate::fleet::engine::{Engine, to_f64};
use crate::fleet::server::Request;
use crate::measure::Objectives;
use crate::study::run_on_all_cores;

/// Greatest error of a share with which an hour is judged, and that of all judged hours together: 2 points, or chance
/// ([`Error::tolerance`]).
pub const MAX_ERROR: f64 = 0.02;
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

/// Why an hour is not judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Refusal {
    /// Scrapes are missing.
    Gap {
        /// Share of the replicas' time, 0 to 1.
        missing: f64,
    },
    /// The servers export no histogram of first tokens, or no counts of the hour.
    NoLatencies,
    /// Counters disagree: requests with a first token, and requests that arrived.
    Counters {
        /// Arrived.
        arrived: f64,
        /// With a first token.
        first_tokens: f64,
    },
    /// The simulation does not show the measured share within the objective for first tokens.
    Ttft(Error),
    /// The same between tokens.
    Itl(Error),
    /// The simulation does not show the measured mean time between tokens, seconds.
    Gaps(Error),
    /// Arrangements that the measured latencies do not tell apart lead to different results.
    Bursts {
        /// Least share of a policy within the objectives, 0 to 1.
        least: f64,
        /// Greatest share.
        most: f64,
    },
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let percent = |share: f64| 100.0 * share;
        match self {
            Self::Gap { missing } => write!(f, "{:.0} % of the scrapes are missing", percent(*missing)),
            Self::NoLatencies => f.write_str("the servers counted no times to the first token"),
            Self::Counters { arrived, first_tokens } => write!(
                f,
                "the counters disagree: {arrived:.0} requests arrived, and {first_tokens:.0} got a first token"
            ),
            Self::Ttft(e) => write!(
                f,
                "{:.1} % of the first tokens came in time, and {:.1} % do in the simulation: bursts within a scrape \
                 interval, or an engine of another kind",
                percent(e.measured),
                percent(e.simulated)
            ),
            Self::Itl(e) => write!(
                f,
                "{:.1} % of the requests kept the time between tokens, and {:.1} % do in the simulation",
                percent(e.measured),
                percent(e.simulated)
            ),
            Self::Gaps(e) => write!(
                f,
                "the mean time between tokens was {:.1} ms, and is {:.1} ms in the simulation",
                1000.0 * e.measured,
                1000.0 * e.simulated
            ),
            Self::Bursts { least, most } => write!(
                f,
                "bursts within a scrape interval decide: {:.1} to {:.1} % of the requests are within the objectives in \
                 reconstructions that fit the data as well",
                percent(*least),
                percent(*most)
            ),
        }
    }
}

/// A figure as measured and as simulated.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Error {
    /// As measured.
    pub measured: f64,
    /// As simulated.
    pub simulated: f64,
    /// Greatest difference at the bounds next to the objective.
    pub error: f64,
    /// Standard deviation between draws of the requests.
    pub chance: f64,
}

impl Error {
    /// Greatest error with which an hour is judged: at least [`MAX_ERROR`], and two standard errors, of the requests and
    /// between draws of them.
    fn tolerance(self, requests: f64) -> f64 {
        let share = self.measured.clamp(0.01, 0.99);
        let of_requests = (share * (1.0 - share) / requests.max(1.0)).sqrt();
        MAX_ERROR.max(2.0 * of_requests).max((2.0 * self.chance).min(2.0 * MAX_ERROR))
    }
}

/// An hour of a history; the last one perhaps in part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hour {
    /// Requests that arrived.
    pub requests: f64,
    /// Index of the best arrangement in [`ARRANGEMENTS`].
    pub arrangement: usize,
    /// The smoothest and the burstiest that fit as well.
    pub plausible: (usize, usize),
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

    /// Requests with the best arrangement of each hour.
    #[must_use]
    pub fn requests(&self, drawer: &Drawer<'_>, seed: u64) -> Arc<[Request]> {
        drawer.draw(|hour| self.arrangement(hour, |h| h.arrangement), seed)
    }

    /// Requests with the smoothest and the burstiest arrangements that fit as well. `None`: they are the best ones.
    #[must_use]
    pub fn extremes(&self, drawer: &Drawer<'_>) -> Option<[Arc<[Request]>; 2]> {
        let is_known = self.hours.iter().all(|h| h.plausible == (h.arrangement, h.arrangement));
        (!is_known).then(|| {
            [
                drawer.draw(|hour| self.arrangement(hour, |h| h.plausible.0), 1),
                drawer.draw(|hour| self.arrangement(hour, |h| h.plausible.1), 1),
            ]
        })
    }

    fn arrangement(&self, hour: usize, of: fn(&Hour) -> usize) -> Arrangement {
        let index = self.hours.get(hour).map_or(1, of);
        ARRANGEMENTS.get(index).copied().unwrap_or(Arrangement::Random)
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
    let all = 0..history.window_count();
    let draws = draws(history);
    let simulated = run_on_all_cores(&ARRANGEMENTS, |arrangement| {
        let draw = |seed| {
            let requests = drawer.draw(|_| *arrangement, seed);
            ran::simulate(history, engine, &requests, objectives, all.clone()).0
        };
        Simulated::new((1..=draws).map(draw).collect())
    });
    let hours = history.window_count().div_ceil((HOUR / WINDOW) as usize);
    Calibration { hours: (0..hours).map(|i| hour(history, &simulated, objectives, i)).collect() }
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
    let Some(best) = all.first_mut() else { return all };
    let fitted = best.fit;
    for factor in [1.0 - FIT_ERROR, 1.0 + FIT_ERROR] {
        let other = calibrated(Fit { engine: fitted.engine.slowed_by(factor), ..fitted });
        if judged(&other) > judged(best) {
            *best = other;
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
    /// Of all draws.
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
    let measured = Shares::new(&history.windows.ttft, windows.clone());
    let distances: Vec<f64> = simulated
        .iter()
        .map(|own| match (Shares::new(&own.sum.ttft, windows.clone()), &measured) {
            (Some(own), Some(measured)) => own.distance(measured),
            _ => f64::INFINITY,
        })
        .collect();
    let best = distances.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1)).map_or(1, |(i, _)| i);
    // Within the error of a sample of this size (Kolmogorov, 95 %) an arrangement fits as well.
    let tolerance = (1.36 / requests.max(1.0).sqrt()).max(0.01);
    let fits = |distance: &f64| *distance <= distances[best] + tolerance;
    let plausible =
        (distances.iter().position(fits).unwrap_or(best), distances.iter().rposition(fits).unwrap_or(best));
    let compared = |of: fn(&Windows) -> &Histogram, objective: f64| {
        let real = Shares::new(of(&history.windows), windows.clone())?;
        let own = Shares::new(of(&simulated[best].sum), windows.clone())?;
        let (low, high) = real.within(objective);
        let (least, most) = own.within(objective);
        Some(Error {
            measured: f64::midpoint(low, high),
            simulated: f64::midpoint(least, most),
            error: own.error_at(&real, objective),
            chance: simulated[best].chance(of, &windows, objective),
        })
    };
    let mut hour = Hour {
        requests,
        arrangement: best,
        plausible,
        ttft: compared(|w| &w.ttft, objectives.ttft),
        itl: compared(|w| &w.request_gap, objectives.itl),
        refusal: None,
    };
    let (missing, held) = (sum(|c| c.missing), sum(|c| c.replicas + c.missing));
    if held > 0.0 && missing / held > MAX_MISSING {
        hour.refusal = Some(Refusal::Gap { missing: missing / held });
    } else if hour.is_busy() {
        let gaps = history.windows.mean_gap(&windows).zip(simulated[best].sum.mean_gap(&windows));
        hour.refusal = refusal(&hour, sum(|c| c.first_tokens), gaps);
    }
    hour
}

fn refusal(hour: &Hour, first_tokens: f64, gaps: Option<(f64, f64)>) -> Option<Refusal> {
    if (hour.requests - first_tokens).abs() > MAX_LEAK * hour.requests + 5.0 {
        return Some(Refusal::Counters { arrived: hour.requests, first_tokens });
    }
    let Some(ttft) = hour.ttft else { return Some(Refusal::NoLatencies) };
    if ttft.error > ttft.tolerance(hour.requests) {
        return Some(Refusal::Ttft(ttft));
    }
    match (hour.itl, gaps) {
        (Some(itl), _) if itl.error > itl.tolerance(hour.requests) => Some(Refusal::Itl(itl)),
        (None, Some((measured, simulated))) => {
            let error = (simulated / measured - 1.0).abs();
            (error > MAX_GAP_ERROR).then_some(Refusal::Gaps(Error {
                measured,
                simulated,
                error,
                chance: 0.0,
            }))
        }
        (None, None) => Some(Refusal::NoLatencies),
        _ => None,
    }
}
