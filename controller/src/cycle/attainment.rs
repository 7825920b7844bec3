//! Measured attainment of latency objectives: per model and objective, latencies within the objective over five minutes,
//! an hour and a day. It starts with the leader's term, so a new leader shows the share of what it has counted itself.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use wva_scaling::snapshot::{Attainment, Lateness, Model, WindowShares};
use wva_scaling::units::Fraction;

use crate::collect::Answer;
use crate::collect::histogram::{Bucket, LatencyCounts, count_in_time};
use crate::collect::signals::{BucketRow, LATENCY_WINDOW, Query};
use wva_scaling::ModelKey;

/// Most periods of a model and objective: a day.
const MAX_PERIODS: usize = 288;
const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);
/// Least part of the model servers' observations that must be at the router too, so that it stands for the model. With
/// prefill and decode pods, two servers observe each request.
const LEAST_AT_ROUTER: f64 = 0.25;
/// Overlap of two periods that timers may cause.
const OVERLAP: Duration = Duration::from_secs(1);

/// Objectives of a model, in seconds, above 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Objectives {
    pub(crate) ttft: Option<f64>,
    pub(crate) itl: Option<f64>,
}

/// Attainment of all models with an objective.
#[derive(Debug, Default)]
pub(crate) struct AttainmentTracker(BTreeMap<ModelKey, ModelAttainment>);

#[derive(Debug, Default)]
struct ModelAttainment {
    ttft: Option<LatencyHistory>,
    itl: Option<LatencyHistory>,
}

/// Latencies of one model against one objective.
#[derive(Debug)]
struct LatencyHistory {
    /// Seconds.
    objective: f64,
    began: Instant,
    /// Counts of the newest answer, and its time.
    newest: Option<(Instant, LatencyCounts)>,
    /// Whether the router observed them.
    is_at_router: bool,
    /// Periods of [`LATENCY_WINDOW`] that do not overlap, oldest first. Those without observations are left out.
    periods: VecDeque<Period>,
    /// All periods, with a half-life, and the time of the last one.
    lateness: Option<(Instant, Lateness)>,
}

/// Counts of a period. Small, because a model has hundreds of them.
#[derive(Clone, Copy, Debug)]
struct Period {
    /// End of the period, in seconds since the history began.
    end: u32,
    observed: f32,
    in_time: f32,
}

impl AttainmentTracker {
    /// Sets the objectives of all models. A changed objective starts a new history; other models are dropped. Returns
    /// whether there is a new history.
    pub(crate) fn set_objectives(
        &mut self,
        objectives: impl IntoIterator<Item = (ModelKey, Objectives)>,
        now: Instant,
    ) -> bool {
        let mut before = std::mem::take(&mut self.0);
        let mut is_new = false;
        let mut history = |old: Option<LatencyHistory>, objective: Option<f64>| {
            let objective = objective?;
            let old = old.filter(|old| old.objective.total_cmp(&objective).is_eq());
            is_new |= old.is_none();
            Some(old.unwrap_or_else(|| LatencyHistory::new(objective, now)))
        };
        for (key, Objectives { ttft, itl }) in objectives {
            let old = before.remove(&key).unwrap_or_default();
            let new = ModelAttainment { ttft: history(old.ttft, ttft), itl: history(old.itl, itl) };
            if new.ttft.is_some() || new.itl.is_some() {
                self.0.insert(key, new);
            }
        }
        is_new
    }

    /// Namespaces of models with an objective for the latency of a query.
    pub(crate) fn namespaces(&self, query: Query) -> impl Iterator<Item = &str> {
        let has_objective = move |model: &ModelAttainment| match query {
            Query::TimeToFirstToken => model.ttft.is_some(),
            _ => model.itl.is_some(),
        };
        let models = self.0.iter().filter(move |(_, model)| has_objective(model));
        models.map(|(key, _)| key.namespace.as_str())
    }

    /// Adds an answer to a latency query made at `now`. A failed query changes nothing, nor does a partial answer: the pods that it lacks may be the late ones.
    pub(crate) fn add(&mut self, now: Instant, Answer { query, scope, rows }: Answer) {
        let Some(rows) = rows.ok().filter(|rows| rows.partial.is_none()) else { return };
        let mut buckets: HashMap<_, [Vec<Bucket>; 2]> = HashMap::new();
        for BucketRow { namespace, model, at_router, bucket } in rows.buckets {
            buckets.entry((namespace, model)).or_default()[usize::from(at_router)].push(bucket);
        }
        for (key, model) in &mut self.0 {
            let history = match query {
                Query::TimeToFirstToken => &mut model.ttft,
                _ => &mut model.itl,
            };
            let Some(history) = history.as_mut().filter(|_| scope.contains(&key.namespace)) else { continue };
            let own = buckets.remove(&(key.namespace.as_str().into(), key.model_id.as_str().into()));
            let [at_servers, at_router] = own.unwrap_or_default();
            let of = |buckets| count_in_time(buckets, history.objective).filter(|c| c.observed > 0.0);
            let (at_servers, at_router) = (of(at_servers), of(at_router));
            // The user waits in the router's queue too. It observes streamed answers only, and not those of other ways.
            let least = at_servers.map_or(0.0, |servers| servers.observed * LEAST_AT_ROUTER);
            let at_router = at_router.filter(|router| router.observed >= least);
            history.is_at_router = at_router.is_some();
            history.add(now, at_router.or(at_servers));
        }
    }

