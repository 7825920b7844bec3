//! Polls endpoint pickers. The leader reads the queues of models at zero twice a second, and checks flow control of
//! models that may scale to zero less often.

mod debounce;
mod endpoint;
mod fetch;
mod page;
mod queues;
mod refused;
mod schedule;
mod selection;
mod token;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::Client;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::{CancellationToken, DropGuard};
use wva_scaling::snapshot::WakeObstacle;
use wva_scaling::{Decision, VariantKey};

#[cfg(test)]
use wva_runtime::Availability;
use wva_runtime::OptionalCache;

use crate::collect::page::PageBudget;
use crate::model::keys::{ModelKey, WorkloadKey};
use crate::model::published::{PublishedVariant, Reader};
use crate::observe::pools::{InferencePools, Pool};
use crate::observe::variants::{self, ManagedVariant, Ownership};
use crate::observe::watches::Watches;
use debounce::WakeDebounce;
use endpoint::{Answers, Endpoint};
use fetch::PageFetcher;
use selection::{PickerQueries, PickerQuery, ServingState, select_pickers};

pub(crate) use page::OVERFLOW;
pub(crate) use queues::Queues;
pub use token::PickerToken;

/// A waiting request should lead to a scale-up within a second.
const PERIOD: Duration = Duration::from_millis(500);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PickerKey {
    namespace: String,
    service: String,
}

/// InferencePools and the queues at their pickers.
#[derive(Clone)]
pub struct Pickers {
    pools: OptionalCache<Pool>,
    queues: watch::Receiver<Arc<Queues>>,
}

impl Pickers {
    pub(crate) fn queues(&self) -> watch::Receiver<Arc<Queues>> {
        self.queues.clone()
    }

    /// Whether a picker queues requests of this workload.
    pub(crate) fn has_picker(&self, watches: &Watches, workload: &WorkloadKey) -> bool {
        let pools = &self.pools.cache;
        !pools.is_empty() && !selection::pickers(watches, pools, workload).is_empty()
    }

    /// Pools that select pods of these workloads. `may_fail`: requests may fail while the model is at zero.
    pub(crate) fn pools_of(
        &self,
        watches: &Watches,
        workloads: &[&WorkloadKey],
        model: &str,
        may_fail: bool,
    ) -> Vec<ModelPool> {
        let pools = &self.pools.cache;
        if pools.is_empty() {
            return Vec::new();
        }
        let queues = self.queues.borrow();
        let names: BTreeMap<_, _> =
            workloads.iter().flat_map(|workload| selection::pool_pickers(watches, pools, workload)).collect();
        let model_pool = |(name, picker): (Box<str>, PickerKey)| ModelPool {
            name,
            obstacle: queues.obstacle(&picker, model, may_fail),
            picker,
        };
        names.into_iter().map(model_pool).collect()
    }

    pub(crate) fn serves_only(
        &self,
        watches: &Watches,
        pool: &ModelPool,
        workloads: &[&WorkloadKey],
    ) -> bool {
        selection::serves_only(watches, &self.pools.cache, &pool.picker, workloads)
    }

    /// Models to wake without a recent answer from all pods of all pickers.
    pub(crate) fn models_with_unread_queue(
        &self,
        watches: &Watches,
        managed: &[ManagedVariant],
        variants: &BTreeMap<VariantKey, Arc<PublishedVariant>>,
        now: Instant,
    ) -> BTreeSet<ModelKey> {
        let pools = &self.pools.cache;
        let state = |key: &VariantKey| {
            ServingState::from_decision(variants.get(key).and_then(|v| v.decision.as_ref()))
        };
        if pools.is_empty() || !variants.keys().any(|key| state(key) == ServingState::ToZero) {
            return BTreeSet::new();
        }
        let queues = self.queues.borrow();
        let queries = select_pickers(watches, pools, managed, state, |_| false);
        let models = queries.into_iter().flat_map(|(picker, query)| {
            query.models.into_iter().map(move |model_id| ModelKey::new(&picker.namespace, &model_id))
        });
        models.filter(|model| !queues.is_complete(model, now)).collect()
    }

    /// Data-parallel ranks in each pod; empty if its pools have one port.
    pub(crate) fn ranks(&self, watches: &Watches, workload: &WorkloadKey) -> BTreeSet<u16> {
        selection::ranks(watches, &self.pools.cache, workload)
    }

