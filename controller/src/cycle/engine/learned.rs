//! The memory of the throughput analyzer between two cycles: the leader holds it, and its ages grow.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use wva_crds::LearnedCurves;
use wva_scaling::snapshot::{AnalyzerName, Config, Known, Learned};
use wva_scaling::{Snapshot, VariantKey};

/// Statuses say anew what was learnt where one of the times moved by more than this share, and not more often than this.
const MOVED: f64 = 0.05;
const PAUSE: Duration = Duration::from_mins(5);

/// What the leader keeps of it.
#[derive(Debug, Default)]
pub(super) struct LearnedCache {
    /// As of the last cycle.
    learned: Vec<Learned>,
    /// When that was.
    at: Option<Instant>,
    /// What the statuses say of it, so that a new leader starts from that, and since when.
    told: BTreeMap<VariantKey, (LearnedCurves, Instant)>,
}

impl LearnedCache {
    /// The memory, aged to this moment.
    pub(super) fn aged(&self, now: Instant) -> Vec<Learned> {
        let elapsed = self.at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.learned.iter().map(|learned| learned.clone().after(elapsed)).collect()
    }

    /// Takes in what a cycle learnt from a snapshot.
    pub(super) fn take_in(&mut self, snapshot: &Snapshot, learned: Vec<Learned>, now: Instant) {
        let models: BTreeMap<_, _> =
            snapshot.models.iter().map(|m| ((&m.namespace, &m.model_id), &m.variants)).collect();
        for of_model in &learned {
            let variants = models.get(&(&of_model.namespace, &of_model.model_id));
            for variant in variants.into_iter().copied().flatten() {
                let Some(known) = of_model.known(variant) else { continue };
                let (namespace, name) = (of_model.namespace.clone(), variant.name.clone());
                self.tell(VariantKey { namespace, name }, curves(known), now);
            }
        }
        (self.learned, self.at) = (learned, Some(now));
    }

    fn tell(&mut self, key: VariantKey, new: LearnedCurves, now: Instant) {
        let stands = self
            .told
            .get(&key)
            .is_some_and(|(old, at)| now.saturating_duration_since(*at) < PAUSE || !moved(old, &new));
        if !stands {
            self.told.insert(key, (new, now));
        }
    }

    /// What a status says.
    pub(super) fn told(&self, key: &VariantKey) -> Option<LearnedCurves> {
        self.told.get(key).map(|(curves, _)| curves.clone())
    }

    /// Forgets variants that are gone.
    pub(super) fn retain(&mut self, keep: impl Fn(&VariantKey) -> bool) {
        self.told.retain(|key, _| keep(key));
    }
}

fn curves(known: Known) -> LearnedCurves {
    #[expect(clippy::cast_possible_truncation, reason = "`as` saturates")]
    let samples = known.samples.get() as i64;
    let times = known.times;
    LearnedCurves { a: times.a.get(), b: times.b.get(), c: times.c.get(), samples }
}

fn moved(old: &LearnedCurves, new: &LearnedCurves) -> bool {
    let far = |(old, new): (f64, f64)| (new - old).abs() > MOVED * old.abs();
    [(old.a, new.a), (old.b, new.b), (old.c, new.c)].into_iter().any(far)
}

/// Whether any model is decided by what arrives, or its targets by that are shown.
pub(super) fn reads_work(config: &Config) -> bool {
    let asks = |name: Option<AnalyzerName>| name == Some(AnalyzerName::Throughput);
    config.saturation.values().any(|entry| asks(entry.analyzer_name) || asks(entry.shadow_analyzer))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn counters_are_asked_for_where_arrivals_decide_or_are_only_shown() {
        let asked = |entry: serde_json::Value| {
            let entry = serde_json::from_value(entry).unwrap();
            reads_work(&Config { saturation: [("default".to_owned(), entry)].into(), ..Config::default() })
        };
        assert!(asked(json!({"analyzerName": "throughput"})));
        assert!(asked(json!({"analyzerName": "", "shadowAnalyzer": "throughput"})));
        assert!(!asked(json!({"analyzerName": "", "shadowAnalyzer": "saturation"})));
    }

    #[test]
    fn a_status_is_written_anew_only_where_something_moved_and_not_often() {
        let key = || VariantKey { namespace: "ns".to_owned(), name: "a".to_owned() };
        let curves = |a: f64| LearnedCurves { a, b: 0.000_2, c: 0.000_1, samples: 9 };
        let mut kept = LearnedCache::default();
        let began = Instant::now();
        let mut at = |minute: u64, a: f64| {
            kept.tell(key(), curves(a), began + Duration::from_mins(minute));
            kept.told(&key()).unwrap().a
        };
        let seen = [at(0, 0.02), at(1, 0.03), at(6, 0.0209), at(7, 0.03), at(8, 0.04), at(12, 0.04)];
        assert_eq!(format!("{seen:?}"), "[0.02, 0.02, 0.02, 0.03, 0.03, 0.04]");
    }
}
