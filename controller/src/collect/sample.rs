//! What is known of every pod's load: the newest value of each signal and when it was observed. A signal that the
//! newest answer lacks, or whose query failed, keeps its last value and ages. Owned and written by the engine alone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::prometheus::Series;
use super::signals::Signal;

/// A series belongs to a pod and, where vLLM says so, to a model.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PodModel {
    /// Namespace of the pod.
    pub namespace: String,
    /// Pod name as the series has it; it may carry a rank suffix.
    pub pod: String,
    /// `model_name` of the series; empty where it has none.
    pub model_name: String,
}

/// A value with the time it was observed at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Observed {
    /// The value; finite.
    pub value: f64,
    /// When it was scraped, by the clock of this process.
    pub at: Instant,
}

/// The load of one pod and model.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PodLoad {
    /// Share of the KV cache in use.
    pub kv: Option<Observed>,
    /// Requests waiting.
    pub queue: Option<Observed>,
    /// Requests running.
    pub running: Option<Observed>,
}

/// Age given to a value whose own age was not reported: `max_over_time(..[1m])` can be that old.
const WINDOW: Duration = Duration::from_mins(1);

/// What is known of all pods.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    loads: BTreeMap<PodModel, PodLoad>,
    /// Why the newest attempt gave nothing for some signal; cleared by one in which all were answered.
    last_error: Option<String>,
    /// Signals that the newest attempt was given an answer for, be it an empty one.
    answered: BTreeSet<Signal>,
}

impl Samples {
    /// Takes in the answers of one round of queries, made at `now`. Failed queries change no value.
    pub(crate) fn take_in(&mut self, now: Instant, answers: super::Answers) {
        let mut vectors = BTreeMap::new();
        self.last_error = None;
        self.answered.clear();
        for (signal, answer) in answers {
            match answer {
                Ok(series) => {
                    self.answered.insert(signal);
                    vectors.insert(signal, by_pod(series));
                }
                Err(e) => self.last_error = Some(e),
            }
        }
        let age = |signal: Signal, key: &PodModel| -> Option<Duration> {
            let seconds: f64 = *vectors.get(&signal)?.get(key)?;
            Duration::try_from_secs_f64(seconds.max(0.0)).ok()
        };
        for (signal, own_age) in [
            (Signal::KvUsage, Some(Signal::KvAge)),
            (Signal::Queue, Some(Signal::QueueAge)),
            (Signal::Running, None),
        ] {
            for (key, value) in vectors.get(&signal).into_iter().flatten() {
                let slot = self.loads.entry(key.clone()).or_default().slot(signal);
                let reported = own_age.map_or(Some(Duration::ZERO), |s| age(s, key));
                // Nobody says how old it is: as old as what was seen before, for the series may have ended, but not
                // older than the window, or it would not be in it.
                let oldest = now.checked_sub(WINDOW).unwrap_or(now);
                let at = match (reported, &slot) {
                    (Some(age), _) => now.checked_sub(age).unwrap_or(now),
                    (None, Some(before)) => before.at.max(oldest),
                    (None, None) => oldest,
                };
                *slot = Some(Observed { value: *value, at });
            }
        }
    }

    /// Why the newest round lacks a signal.
    #[must_use]
    pub(crate) fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    /// Whether the newest attempt was given an answer for a signal. A pod that lacks a signal then has none; otherwise
    /// nobody knows.
    #[must_use]
    pub(crate) fn answered(&self, signal: Signal) -> bool {
        self.answered.contains(&signal)
    }

    /// All that is known, in order of namespace, pod and model.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&PodModel, &PodLoad)> {
        self.loads.iter()
    }

    /// Drops what belongs to pods that no longer exist.
    pub(crate) fn retain(&mut self, keep: impl Fn(&PodModel, &PodLoad) -> bool) {
        self.loads.retain(|key, load| keep(key, load));
    }
}

impl PodLoad {
    /// When the youngest of its values was observed.
    #[must_use]
    pub(crate) fn youngest(&self) -> Option<Instant> {
        [self.kv, self.queue, self.running].into_iter().flatten().map(|o| o.at).max()
    }

    /// Of two servers in one pod (KServe tells its ranks apart by a suffix) the one under more load counts, and a
    /// value that does not count at all never hides one that does.
    #[must_use]
    pub(crate) fn worse(self, other: Self, oldest: Instant) -> Self {
        let worse = |a: Option<Observed>, b: Option<Observed>| match (a, b) {
            (Some(a), Some(b)) => Some(match (a.at >= oldest, b.at >= oldest) {
                (true, false) => a,
                (false, true) => b,
                _ if a.value >= b.value => a,
                _ => b,
            }),
            (a, b) => a.or(b),
        };
        let running = match (self.running, other.running) {
            (Some(a), Some(b)) => Some(Observed { value: a.value + b.value, at: a.at.min(b.at) }),
            (a, b) => a.or(b),
        };
        Self { kv: worse(self.kv, other.kv), queue: worse(self.queue, other.queue), running }
    }

