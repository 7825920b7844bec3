//! Endpoint pickers: which requests wait for models that no replica serves, or is going to. While there is such a model the
//! leader asks its picker twice a second; the engine decides from the answers which variant to wake. The pickers of models
//! that may go to zero are asked now and then whether their flow control runs.

mod ask;
mod budget;
mod debounce;
mod endpoint;
mod page;
mod queues;
mod token;
mod wanted;

use crate::model::keys::ModelKey;
use crate::observe::pools::InferencePools;
use crate::observe::pools::Pool;
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

use crate::model::keys::WorkloadKey;
use crate::model::published::{PublishedVariant, Reader};
use crate::observe::variants::{self, Managed, Ownership};
use crate::observe::watches::Watches;
use ask::Asker;
use budget::Budget;
use debounce::WakeDebounce;
use endpoint::{Answers, Endpoint};
use wanted::{Part, PickerQuery, wanted};
#[cfg(test)]
use wva_runtime::Availability;
use wva_runtime::Optional;

pub(crate) use page::OVERFLOW;
pub(crate) use queues::Queues;
pub use token::PickerToken;

/// Time between two requests to a pod. A request that waits is to be answered by a step within a second.
const PERIOD: Duration = Duration::from_millis(500);

/// The Service of an endpoint picker.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PickerKey {
    namespace: String,
    service: String,
}

/// What is known of endpoint pickers. Clones share it.
#[derive(Clone)]
pub struct Pickers {
    pools: Optional<Pool>,
    queues: watch::Receiver<Arc<Queues>>,
}

impl Pickers {
    /// What they said last.
    pub(crate) fn queues(&self) -> watch::Receiver<Arc<Queues>> {
        self.queues.clone()
    }

    /// Whether a pool holds the pods of this workload, so that its picker has the requests for them.
    pub(crate) fn has_one(&self, watches: &Watches, workload: &WorkloadKey) -> bool {
        let pools = &self.pools.cache;
        !pools.is_empty() && !wanted::pickers(watches, pools, workload).is_empty()
    }

    /// The pools that hold the pods of these workloads of a model.
    pub(crate) fn pools_of(
        &self,
        watches: &Watches,
        workloads: &[&WorkloadKey],
        model: &str,
    ) -> Vec<ModelPool> {
        let pools = &self.pools.cache;
        if pools.is_empty() {
            return Vec::new();
        }
        let queues = self.queues.borrow();
        let names: BTreeMap<_, _> =
            workloads.iter().flat_map(|workload| wanted::pool_names(watches, pools, workload)).collect();
        let of = |(name, picker): (Box<str>, PickerKey)| ModelPool {
            name,
            obstacle: queues.obstacle(&picker, model),
            picker,
        };
        names.into_iter().map(of).collect()
    }

    /// Whether a pool serves these workloads alone.
    pub(crate) fn serves_only(
        &self,
        watches: &Watches,
        pool: &ModelPool,
        workloads: &[&WorkloadKey],
    ) -> bool {
        wanted::serves_only(watches, &self.pools.cache, &pool.picker, workloads)
    }

    /// Models that no replica is going to serve, and of which their pickers have not said, all of them and lately, what
    /// waits.
    pub(crate) fn silent(
        &self,
        watches: &Watches,
        managed: &[Managed],
        variants: &BTreeMap<VariantKey, Arc<PublishedVariant>>,
        now: Instant,
    ) -> BTreeSet<ModelKey> {
        let pools = &self.pools.cache;
        let part = |key: &VariantKey| Part::of(variants.get(key).and_then(|v| v.decision.as_ref()));
        if pools.is_empty() || !variants.keys().any(|key| part(key) == Part::Leaves) {
            return BTreeSet::new();
        }
        let queues = self.queues.borrow();
        let wanted = wanted(watches, pools, managed, part, |_| false);
        let models = wanted.into_iter().flat_map(|(picker, query)| {
            query.models.into_iter().map(move |model_id| ModelKey::new(&picker.namespace, &model_id))
        });
        models.filter(|model| !queues.is_whole(model, now)).collect()
    }

    /// The ports of the data parallel ranks in each pod of a workload, where its pools name several.
    pub(crate) fn ranks(&self, watches: &Watches, workload: &WorkloadKey) -> BTreeSet<u16> {
        wanted::ranks(watches, &self.pools.cache, workload)
    }

