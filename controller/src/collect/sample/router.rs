//! Figures of routers from Prometheus, besides their queues. For people: no rule reads them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use wva_scaling::snapshot::{MetricsAge, RouterLoad};
use wva_scaling::units::Amount;

use super::TimedValue;
use crate::collect::signals::{QueueRow, RouterFigure, RouterRow};

type NamespacedName = (Arc<str>, Arc<str>);

#[derive(Debug, Default)]
pub(super) struct RouterFigures {
    /// By namespace, and name of the model, pod or InferencePool.
    values: BTreeMap<(RouterFigure, NamespacedName), TimedValue>,
    /// InferencePool of each model with a queue, by namespace and model.
    pools: BTreeMap<NamespacedName, TimedValue<Arc<str>>>,
}

impl RouterFigures {
    pub(super) fn add(&mut self, now: Instant, rows: Vec<RouterRow>, queues: &[QueueRow]) {
        // Several names that clients use are one model. Of the two names of a metric, the greater value counts.
        let mut sums: BTreeMap<_, [f64; 2]> = BTreeMap::new();
        for RouterRow { figure, namespace, name, is_later_name, value } in rows {
            sums.entry((figure, (namespace, name))).or_default()[usize::from(is_later_name)] += value;
        }
        let newest = |[earlier, later]: [f64; 2]| TimedValue { value: earlier.max(later), at: now };
        self.values.extend(sums.into_iter().map(|(key, sums)| (key, newest(sums))));
        for QueueRow { namespace, model, pool, .. } in queues {
            let Some(pool) = pool else { continue };
            let pool = TimedValue { value: pool.clone(), at: now };
            self.pools.insert((namespace.clone(), model.clone()), pool);
        }
    }

    /// Figures of a model and its pods; `None` if there is none, or all are stale.
    pub(super) fn of_model<'a>(
        &self,
        (namespace, model): (&str, &str),
        pods: impl Iterator<Item = &'a str>,
        ages: &MetricsAge,
        now: Instant,
    ) -> Option<RouterLoad> {
        if self.values.is_empty() {
            return None;
        }
        let namespace: Arc<str> = namespace.into();
        let is_recent = |at: Instant| now.saturating_duration_since(at) <= ages.stale.get();
        let value = |figure, name: Arc<str>| {
            let value = self.values.get(&(figure, (namespace.clone(), name)))?;
            Amount::try_from(value.value).ok().filter(|_| is_recent(value.at))
        };
        let pool = self.pools.get(&(namespace.clone(), model.into())).filter(|pool| is_recent(pool.at));
        let tokens = pods.filter_map(|pod| self.inflight_tokens(&namespace, pod, is_recent));
        let load = RouterLoad {
            running: value(RouterFigure::Running, model.into()),
            inflight_tokens: tokens.reduce(|a, b| a + b).and_then(|sum| Amount::try_from(sum).ok()),
            saturation: pool.and_then(|pool| value(RouterFigure::Saturation, pool.value.clone())),
        };
        Some(load).filter(|load| *load != RouterLoad::default())
    }

    /// Sum over the data-parallel ranks of a pod.
    fn inflight_tokens(
        &self,
        namespace: &Arc<str>,
        pod: &str,
        is_recent: impl Fn(Instant) -> bool,
    ) -> Option<f64> {
        const FIGURE: RouterFigure = RouterFigure::InflightTokens;
        let first = (FIGURE, (namespace.clone(), Arc::from(pod)));
        let of_pod = self.values.range(first..).take_while(|((figure, (own, name)), _)| {
            *figure == FIGURE && own == namespace && name.starts_with(pod)
        });
        let ranks = of_pod.filter(|((_, (_, name)), value)| is_rank_of(name, pod) && is_recent(value.at));
        ranks.map(|(_, value)| value.value).reduce(|a, b| a + b)
    }

    pub(super) fn remove_expired(&mut self, now: Instant, after: Duration) {
        self.values.retain(|_, value| value.age(now) <= after);
        self.pools.retain(|_, pool| pool.age(now) <= after);
    }
}

/// Whether an endpoint is a pod, or one of its data-parallel ranks.
fn is_rank_of(endpoint: &str, pod: &str) -> bool {
    let rank = |rest: &str| rest.strip_prefix("-rank-").map(|rank| rank.bytes().all(|b| b.is_ascii_digit()));
    endpoint.strip_prefix(pod).is_some_and(|rest| rest.is_empty() || rank(rest) == Some(true))
}
