//! Reconstructions that the data does not tell apart: other draws of the requests, arrangements that fit as well, and
//! engines that fit as well. A verdict on a policy has to hold in all of them.

use std::sync::Arc;

use super::calibrate::Calibrated;
use super::fit::FIT_ERROR;
use super::requests::Drawer;
use crate::fleet::engine::Engine;
use crate::fleet::server::Request;

/// A reconstruction.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its engine.
    pub engine: Engine,
    /// Its requests.
    pub requests: Arc<[Request]>,
    /// Seed of the times that replicas take to start.
    pub seed: u64,
}

/// Other draws with the best engine and arrangements.
const DRAWS: u64 = 2;

/// The members, first the best. Empty without a fit.
#[must_use]
pub fn members(drawer: &Drawer<'_>, calibrated: &[Calibrated]) -> Vec<Member> {
    let Some((Calibrated { fit: best, calibration }, others)) = calibrated.split_first() else {
        return Vec::new();
    };
    let draw = |seed: u64| Member { engine: best.engine, requests: calibration.requests(drawer, seed), seed };
    let mut members: Vec<Member> = (1..=1 + DRAWS).map(draw).collect();
    let mut add = |engine: Engine, requests: Arc<[Request]>| {
        let seed = members.len() as u64 + 1;
        members.push(Member { engine, requests, seed });
    };
    for requests in calibration.extremes(drawer).into_iter().flatten() {
        add(best.engine, requests);
    }
    for (seed, other) in (2 + DRAWS..).zip(others) {
        add(other.fit.engine, other.calibration.requests(drawer, seed));
    }
    let requests = calibration.requests(drawer, 1);
    for factor in [1.0 - FIT_ERROR, 1.0 + FIT_ERROR] {
        add(best.engine.slowed_by(factor), requests.clone());
    }
    members
}