    /// Where nobody asks; what they say is written by a test.
    #[cfg(test)]
    pub(crate) fn testing() -> (Self, watch::Sender<Arc<Queues>>) {
        let pools = wva_runtime::cache::Writer::new(Pool::projection()).reader();
        let pools = Optional::new(pools, Availability::Watched);
        let (sender, queues) = watch::channel(Arc::default());
        (Self { pools, queues }, sender)
    }

    /// The same where a pool of the namespace `ns` holds pods with this label `app`.
    #[cfg(test)]
    pub(crate) fn with_pool(self, app: &str) -> Self {
        let mut writer = wva_runtime::cache::Writer::new(Pool::projection());
        let object = serde_json::json!({"apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool",
            "metadata": {"name": "p", "namespace": "ns"},
            "spec": {"selector": {"matchLabels": {"app": app}}, "endpointPickerRef": {"name": "epp"}}});
        let object = serde_json::from_value(object).unwrap();
        writer.apply(&kube::runtime::watcher::Event::Apply(object));
        Self { pools: Optional::new(writer.reader(), Availability::Watched), ..self }
    }
}

/// A pool that holds pods of a model.
pub(crate) struct ModelPool {
    pub(crate) name: Box<str>,
    picker: PickerKey,
    /// Why requests at its picker would not wake the model.
    pub(crate) obstacle: Option<WakeObstacle>,
}

/// What asking them takes.
pub struct PickerConfig {
    /// Where their bearer token comes from.
    pub token: PickerToken,
    /// Which variants are ours.
    pub ownership: Ownership,
}

/// Asks endpoint pickers while one of their models is at zero, on its way there, or may go there.
pub struct Asking {
    client: Client,
    watches: Watches,
    pools: Optional<Pool>,
    published: Reader,
    ownership: Ownership,
    token: PickerToken,
    asker: Asker,
    budget: Arc<Budget>,
    shown_token: watch::Sender<Option<reqwest::header::HeaderValue>>,
    queues: watch::Sender<Arc<Queues>>,
}

/// A picker that is asked; dropping it ends that.
struct Asked {
    query: watch::Sender<Arc<PickerQuery>>,
    answers: watch::Receiver<Answers>,
    /// When its pods last showed a page, or asking began.
    since: Instant,
    task: JoinHandle<()>,
    _end: DropGuard,
}

impl Asked {
    /// Asks this from now on.
    fn change_query(&self, query: PickerQuery) {
        self.query.send_if_modified(|now| {
            let differs = **now != query;
            if differs {
                *now = Arc::new(query);
            }
            differs
        });
    }

    /// Whether its task still runs. It never ends by itself, so that it must have panicked.
    fn is_alive(&self) -> bool {
        !self.task.is_finished()
    }
}

impl Asking {
    /// Nobody is asked before [`Asking::run`].
    ///
    /// # Errors
    /// Where the HTTP client cannot be made.
    pub fn new(
        client: Client,
        watches: Watches,
        pools: InferencePools,
        published: Reader,
        config: PickerConfig,
    ) -> Result<(Self, Pickers), reqwest::Error> {
        let (shown_token, token) = watch::channel(None);
        let (queues, reader) = watch::channel(Arc::default());
        let pickers = Pickers { pools: pools.0.clone(), queues: reader };
        let asking = Self {
            client,
            watches,
            pools: pools.0,
            published,
            ownership: config.ownership,
            token: config.token,
            asker: Asker::new(token)?,
            budget: Arc::new(Budget::new()),
            shown_token,
            queues,
        };
        Ok((asking, pickers))
    }

    /// Asks until the end of the term. To be run by the leader.
    pub async fn run(&self, ended: CancellationToken) {
        let mut first_token = self.shown_token.subscribe();
        let asking = async {
            // The first request to a picker carries the token already. It fails only without a sender, which is ours.
            let _ = first_token.changed().await;
            self.follow().await;
        };
        let both = async { tokio::join!(self.token.keep(&self.client, &self.shown_token), asking) };
        ended.run_until_cancelled(both).await;
        self.queues.send_replace(Arc::default());
    }