    /// Adds to each model what is measured of it.
    pub(crate) fn complete(&self, models: &mut [Model], now: Instant) {
        for model in models {
            let Some(own) = self.0.get(&model.key()) else { continue };
            let shares = |history: &Option<LatencyHistory>| {
                history.as_ref().map(|h| h.shares(now)).unwrap_or_default()
            };
            let is_at_router = own.ttft.as_ref().is_some_and(|ttft| ttft.is_at_router);
            model.attainment = Attainment { ttft: shares(&own.ttft), itl: shares(&own.itl), is_at_router };
            let lateness = |history: &Option<LatencyHistory>| history.as_ref().and_then(|h| h.lateness(now));
            (model.lateness, model.itl_lateness) = (lateness(&own.ttft), lateness(&own.itl));
        }
    }
}

impl LatencyHistory {
    fn new(objective: f64, began: Instant) -> Self {
        Self { objective, began, newest: None, is_at_router: false, periods: VecDeque::new(), lateness: None }
    }

    /// Adds the counts of [`LATENCY_WINDOW`] until `now`; `None`: nothing was observed.
    fn add(&mut self, now: Instant, counts: Option<LatencyCounts>) {
        self.newest = counts.map(|counts| (now, counts));
        let Some(LatencyCounts { observed, in_time }) = counts else { return };
        // Answers come more often than once in a window. One that overlaps the last period would count requests twice.
        let is_apart = |period: &Period| self.age(period, now) + OVERLAP >= LATENCY_WINDOW;
        if !self.periods.back().is_none_or(is_apart) {
            return;
        }
        let end = now.saturating_duration_since(self.began).as_secs();
        #[expect(clippy::cast_possible_truncation, reason = "f32 has seven digits")]
        let (observed_f32, in_time_f32) = (observed as f32, in_time as f32);
        let end = u32::try_from(end).unwrap_or(u32::MAX);
        self.periods.push_back(Period { end, observed: observed_f32, in_time: in_time_f32 });
        while self.periods.len() > MAX_PERIODS
            || self.periods.front().is_some_and(|p| self.age(p, now) >= DAY)
        {
            self.periods.pop_front();
        }
        let lateness = self.lateness_with(now, observed, observed - in_time);
        self.lateness = Some((now, lateness));
    }

    /// Time since the end of a period.
    fn age(&self, period: &Period, now: Instant) -> Duration {
        now.saturating_duration_since(self.began).saturating_sub(Duration::from_secs(period.end.into()))
    }

    fn shares(&self, now: Instant) -> WindowShares {
        let recent = self.newest.filter(|(at, _)| now.saturating_duration_since(*at) < LATENCY_WINDOW);
        let since = recent.map_or((0.0, 0.0), |(at, counts)| {
            let part = self.part_after_periods(at);
            (part * counts.observed, part * counts.in_time)
        });
        let within = |window: Duration| {
            let periods = self.periods.iter().filter(|period| self.age(period, now) < window);
            let (observed, in_time) = periods.fold(since, |(observed, in_time), period| {
                (observed + f64::from(period.observed), in_time + f64::from(period.in_time))
            });
            share(LatencyCounts { observed, in_time })
        };
        let five_minutes = recent.and_then(|(_, counts)| share(counts));
        WindowShares { five_minutes, hour: within(HOUR), day: within(DAY) }
    }

    /// Part of the window that ends at `at` which no period has, 0 to 1. A leader's first period may hold a few requests
    /// only, and must not stand for the model until the second one ends.
    fn part_after_periods(&self, at: Instant) -> f64 {
        let after = self.periods.back().map_or(LATENCY_WINDOW, |period| self.age(period, at));
        (after.as_secs_f64() / LATENCY_WINDOW.as_secs_f64()).min(1.0)
    }

    fn lateness(&self, now: Instant) -> Option<Lateness> {
        self.lateness.map(|_| self.lateness_with(now, 0.0, 0.0))
    }

    fn lateness_with(&self, now: Instant, observed: f64, late: f64) -> Lateness {
        let (at, before) = self.lateness.unwrap_or((now, Lateness::default()));
        before.after(now.saturating_duration_since(at), observed, late)
    }
}

/// Share within the objective; `None` without observations.
fn share(LatencyCounts { observed, in_time }: LatencyCounts) -> Option<Fraction> {
    (observed > 0.0).then(|| Fraction::try_from((in_time / observed).clamp(0.0, 1.0)).ok()).flatten()
}

#[cfg(test)]
mod tests;