    /// The test sends the queues.
    #[cfg(test)]
    pub(crate) fn testing() -> (Self, watch::Sender<Arc<Queues>>) {
        let pools = wva_runtime::cache::Writer::new(Pool::projection()).reader();
        let pools = OptionalCache::new(pools, Availability::Watched);
        let (sender, queues) = watch::channel(Arc::default());
        (Self { pools, queues }, sender)
    }

    /// Selects pods of namespace `ns` with the label `app`.
    #[cfg(test)]
    pub(crate) fn with_pool(self, app: &str) -> Self {
        let mut writer = wva_runtime::cache::Writer::new(Pool::projection());
        let object = serde_json::json!({"apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool",
            "metadata": {"name": "p", "namespace": "ns"},
            "spec": {"selector": {"matchLabels": {"app": app}}, "endpointPickerRef": {"name": "epp"}}});
        let object = serde_json::from_value(object).unwrap();
        writer.apply(&kube::runtime::watcher::Event::Apply(object));
        Self { pools: OptionalCache::new(writer.reader(), Availability::Watched), ..self }
    }
}

pub(crate) struct ModelPool {
    pub(crate) name: Box<str>,
    picker: PickerKey,
    /// Why requests would not wake the model.
    pub(crate) obstacle: Option<WakeObstacle>,
}

/// Settings of the poller.
pub struct PickerConfig {
    /// Source of the bearer token.
    pub token: PickerToken,
    /// Variants of this controller.
    pub ownership: Ownership,
    /// Limits of all pages of pods.
    pub budget: PageBudget,
}

/// Polls the pickers of models at zero, on their way there, or allowed to scale to zero.
pub struct PickerPoller {
    client: Client,
    watches: Watches,
    pools: OptionalCache<Pool>,
    published: Reader,
    ownership: Ownership,
    token: PickerToken,
    fetcher: PageFetcher,
    budget: PageBudget,
    token_header: watch::Sender<Option<reqwest::header::HeaderValue>>,
    queues: watch::Sender<Arc<Queues>>,
}

/// Dropping it ends its task.
struct PolledPicker {
    query: watch::Sender<Arc<PickerQuery>>,
    answers: watch::Receiver<Answers>,
    /// Time of the last page, else the start.
    since: Instant,
    task: JoinHandle<()>,
    _end: DropGuard,
}

impl PolledPicker {
    fn change_query(&self, query: PickerQuery) {
        self.query.send_if_modified(|now| {
            let differs = **now != query;
            if differs {
                *now = Arc::new(query);
            }
            differs
        });
    }

    /// False after a panic.
    fn is_alive(&self) -> bool {
        !self.task.is_finished()
    }
}

impl PickerPoller {
    /// Creates a poller.
    ///
    /// # Errors
    /// [`reqwest::Error`].
    pub fn new(
        client: Client,
        watches: Watches,
        pools: InferencePools,
        published: Reader,
        config: PickerConfig,
    ) -> Result<(Self, Pickers), reqwest::Error> {
        let (token_header, token) = watch::channel(None);
        let (queues, reader) = watch::channel(Arc::default());
        let pickers = Pickers { pools: pools.0.clone(), queues: reader };
        let poller = Self {
            client,
            watches,
            pools: pools.0,
            published,
            ownership: config.ownership,
            token: config.token,
            fetcher: PageFetcher::new(token)?,
            budget: config.budget,
            token_header,
            queues,
        };
        Ok((poller, pickers))
    }

    /// Polls until the end of the leader's term.
    pub async fn run(&self, ended: CancellationToken) {
        let mut first_token = self.token_header.subscribe();
        let polling = async {
            // The first request already has the token. The sender is in `self`.
            let _ = first_token.changed().await;
            self.poll().await;
        };
        let both = async { tokio::join!(self.token.keep_renewed(&self.client, &self.token_header), polling) };
        ended.run_until_cancelled(both).await;
        self.queues.send_replace(Arc::default());
    }

