//! Measured attainment of latency objectives: per model and objective, latencies within the objective over five minutes,
//! an hour and a day. It starts with the leader's term, so a new leader shows the share of what it has counted itself.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::Time;
use crate::decision::ModelKey;
use crate::snapshot::{Attainment, Lateness, Model, WindowShares};
use crate::units::Fraction;

/// Window of the latencies that are counted at once. Over a shorter one, Prometheus has too few samples if scrapes are a
/// minute apart.
pub const LATENCY_WINDOW: Duration = Duration::from_mins(5);
/// Most periods of a model and objective: a day.
const MAX_PERIODS: usize = 288;
const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);
/// Least part of the model servers' observations that must be at the router too, so that it stands for the model. With
/// prefill and decode pods, two servers observe each request.
const LEAST_AT_ROUTER: f64 = 0.25;
/// Overlap of two periods that timers may cause.
const OVERLAP: Duration = Duration::from_secs(1);

/// A latency that may have an objective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Latency {
    /// Time to first token.
    FirstToken,
    /// Time between two tokens.
    TokenGap,
}

/// Objectives of a model, in seconds, above 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Objectives {
    /// Time to first token.
    pub ttft: Option<f64>,
    /// Time between two tokens.
    pub itl: Option<f64>,
}

/// Observed latencies. Counts are fractional, because Prometheus extrapolates.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LatencyCounts {
    /// All latencies.
    pub observed: f64,
    /// Latencies within the objective.
    pub in_time: f64,
}

/// Latencies of a model in [`LATENCY_WINDOW`]. `None`: unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WindowCounts {
    /// Latencies that the model servers observed.
    pub at_servers: Option<LatencyCounts>,
    /// Latencies that the router observed.
    pub at_router: Option<LatencyCounts>,
}

/// Attainment of all models with an objective.
#[derive(Clone, Debug)]
pub struct AttainmentMemory<T>(BTreeMap<ModelKey, ModelAttainment<T>>);

impl<T> Default for AttainmentMemory<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

#[derive(Clone, Debug)]
struct ModelAttainment<T> {
    ttft: Option<LatencyHistory<T>>,
    itl: Option<LatencyHistory<T>>,
}

impl<T> ModelAttainment<T> {
    fn history(&self, latency: Latency) -> Option<&LatencyHistory<T>> {
        match latency {
            Latency::FirstToken => self.ttft.as_ref(),
            Latency::TokenGap => self.itl.as_ref(),
        }
    }
}

/// Latencies of one model against one objective.
#[derive(Clone, Debug)]
struct LatencyHistory<T> {
    /// Seconds.
    objective: f64,
    began: T,
    /// Counts of the newest answer, and its time.
    newest: Option<(T, LatencyCounts)>,
    /// Whether the router observed them.
    is_at_router: bool,
    /// Periods of [`LATENCY_WINDOW`] that do not overlap, oldest first. Those without observations are left out.
    periods: VecDeque<Period>,
    /// All periods, with a half-life, and the time of the last one.
    lateness: Option<(T, Lateness)>,
}

/// Counts of a period. Small, because a model has hundreds of them.
#[derive(Clone, Copy, Debug)]
struct Period {
    /// End of the period, in seconds since the history began.
    end: u32,
    observed: f32,
    in_time: f32,
}

impl<T: Time> AttainmentMemory<T> {
    /// Sets the objectives of all models. A changed objective starts a new history; other models are dropped. Returns
    /// whether there is a new history.
    pub fn set_objectives(
        &mut self,
        objectives: impl IntoIterator<Item = (ModelKey, Objectives)>,
        now: T,
    ) -> bool {
        let mut before = std::mem::take(&mut self.0);
        let mut is_new = false;
        let mut history = |old: Option<LatencyHistory<T>>, objective: Option<f64>| {
            let objective = objective?;
            let old = old.filter(|old| old.objective.total_cmp(&objective).is_eq());
            is_new |= old.is_none();
            Some(old.unwrap_or_else(|| LatencyHistory::new(objective, now)))
        };
        for (key, Objectives { ttft, itl }) in objectives {
            let (old_ttft, old_itl) = before.remove(&key).map_or((None, None), |old| (old.ttft, old.itl));
            let new = ModelAttainment { ttft: history(old_ttft, ttft), itl: history(old_itl, itl) };
            if new.ttft.is_some() || new.itl.is_some() {
                self.0.insert(key, new);
            }
        }
        is_new
    }

