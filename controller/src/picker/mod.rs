//! Endpoint pickers: which requests wait for models that no replica serves, or is going to. While there is such a model its
//! picker is asked twice a second, by the leader alone; what it says goes to the engine, which decides whom to wake. Nobody is
//! asked while no model is at zero.

mod ask;
mod endpoint;
mod page;
mod pools;
mod queues;
mod token;
mod wanted;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::Client;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::{CancellationToken, DropGuard};
use wva_scaling::VariantKey;

use crate::published::{PublishedVariant, Reader};
use crate::variants::{self, Managed, Ownership};
use crate::watches::{Optional, Watches};
#[cfg(test)]
use crate::watches::{Sight, cache::Writer};
use crate::workloads::WorkloadKey;
use ask::Asker;
use endpoint::{Answers, Endpoint};
use wanted::{Part, wanted};

pub(crate) use pools::{Labels, Pool};
pub(crate) use queues::Queues;
pub use token::PickerToken;

/// Time between two requests to a pod. A request that waits is to be answered by a step within a second.
const PERIOD: Duration = Duration::from_millis(500);
/// The engine is told again of requests that go on to wait: why nobody could be woken may have changed.
const TELL_AGAIN: Duration = Duration::from_secs(2);

/// Namespace and `modelID`.
pub(crate) type ModelKey = (String, String);

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
        let models = wanted(watches, pools, managed, part).into_iter().flat_map(|(picker, models)| {
            models.into_iter().map(move |model_id| (picker.namespace.clone(), model_id))
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
        let pools = Writer::new(Pool::kind()).reader();
        let pools = Optional::new(pools, Sight::Seen);
        let (sender, queues) = watch::channel(Arc::default());
        (Self { pools, queues }, sender)
    }

    /// The same where a pool of the namespace `ns` holds pods with this label `app`.
    #[cfg(test)]
    pub(crate) fn with_pool(self, app: &str) -> Self {
        let mut writer = Writer::new(Pool::kind());
        let object = serde_json::json!({"apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool",
            "metadata": {"name": "p", "namespace": "ns"},
            "spec": {"selector": {"matchLabels": {"app": app}}, "endpointPickerRef": {"name": "epp"}}});
        let object = serde_json::from_value(object).unwrap();
        writer.take_in(&kube::runtime::watcher::Event::Apply(object));
        Self { pools: Optional::new(writer.reader(), Sight::Seen), ..self }
    }
}

/// What asking them takes.
pub struct PickerConfig {
    /// Where their bearer token comes from.
    pub token: PickerToken,
    /// Which variants are ours.
    pub ownership: Ownership,
}

/// Asks endpoint pickers while one of their models is at zero or on its way there.
pub struct Asking {
    client: Client,
    watches: Watches,
    pools: Optional<Pool>,
    published: Reader,
    ownership: Ownership,
    token: PickerToken,
    asker: Asker,
    shown_token: watch::Sender<Option<reqwest::header::HeaderValue>>,
    queues: watch::Sender<Arc<Queues>>,
}

/// A picker that is asked; dropping it ends that.
struct Asked {
    models: watch::Sender<Arc<BTreeSet<String>>>,
    answers: watch::Receiver<Answers>,
    task: JoinHandle<()>,
    _end: DropGuard,
}