    /// Selects the pickers every [`PERIOD`], and publishes their answers.
    async fn poll(&self) {
        let answered = Arc::new(Notify::new());
        let mut polled: BTreeMap<PickerKey, PolledPicker> = BTreeMap::new();
        let mut excess = BTreeSet::new();
        let mut debounce = WakeDebounce::default();
        let mut ticks = tokio::time::interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {
                    let before = std::mem::replace(&mut excess, self.update_polled(&mut polled, &answered));
                    warn_of_excess(&before, &excess);
                }
                () = answered.notified() => {}
            }
            self.publish(&mut polled, &excess, &mut debounce);
        }
    }

    /// Returns the pickers beyond the limits.
    fn update_polled(
        &self,
        polled: &mut BTreeMap<PickerKey, PolledPicker>,
        answered: &Arc<Notify>,
    ) -> BTreeSet<PickerKey> {
        let pools = &self.pools.cache;
        let mut queries = PickerQueries::default();
        let mut excess = BTreeSet::new();
        if !pools.is_empty() {
            let managed = variants::managed_variants(&self.watches, &self.ownership);
            let published = self.published.borrow().clone();
            let last = |key: &VariantKey| -> Option<&Decision> {
                published.as_ref()?.variants.get(key)?.decision.as_ref()
            };
            let may_scale_to_zero =
                |key: &VariantKey| last(key).is_some_and(|decision| decision.scale_to_zero);
            let state = |key: &VariantKey| ServingState::from_decision(last(key));
            queries = select_pickers(&self.watches, pools, &managed, state, may_scale_to_zero);
            excess = selection::remove_excess(&mut queries);
            selection::set_sole_models(&mut queries, &self.watches, pools, &managed);
        }
        for (key, query) in &mut queries {
            query.sends_token = self.token.is_for(&self.watches, &key.namespace);
        }
        let namespaces: BTreeSet<String> = queries.keys().map(|key| key.namespace.clone()).collect();
        self.budget.retain(|namespace| namespaces.contains(namespace));
        apply_queries(polled, queries, |key, query| self.start(key, query, answered));
        excess
    }

    fn start(&self, key: PickerKey, query: PickerQuery, answered: &Arc<Notify>) -> PolledPicker {
        tracing::debug!(
            namespace = key.namespace,
            service = key.service,
            "Polling an endpoint picker: a model is at zero or may scale to zero"
        );
        let (query, query_receiver) = watch::channel(Arc::new(query));
        let (answers, answers_receiver) = watch::channel(Answers::default());
        let endpoint = Endpoint {
            key,
            client: self.client.clone(),
            fetcher: self.fetcher.clone(),
            budget: self.budget.clone(),
            query: query_receiver,
            answers,
            answered: answered.clone(),
        };
        let end = CancellationToken::new();
        let ended = end.clone();
        let task = tokio::spawn(async move {
            ended.run_until_cancelled(endpoint.run()).await;
        });
        let (answers, since) = (answers_receiver, Instant::now());
        PolledPicker { query, answers, since, task, _end: end.drop_guard() }
    }

    fn publish(
        &self,
        polled: &mut BTreeMap<PickerKey, PolledPicker>,
        excess: &BTreeSet<PickerKey>,
        debounce: &mut WakeDebounce,
    ) {
        let now = Instant::now();
        let mut queues = Queues::default();
        for (key, picker) in polled {
            queues.add(&key.namespace, &picker.query.borrow(), &picker.answers.borrow(), now);
            let answers = picker.answers.borrow().clone();
            if answers.values().any(|answer| answer.page.is_some()) {
                picker.since = now;
            }
            queues.set_flow_control(key.clone(), &answers, picker.since, now);
        }
        for key in excess {
            queues.mark_excess(key.clone());
        }
        let due = debounce.is_due(queues.waiting(), now);
        self.queues.send_if_modified(|last| {
            *last = Arc::new(queues);
            due
        });
    }
}

fn warn_of_excess(before: &BTreeSet<PickerKey>, now: &BTreeSet<PickerKey>) {
    if let Some(first) = now.iter().next().filter(|_| before.is_empty()) {
        tracing::warn!(
            namespace = first.namespace,
            service = first.service,
            count = now.len(),
            "Too many endpoint pickers: some are not polled, and their models do not scale to zero"
        );
    }
}

/// A picker whose task panicked is started again.
fn apply_queries(
    polled: &mut BTreeMap<PickerKey, PolledPicker>,
    queries: PickerQueries,
    start: impl Fn(PickerKey, PickerQuery) -> PolledPicker,
) {
    polled.retain(|key, _| queries.contains_key(key));
    for (key, query) in queries {
        match polled.get(&key) {
            Some(known) if known.is_alive() => known.change_query(query),
            known => {
                if known.is_some() {
                    let PickerKey { namespace, service } = &key;
                    tracing::error!(
                        namespace,
                        service,
                        "The poll task of an endpoint picker panicked; restarting it"
                    );
                }
                polled.insert(key.clone(), start(key, query));
            }
        }
    }
}

#[cfg(test)]
mod tests;