    /// Namespaces of models with an objective for a latency.
    pub fn namespaces(&self, latency: Latency) -> impl Iterator<Item = &str> {
        let models = self.0.iter().filter(move |(_, model)| model.history(latency).is_some());
        models.map(|(key, _)| key.namespace.as_str())
    }

    /// Adds the counts of the window that ends at `now`. `counts_of`: those of a model against its objective in seconds;
    /// `None` changes nothing.
    pub fn add(
        &mut self,
        latency: Latency,
        now: T,
        mut counts_of: impl FnMut(&ModelKey, f64) -> Option<WindowCounts>,
    ) {
        for (key, model) in &mut self.0 {
            let history = match latency {
                Latency::FirstToken => &mut model.ttft,
                Latency::TokenGap => &mut model.itl,
            };
            let Some(history) = history else { continue };
            let Some(counts) = counts_of(key, history.objective) else { continue };
            let is_observed = |counts: &LatencyCounts| counts.observed > 0.0;
            let at_servers = counts.at_servers.filter(is_observed);
            // The user waits in the router's queue too. It observes streamed answers only, and not those of other ways.
            let least = at_servers.map_or(0.0, |servers| servers.observed * LEAST_AT_ROUTER);
            let at_router = counts.at_router.filter(|c| is_observed(c) && c.observed >= least);
            history.is_at_router = at_router.is_some();
            history.add(now, at_router.or(at_servers));
        }
    }

    /// Adds to each model what is measured of it.
    pub fn complete(&self, models: &mut [Model], now: T) {
        for model in models {
            let Some(own) = self.0.get(&model.key()) else { continue };
            let shares = |history: &Option<LatencyHistory<T>>| {
                history.as_ref().map(|h| h.shares(now)).unwrap_or_default()
            };
            let is_at_router = own.ttft.as_ref().is_some_and(|ttft| ttft.is_at_router);
            model.attainment = Attainment { ttft: shares(&own.ttft), itl: shares(&own.itl), is_at_router };
            let lateness =
                |history: &Option<LatencyHistory<T>>| history.as_ref().and_then(|h| h.lateness(now));
            (model.lateness, model.itl_lateness) = (lateness(&own.ttft), lateness(&own.itl));
        }
    }
}

impl<T: Time> LatencyHistory<T> {
    fn new(objective: f64, began: T) -> Self {
        Self { objective, began, newest: None, is_at_router: false, periods: VecDeque::new(), lateness: None }
    }

    /// Adds the counts of [`LATENCY_WINDOW`] until `now`; `None`: nothing was observed.
    fn add(&mut self, now: T, counts: Option<LatencyCounts>) {
        self.newest = counts.map(|counts| (now, counts));
        let Some(LatencyCounts { observed, in_time }) = counts else { return };
        // Answers come more often than once in a window. One that overlaps the last period would count requests twice.
        let is_apart = |period: &Period| self.age(period, now) + OVERLAP >= LATENCY_WINDOW;
        if !self.periods.back().is_none_or(is_apart) {
            return;
        }
        let end = now.since(self.began).as_secs();
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
    fn age(&self, period: &Period, now: T) -> Duration {
        now.since(self.began).saturating_sub(Duration::from_secs(period.end.into()))
    }

    fn shares(&self, now: T) -> WindowShares {
        let recent = self.newest.filter(|(at, _)| now.since(*at) < LATENCY_WINDOW);
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
    fn part_after_periods(&self, at: T) -> f64 {
        let after = self.periods.back().map_or(LATENCY_WINDOW, |period| self.age(period, at));
        (after.as_secs_f64() / LATENCY_WINDOW.as_secs_f64()).min(1.0)
    }

    fn lateness(&self, now: T) -> Option<Lateness> {
        self.lateness.map(|_| self.lateness_with(now, 0.0, 0.0))
    }

    fn lateness_with(&self, now: T, observed: f64, late: f64) -> Lateness {
        let (at, before) = self.lateness.unwrap_or((now, Lateness::default()));
        before.after(now.since(at), observed, late)
    }
}

/// Share within the objective; `None` without observations.
fn share(LatencyCounts { observed, in_time }: LatencyCounts) -> Option<Fraction> {
    (observed > 0.0).then(|| Fraction::try_from((in_time / observed).clamp(0.0, 1.0)).ok()).flatten()
}

#[cfg(test)]
mod tests;