impl Asked {
    /// Asks about other models from now on.
    fn ask_about(&self, models: BTreeSet<String>) {
        self.models.send_if_modified(|now| {
            let differs = **now != models;
            if differs {
                *now = Arc::new(models);
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

    /// Looks every [`PERIOD`] whom to ask, and hands on what is said.
    async fn follow(&self) {
        let news = Arc::new(Notify::new());
        let mut asked: BTreeMap<PickerKey, Asked> = BTreeMap::new();
        let mut told = Told::default();
        let mut ticks = tokio::time::interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => self.choose(&mut asked, &news),
                () = news.notified() => {}
            }
            self.tell(&asked, &mut told);
        }
    }

    /// Begins to ask those that are wanted, and ceases to ask the others.
    fn choose(&self, asked: &mut BTreeMap<PickerKey, Asked>, news: &Arc<Notify>) {
        let pools = &self.pools.cache;
        let wanted = if pools.is_empty() {
            wanted::Wanted::default()
        } else {
            let managed = variants::managed(&self.watches, &self.ownership);
            let published = self.published.borrow().clone();
            let part = |key: &VariantKey| {
                let variant = published.as_ref().and_then(|p| p.variants.get(key));
                Part::of(variant.and_then(|v| v.decision.as_ref()))
            };
            wanted(&self.watches, pools, &managed, part)
        };
        update(asked, wanted, |key, models| self.begin(key, models, news));
    }

    fn begin(&self, key: PickerKey, models: BTreeSet<String>, news: &Arc<Notify>) -> Asked {
        tracing::debug!(
            namespace = key.namespace,
            service = key.service,
            "An endpoint picker is asked: a model of it is at zero, or on its way there"
        );
        let (models, models_now) = watch::channel(Arc::new(models));
        let (answers, said) = watch::channel(Answers::default());
        let endpoint = Endpoint {
            key,
            client: self.client.clone(),
            asker: self.asker.clone(),
            models: models_now,
            answers,
            news: news.clone(),
        };
        let end = CancellationToken::new();
        let ended = end.clone();
        let task = tokio::spawn(async move {
            ended.run_until_cancelled(endpoint.run()).await;
        });
        Asked { models, answers: said, task, _end: end.drop_guard() }
    }

    /// Hands on what all of them said, and wakes the engine where somebody waits.
    fn tell(&self, asked: &BTreeMap<PickerKey, Asked>, told: &mut Told) {
        let now = Instant::now();
        let mut queues = Queues::default();
        for (key, asked) in asked {
            queues.add(&key.namespace, &asked.models.borrow(), &asked.answers.borrow(), now);
        }
        let due = told.is_due(queues.waiting(), now);
        self.queues.send_if_modified(|last| {
            *last = Arc::new(queues);
            due
        });
    }
}

/// Makes those that are asked the ones that are wanted. One whose task has panicked is begun anew.
fn update(
    asked: &mut BTreeMap<PickerKey, Asked>,
    wanted: wanted::Wanted,
    begin: impl Fn(PickerKey, BTreeSet<String>) -> Asked,
) {
    asked.retain(|key, _| wanted.contains_key(key));
    for (key, models) in wanted {
        match asked.get(&key) {
            Some(known) if known.is_alive() => known.ask_about(models),
            known => {
                if known.is_some() {
                    let PickerKey { namespace, service } = &key;
                    tracing::error!(
                        namespace,
                        service,
                        "Asking an endpoint picker broke off: it begins anew"
                    );
                }
                asked.insert(key.clone(), begin(key, models));
            }
        }
    }
}

/// What the engine was told of last.
#[derive(Default)]
struct Told {
    waiting: BTreeSet<ModelKey>,
    at: Option<Instant>,
}

impl Told {
    /// Whether it is to be told that requests wait for these models: at once of one for which none did, and of the
    /// others from time to time.
    fn is_due(&mut self, waiting: BTreeSet<ModelKey>, now: Instant) -> bool {
        let again = self.at.is_none_or(|at| now.saturating_duration_since(at) >= TELL_AGAIN);
        let due = !waiting.is_empty() && (again || !waiting.is_subset(&self.waiting));
        self.waiting = waiting;
        if due {
            self.at = Some(now);
        }
        due
    }
}

/// The cache of InferencePools, made by [`crate::Scope::inference_pools`].
#[derive(Clone)]
pub struct InferencePools(pub(crate) Optional<Pool>);

#[cfg(test)]
mod tests {
    use super::*;

    /// A picker that is asked by this task.
    fn asked_by(task: impl Future<Output = ()> + Send + 'static, models: BTreeSet<String>) -> Asked {
        let (models, (_, answers)) = (watch::channel(Arc::new(models)).0, watch::channel(Answers::default()));
        Asked { models, answers, task: tokio::spawn(task), _end: CancellationToken::new().drop_guard() }
    }

    #[tokio::test]
    async fn one_whose_task_broke_off_is_asked_anew() {
        let key = PickerKey { namespace: "ns".into(), service: "epp".into() };
        let want = |model: &str| [(key.clone(), BTreeSet::from([model.to_owned()]))].into();
        let (mut asked, begun) = (BTreeMap::new(), std::cell::Cell::new(0));
        let mut turn = |model: &str| {
            update(&mut asked, want(model), |_, models| {
                begun.set(begun.get() + 1);
                let first = begun.get() == 1;
                asked_by(
                    async move {
                        assert!(!first, "the first one panics");
                        std::future::pending::<()>().await;
                    },
                    models,
                )
            });
            let models: Vec<String> = asked[&key].models.borrow().iter().cloned().collect();
            (begun.get(), models.concat())
        };
        assert_eq!(turn("a"), (1, "a".into()));
        // Tasks of this runtime take turns: the first one has ended after that.
        tokio::spawn(async {}).await.unwrap();
        assert_eq!(turn("a"), (2, "a".into()));
        assert_eq!(turn("b"), (2, "b".into()), "the second one goes on");
    }

    #[test]
    fn the_engine_is_told_at_once_of_news_and_of_the_rest_from_time_to_time() {
        let begin = Instant::now();
        let at = |millis: u64| begin + Duration::from_millis(millis);
        let key = |model: &str| ("ns".to_owned(), model.to_owned());
        let mut told = Told::default();
        assert!(!told.is_due(BTreeSet::new(), at(0)));
        assert!(told.is_due([key("a")].into(), at(0)));
        assert!(!told.is_due([key("a")].into(), at(500)));
        assert!(told.is_due([key("a"), key("b")].into(), at(600)));
        assert!(!told.is_due([key("b")].into(), at(2500)));
        assert!(told.is_due([key("b")].into(), at(2600)));
        assert!(!told.is_due(BTreeSet::new(), at(5000)));
        assert!(told.is_due([key("b")].into(), at(5100)));
    }
}