    /// Looks every [`PERIOD`] which pickers to ask, and hands on their answers.
    async fn follow(&self) {
        let news = Arc::new(Notify::new());
        let mut asked: BTreeMap<PickerKey, Asked> = BTreeMap::new();
        let mut excess = BTreeSet::new();
        let mut debounce = WakeDebounce::default();
        let mut ticks = tokio::time::interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {
                    let before = std::mem::replace(&mut excess, self.choose(&mut asked, &news));
                    warn_of_excess(&before, &excess);
                }
                () = news.notified() => {}
            }
            self.tell(&mut asked, &excess, &mut debounce);
        }
    }

    /// Begins to ask those that are wanted, and ceases to ask the others. Returns those that are too many.
    fn choose(&self, asked: &mut BTreeMap<PickerKey, Asked>, news: &Arc<Notify>) -> BTreeSet<PickerKey> {
        let pools = &self.pools.cache;
        let mut wanted = wanted::Wanted::default();
        let mut excess = BTreeSet::new();
        if !pools.is_empty() {
            let managed = variants::managed(&self.watches, &self.ownership);
            let published = self.published.borrow().clone();
            let last = |key: &VariantKey| -> Option<&Decision> {
                published.as_ref()?.variants.get(key)?.decision.as_ref()
            };
            let may_go = |key: &VariantKey| last(key).is_some_and(|decision| decision.scale_to_zero);
            wanted = self::wanted(&self.watches, pools, &managed, |key| Part::of(last(key)), may_go);
            excess = wanted::take_excess(&mut wanted);
            wanted::note_sole_models(&mut wanted, &self.watches, pools, &managed);
        }
        let namespaces: BTreeSet<String> = wanted.keys().map(|key| key.namespace.clone()).collect();
        self.budget.retain(|namespace| namespaces.contains(namespace));
        update(asked, wanted, |key, query| self.begin(key, query, news));
        excess
    }

    fn begin(&self, key: PickerKey, query: PickerQuery, news: &Arc<Notify>) -> Asked {
        tracing::debug!(
            namespace = key.namespace,
            service = key.service,
            "An endpoint picker is asked: a model of it is at zero, or may go there"
        );
        let (query, query_now) = watch::channel(Arc::new(query));
        let (answers, said) = watch::channel(Answers::default());
        let endpoint = Endpoint {
            key,
            client: self.client.clone(),
            asker: self.asker.clone(),
            budget: self.budget.clone(),
            query: query_now,
            answers,
            news: news.clone(),
        };
        let end = CancellationToken::new();
        let ended = end.clone();
        let task = tokio::spawn(async move {
            ended.run_until_cancelled(endpoint.run()).await;
        });
        Asked { query, answers: said, since: Instant::now(), task, _end: end.drop_guard() }
    }

    /// Hands on all answers, and wakes the engine where requests wait.
    fn tell(
        &self,
        asked: &mut BTreeMap<PickerKey, Asked>,
        excess: &BTreeSet<PickerKey>,
        debounce: &mut WakeDebounce,
    ) {
        let now = Instant::now();
        let mut queues = Queues::default();
        for (key, asked) in asked {
            queues.add(&key.namespace, &asked.query.borrow().models, &asked.answers.borrow(), now);
            let answers = asked.answers.borrow().clone();
            if answers.values().any(|answer| answer.page.is_some()) {
                asked.since = now;
            }
            queues.note(key.clone(), &answers, asked.since, now);
        }
        for key in excess {
            queues.note_excess(key.clone());
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
            "Too many endpoint pickers: some are not asked, and their models do not go to zero"
        );
    }
}

/// Makes those that are asked the ones that are wanted. One whose task has panicked is begun anew.
fn update(
    asked: &mut BTreeMap<PickerKey, Asked>,
    wanted: wanted::Wanted,
    begin: impl Fn(PickerKey, PickerQuery) -> Asked,
) {
    asked.retain(|key, _| wanted.contains_key(key));
    for (key, query) in wanted {
        match asked.get(&key) {
            Some(known) if known.is_alive() => known.change_query(query),
            known => {
                if known.is_some() {
                    let PickerKey { namespace, service } = &key;
                    tracing::error!(
                        namespace,
                        service,
                        "Asking an endpoint picker broke off: it begins anew"
                    );
                }
                asked.insert(key.clone(), begin(key, query));
            }
        }
    }
}

#[cfg(test)]
mod tests;
