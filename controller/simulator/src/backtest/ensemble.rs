//! Reconstructions that the data does not tell apart: other draws of the requests, other arrangements, with which as many or
//! more and as many or fewer first tokens are late as were measured, and engines that fit as well. A verdict on a policy has
//! to hold in all of them.

use std::sync::Arc;

use super::calibrate::{Calibrated, calibrate};
use super::fit::FIT_ERROR;
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
        Self { members: members(drawer, best, others), coarse: coarse(history, best, objectives) }
    }
}

fn seeds() -> impl Iterator<Item = u64> {
    1..=DRAWS as u64
}

fn members(drawer: &Drawer<'_>, best: &Calibrated, others: &[Calibrated]) -> Vec<Member> {
    let Calibrated { fit, calibration } = best;
    let draw = |seed: u64| Member { engine: fit.engine, requests: calibration.requests(drawer, seed), seed };
    let mut members: Vec<Member> = seeds().map(draw).collect();
    let mut add = |engine: Engine, requests: Arc<[Request]>| {
        let seed = members.len() as u64 + 1;
        members.push(Member { engine, requests, seed });
    };
    for requests in calibration.others(drawer) {
        add(fit.engine, requests);
    }
    for (seed, other) in (1 + DRAWS as u64..).zip(others) {
        add(other.fit.engine, other.calibration.requests(drawer, seed));
    }
    let requests = calibration.requests(drawer, 1);
    for factor in [1.0 - FIT_ERROR, 1.0 + FIT_ERROR] {
        add(fit.engine.slowed_by(factor), requests.clone());
    }
    members
}

fn coarse(history: &History, best: &Calibrated, objectives: Objectives) -> Vec<Member> {
    let Some(coarse) = history.coarsened() else { return Vec::new() };
    let drawer = Drawer::new(&coarse);
    let engine = best.fit.engine;
    let calibration = calibrate(&coarse, &drawer, engine, objectives);
    seeds().map(|seed| Member { engine, requests: calibration.requests(&drawer, seed), seed }).collect()
}