    fn slot(&mut self, signal: Signal) -> &mut Option<Observed> {
        match signal {
            Signal::KvUsage | Signal::KvAge => &mut self.kv,
            Signal::Queue | Signal::QueueAge => &mut self.queue,
            Signal::Running => &mut self.running,
        }
    }
}

/// Values by pod. NaN and infinities are absent values; a series without a pod belongs to nobody.
fn by_pod(series: Vec<Series>) -> BTreeMap<PodModel, f64> {
    let key = |mut s: Series| {
        let mut label = |name: &str| s.labels.remove(name).filter(|v| !v.is_empty());
        let pod = label("pod").or_else(|| label("pod_name"))?;
        let key = PodModel {
            namespace: label("namespace")?,
            pod,
            model_name: label("model_name").unwrap_or_default(),
        };
        s.value.is_finite().then_some((key, s.value))
    };
    series.into_iter().filter_map(key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(pod: &str, value: f64) -> Series {
        let labels = [("namespace", "ns"), ("pod", pod), ("model_name", "m")];
        Series { labels: labels.map(|(k, v)| (k.to_owned(), v.to_owned())).into(), value }
    }

    fn only(samples: &Samples) -> PodLoad {
        samples.iter().next().map(|(_, l)| *l).unwrap_or_default()
    }

    #[test]
    fn a_failed_query_keeps_the_last_value_and_lets_it_age() {
        let mut s = Samples::default();
        let t0 = Instant::now();
        s.take_in(
            t0,
            vec![(Signal::KvUsage, Ok(vec![series("a", 0.7)])), (Signal::KvAge, Ok(vec![series("a", 5.0)]))],
        );
        let t1 = t0 + Duration::from_secs(30);
        s.take_in(t1, vec![(Signal::KvUsage, Err("down".into())), (Signal::KvAge, Err("down".into()))]);
        let kv = only(&s).kv.unwrap();
        assert!((kv.value - 0.7).abs() < 1e-9);
        assert_eq!(t1 - kv.at, Duration::from_secs(35));
        assert_eq!(s.last_error(), Some("down"));
    }

    #[test]
    fn a_window_over_an_ended_series_does_not_make_it_young_again() {
        let mut s = Samples::default();
        let t0 = Instant::now();
        s.take_in(
            t0,
            vec![(Signal::KvUsage, Ok(vec![series("a", 0.7)])), (Signal::KvAge, Ok(vec![series("a", 1.0)]))],
        );
        let t1 = t0 + Duration::from_secs(30);
        s.take_in(t1, vec![(Signal::KvUsage, Ok(vec![series("a", 0.7)])), (Signal::KvAge, Ok(vec![]))]);
        assert_eq!(t1 - only(&s).kv.unwrap().at, Duration::from_secs(31));
    }

    #[test]
    fn a_value_whose_age_nobody_says_is_never_older_than_its_window() {
        let mut s = Samples::default();
        let t0 = Instant::now();
        let answers = |age: Result<Vec<Series>, String>| {
            vec![(Signal::KvUsage, Ok(vec![series("a", 0.7)])), (Signal::KvAge, age)]
        };
        s.take_in(t0, answers(Ok(vec![series("a", 1.0)])));
        // The query for ages alone fails, for an hour.
        let later = t0 + Duration::from_hours(1);
        s.take_in(later, answers(Err("too many samples".into())));
        assert_eq!(later - only(&s).kv.unwrap().at, WINDOW);
    }

    #[test]
    fn nan_infinity_and_a_series_without_a_pod_are_absent() {
        let mut s = Samples::default();
        let nameless = Series { labels: BTreeMap::new(), value: 1.0 };
        s.take_in(
            Instant::now(),
            vec![(Signal::KvUsage, Ok(vec![series("a", f64::NAN), series("b", f64::INFINITY), nameless]))],
        );
        assert_eq!(s.iter().count(), 0);
    }

    #[test]
    fn the_older_pod_label_is_read() {
        let mut s = Samples::default();
        let labels =
            [("namespace", "ns"), ("pod_name", "a")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        s.take_in(Instant::now(), vec![(Signal::Queue, Ok(vec![Series { labels, value: 3.0 }]))]);
        assert!((only(&s).queue.unwrap().value - 3.0).abs() < 1e-9);
    }
}
