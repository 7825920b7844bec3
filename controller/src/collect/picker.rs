//! Polls endpoint pickers. The leader reads the queues of models at zero twice a second, and checks flow control of
//! models that may scale to zero less often.

mod debounce;
mod endpoint;
mod fetch;
mod page;
mod pickers;
mod pod;
mod queues;
mod refused;
mod schedule;
mod selection;
mod tls;
mod token;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::Client;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::{CancellationToken, DropGuard};
use wva_crds::entries::EndpointPicker;
use wva_scaling::{Decision, VariantKey};

use wva_runtime::OptionalCache;

use crate::collect::page::PageBudget;
use crate::model::keys::NamedPickers;
use crate::model::published::Reader;
use crate::observe::pools::{InferencePools, Pool};
use crate::observe::variants::{self, Ownership};
use crate::observe::watches::Watches;
use debounce::WakeDebounce;
use endpoint::{Answers, Endpoint};
use fetch::PageFetcher;
use selection::{PickerQueries, PickerQuery, Routes, ServingState, select_pickers};
use tls::Certificates;

pub(crate) use page::OVERFLOW;
pub use pickers::Pickers;
pub(crate) use queues::Queues;
pub use tls::PickerTls;
pub use token::PickerToken;

/// A waiting request should lead to a scale-up within a second.
const PERIOD: Duration = Duration::from_millis(500);

/// A hanging volume delays only pickers with HTTPS.
const FIRST_READ: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PickerKey {
    namespace: String,
    picker: EndpointPicker,
}

impl PickerKey {
    #[cfg(test)]
    fn service(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), picker: EndpointPicker::service(name) }
    }
}

/// Models and answers of each picker.
type PolledAnswers = BTreeMap<PickerKey, (watch::Receiver<Arc<PickerQuery>>, watch::Receiver<Answers>)>;

/// Settings of the poller.
pub struct PickerConfig {
    /// Source of the bearer token.
    pub token: PickerToken,
    /// Certificates for pickers that serve HTTPS.
    pub tls: PickerTls,
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
    tls: PickerTls,
    certificates: watch::Sender<Certificates>,
    fetcher: PageFetcher,
    budget: PageBudget,
    token_header: watch::Sender<Option<reqwest::header::HeaderValue>>,
    named: watch::Receiver<Arc<NamedPickers>>,
    queues: watch::Sender<Arc<Queues>>,
    polled: watch::Sender<Arc<PolledAnswers>>,
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
        let (certificates, received) = watch::channel(Err("not read yet".to_owned()));
        let (queues, reader) = watch::channel(Arc::default());
        let (named, named_receiver) = watch::channel(Arc::default());
        let (answers, shown) = watch::channel(Arc::default());
        let pickers = Pickers { pools: pools.0.clone(), named, queues: reader, polled: shown };
        let poller = Self {
            client,
            watches,
            pools: pools.0,
            published,
            ownership: config.ownership,
            token: config.token,
            tls: config.tls,
            certificates,
            fetcher: PageFetcher::new(token, received)?,
            budget: config.budget,
            token_header,
            named: named_receiver,
            queues,
            polled: answers,
        };
        Ok((poller, pickers))
    }

    /// Polls until the end of the leader's term.
    pub async fn run(&self, ended: CancellationToken) {
        let (mut first_token, mut first_files) =
            (self.token_header.subscribe(), self.certificates.subscribe());
        let polling = async {
            // The first request already has the token and the certificates. The senders are in `self`.
            let _ = first_token.changed().await;
            let _ = tokio::time::timeout(FIRST_READ, first_files.changed()).await;
            self.poll().await;
        };
        let token = self.token.keep_renewed(&self.client, &self.token_header);
        let certificates = self.tls.keep_read(&self.certificates);
        ended.run_until_cancelled(async { tokio::join!(token, certificates, polling) }).await;
        self.queues.send_replace(Arc::default());
        self.polled.send_replace(Arc::default());
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
        let named = self.named.borrow().clone();
        let routes = Routes { watches: &self.watches, pools: &self.pools.cache, named: &named };
        let mut queries = PickerQueries::default();
        let mut excess = BTreeSet::new();
        if !routes.is_empty() {
            let managed = variants::managed_variants(&self.watches, &self.ownership);
            let published = self.published.borrow().clone();
            let last = |key: &VariantKey| -> Option<&Decision> {
                published.as_ref()?.variants.get(key)?.decision.as_ref()
            };
            let may_scale_to_zero =
                |key: &VariantKey| last(key).is_some_and(|decision| decision.report.model.scale_to_zero);
            let state = |key: &VariantKey| ServingState::from_decision(last(key));
            queries = select_pickers(&routes, &managed, state, may_scale_to_zero);
            excess = selection::remove_excess(&mut queries);
            selection::set_sole_models(&mut queries, &routes, &managed);
        }
        for (key, query) in &mut queries {
            query.sends_token = self.token.is_for(&self.watches, &key.namespace);
        }
        let namespaces: BTreeSet<String> = queries.keys().map(|key| key.namespace.clone()).collect();
        self.budget.retain(|namespace| namespaces.contains(namespace));
        apply_queries(polled, queries, |key, query| self.start(key, query, answered));
        self.polled.send_if_modified(|shown| {
            let is_same =
                |(a, b): (&(_, watch::Receiver<Answers>), &PolledPicker)| a.1.same_channel(&b.answers);
            let is_shown = shown.keys().eq(polled.keys()) && shown.values().zip(polled.values()).all(is_same);
            if !is_shown {
                let receivers = |picker: &PolledPicker| (picker.query.subscribe(), picker.answers.clone());
                *shown =
                    Arc::new(polled.iter().map(|(key, picker)| (key.clone(), receivers(picker))).collect());
            }
            !is_shown
        });
        excess
    }

    fn start(&self, key: PickerKey, query: PickerQuery, answered: &Arc<Notify>) -> PolledPicker {
        tracing::debug!(
            namespace = key.namespace,
            picker = %key.picker,
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
        for (key, PolledPicker { query, answers, since, .. }) in polled {
            let (query, answers) = (query.borrow(), answers.borrow());
            queues.add(&key.namespace, &query, &answers, now);
            if answers.values().any(|answer| answer.page.is_some()) {
                *since = now;
            }
            let at_zero = !query.models.is_empty();
            queues.set_flow_control(key.clone(), &answers, at_zero, *since, now);
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
            picker = %first.picker,
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
                    let PickerKey { namespace, picker } = &key;
                    tracing::error!(
                        namespace,
                        %picker,
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
