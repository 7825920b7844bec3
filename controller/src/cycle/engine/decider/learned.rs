//! What the throughput analyzer has learnt, as the statuses show it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use wva_crds::{LearnedCurves, LearnedReserve};
use wva_scaling::snapshot::{ReserveEstimate, SpeedEstimate, ThroughputMemory};
use wva_scaling::units::Amount;
use wva_scaling::{Snapshot, VariantKey};

/// Smallest relative change of a step time that updates a status, and shortest interval.
const MIN_CHANGE: f64 = 0.05;
const MIN_INTERVAL: Duration = Duration::from_mins(5);

/// Curves in the statuses, for a new leader, and when they were set.
#[derive(Debug, Default)]
pub(super) struct ShownCurves(BTreeMap<VariantKey, (LearnedCurves, Instant)>);

impl ShownCurves {
    pub(super) fn update(&mut self, snapshot: &Snapshot, learned: &[ThroughputMemory], now: Instant) {
        let models: BTreeMap<_, _> =
            snapshot.models.iter().map(|m| ((&m.namespace, &m.model_id), m)).collect();
        for of_model in learned {
            let Some(model) = models.get(&(&of_model.namespace, &of_model.model_id)) else { continue };
            let share = model.settings.saturation().throughput.slo_target;
            let reserve = share.and_then(|share| of_model.reserve_estimate(share));
            for variant in &model.variants {
                let Some(known) = of_model.speed_estimate(variant) else { continue };
                let (namespace, name) = (of_model.namespace.clone(), variant.name.clone());
                self.show(VariantKey { namespace, name }, curves(known, reserve), now);
            }
        }
    }

    fn show(&mut self, key: VariantKey, new: LearnedCurves, now: Instant) {
        let is_recent = self.0.get(&key).is_some_and(|(old, at)| {
            now.saturating_duration_since(*at) < MIN_INTERVAL || !has_moved(old, &new)
        });
        if !is_recent {
            self.0.insert(key, (new, now));
        }
    }

    pub(super) fn get(&self, key: &VariantKey) -> Option<LearnedCurves> {
        self.0.get(key).map(|(curves, _)| curves.clone())
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&VariantKey) -> bool) {
        self.0.retain(|key, _| keep(key));
    }
}

fn curves(known: SpeedEstimate, reserve: Option<ReserveEstimate>) -> LearnedCurves {
    #[expect(clippy::cast_possible_truncation, reason = "`as` saturates")]
    let whole = |amount: Amount| amount.get() as i64;
    let times = known.times;
    let reserve = reserve.map(|reserve| LearnedReserve {
        usual: reserve.usual.get(),
        ratio: reserve.ratio.get(),
        steps: whole(reserve.steps),
    });
    LearnedCurves {
        a: times.a.get(),
        b: times.b.get(),
        c: times.c.get(),
        samples: whole(known.samples),
        reserve,
    }
}

fn has_moved(old: &LearnedCurves, new: &LearnedCurves) -> bool {
    let is_far = |(old, new): (f64, f64)| (new - old).abs() > MIN_CHANGE * old.abs();
    let reserve =
        |of: &LearnedCurves| of.reserve.as_ref().map_or([0.0; 2], |known| [known.usual, known.ratio]);
    let reserves = reserve(old).into_iter().zip(reserve(new));
    [(old.a, new.a), (old.b, new.b), (old.c, new.c)].into_iter().chain(reserves).any(is_far)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_change_only_with_a_large_move_and_not_often() {
        let key = || VariantKey { namespace: "ns".to_owned(), name: "a".to_owned() };
        let curves = |a: f64| LearnedCurves { a, b: 0.000_2, c: 0.000_1, samples: 9, reserve: None };
        let mut shown = ShownCurves::default();
        let began = Instant::now();
        let mut at = |minute: u64, a: f64| {
            shown.show(key(), curves(a), began + Duration::from_mins(minute));
            shown.get(&key()).unwrap().a
        };
        let seen = [at(0, 0.02), at(1, 0.03), at(6, 0.0209), at(7, 0.03), at(8, 0.04), at(12, 0.04)];
        assert_eq!(format!("{seen:?}"), "[0.02, 0.02, 0.02, 0.03, 0.03, 0.04]");
    }
}
