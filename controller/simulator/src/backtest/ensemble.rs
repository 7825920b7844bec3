//! Reconstructions that the data does not tell apart: other draws of the requests, other arrangements, with which as many or
//! more and as many or fewer first tokens are late as were measured, and engines that fit as well. A verdict on a policy has
//! to hold in all of them.

use std::sync::Arc;

use super::by_cell::Simulator;
use super::calibrate::{Calibrated, calibrate};
use super::history::History;
use super::requests::Drawer;
use crate::fleet::engine::Engine;
use crate::fleet::server::Request;
use crate::measure::Objectives;

/// A reconstruction.
#[derive(Clone, Debug)]
pub struct Member {
    /// Engine of the reconstruction.
    pub engine: Engine,
    /// Requests of the reconstruction.
    pub requests: Arc<[Request]>,
    /// Seed of the times that replicas take to start.
    pub seed: u64,
    /// Whether its engine shows the measured latencies, by hour.
    pub fitted_hours: Vec<bool>,
}

/// All reconstructions of a history.
#[derive(Clone, Debug, Default)]
pub struct Ensemble {
    /// First the best; the first [`DRAWS`] differ in the draw only.
    pub members: Vec<Member>,
    /// [`DRAWS`] draws from half of the scrapes. They show what is lost between scrapes, and are no members.
    pub coarse: Vec<Member>,
}

/// Draws with the best engine and arrangements.
pub const DRAWS: usize = 3;

impl Ensemble {
    /// Empty without a fit.
    #[must_use]
    pub fn new(
        history: &History,
        drawer: &Drawer<'_>,
        calibrated: &[Calibrated],
        objectives: Objectives,
    ) -> Self {
        let Some((best, others)) = calibrated.split_first() else { return Self::default() };
        let mut best = best.clone();
        let simulator = Simulator { drawer, engine: best.fit.engine, objectives };
        best.calibration.arrange_cells(&simulator, DRAWS as u64);
        Self { members: members(drawer, &best, others), coarse: coarse(history, &best, objectives) }
    }
}

fn seeds() -> impl Iterator<Item = u64> {
    1..=DRAWS as u64
}

fn members(drawer: &Drawer<'_>, best: &Calibrated, others: &[Calibrated]) -> Vec<Member> {
    let mut members: Vec<Member> =
        seeds().map(|seed| best.member(best.calibration.requests(drawer, seed), seed)).collect();
    let of_others = others.iter().map(|other| (other, other.calibration.requests(drawer, 1)));
    let arranged = best.calibration.others(drawer).into_iter().map(|requests| (best, requests));
    for (seed, (calibrated, requests)) in (1 + DRAWS as u64..).zip(arranged.chain(of_others)) {
        members.push(calibrated.member(requests, seed));
    }
    members
}

impl Calibrated {
    fn member(&self, requests: Arc<[Request]>, seed: u64) -> Member {
        let fitted_hours = self.calibration.hours.iter().map(|hour| hour.refusal.is_none()).collect();
        Member { engine: self.fit.engine, requests, seed, fitted_hours }
    }
}

fn coarse(history: &History, best: &Calibrated, objectives: Objectives) -> Vec<Member> {
    let Some(coarse) = history.coarsened() else { return Vec::new() };
    let drawer = Drawer::new(&coarse);
    let engine = best.fit.engine;
    let calibration = calibrate(&coarse, &drawer, engine, objectives);
    let mut own = Calibrated { fit: best.fit, calibration };
    let simulator = Simulator { drawer: &drawer, engine, objectives };
    own.calibration.arrange_cells(&simulator, DRAWS as u64);
    seeds().map(|seed| own.member(own.calibration.requests(&drawer, seed), seed)).collect()
}
