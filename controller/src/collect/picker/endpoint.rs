//! Polls one endpoint picker: each pod on its own, so that a hanging pod delays no other.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use futures::stream::{BoxStream, FuturesUnordered};
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::Service;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use tokio::sync::{Notify, watch};
use tokio::time::MissedTickBehavior;
use wva_crds::entries::PickerPods;
use wva_crds::picker_report::PickerPodReport;
use wva_runtime::cache::{Cache, Writer};

use super::fetch::PageFetcher;
use super::page::PickerPage;
use super::pod::PickerPod;
use super::refused::{PodStart, RefusedCounts, RefusedRequests};
use super::schedule::{AnswerKind, Schedule};
use super::selection::PickerQuery;
use super::{PERIOD, PickerKey};
use crate::collect::page::{PageBudget, PageError};
use crate::model::serving_pod::ServingPod;

/// A picker has one or a few replicas.
const MAX_PODS: usize = 16;
/// The selector of a Service rarely changes.
const REREAD: Duration = Duration::from_secs(30);
/// Wait if the Service does not exist or has no selector.
const RETRY: Duration = Duration::from_secs(2);
/// Retries inside kube take longer.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Least time between two warnings about the same pod.
const WARN_INTERVAL: Duration = Duration::from_mins(10);

#[derive(Clone, Debug, Default)]
pub(super) struct PodAnswer {
    pub(super) page: Option<(Instant, PickerPage)>,
    pub(super) last: Option<LastRequest>,
    pub(super) refused: RefusedRequests,
    /// The pod appeared after the picker was first polled.
    pub(super) is_new: bool,
}

/// The last request of a pod, for a report.
#[derive(Clone, Debug)]
pub(super) struct LastRequest {
    at: Instant,
    pod: PickerPod,
    bytes: usize,
    /// Why the request failed, and the remedy.
    error: Option<(String, &'static str)>,
}

impl PodAnswer {
    /// The last request brought no page.
    pub(super) fn has_failed(&self) -> bool {
        self.last.as_ref().is_some_and(|last| last.error.is_some())
    }

    #[cfg(test)]
    pub(super) fn failed(self) -> Self {
        let pod = PickerPod { address: ([127, 0, 0, 1], 9090).into(), tls: false };
        let error = Some(("no answer".to_owned(), ""));
        Self { last: Some(LastRequest { at: Instant::now(), pod, bytes: 0, error }), ..self }
    }

    pub(super) fn report(&self, pod: &str, now: Instant) -> PickerPodReport {
        let page = self.page.as_ref().map(|(_, page)| page);
        let last = self.last.as_ref();
        let error = last.and_then(|last| last.error.as_ref());
        let flow_control = page.map(|page| format!("{:?}", page.flow_control));
        PickerPodReport {
            pod: pod.to_owned(),
            url: last.map(|last| last.pod.url()).unwrap_or_default(),
            age_seconds: last.map_or(0, |last| now.saturating_duration_since(last.at).as_secs()),
            bytes: last.map_or(0, |last| last.bytes),
            error: error.map(|(text, _)| text.clone()),
            advice: error.map(|(_, advice)| (*advice).to_owned()).filter(|advice| !advice.is_empty()),
            is_picker: page.is_some_and(|page| page.is_picker),
            router: page.is_some_and(|page| page.is_router),
            families: page.iter().flat_map(|page| &page.families).map(|name| (*name).to_owned()).collect(),
            flow_control: flow_control.unwrap_or_default(),
            names: page.iter().flat_map(|page| &page.names).cloned().collect(),
        }
    }

    fn record(&mut self, pod: &str, page: PickerPage, query: &PickerQuery, now: Instant) {
        let is_new = self.is_new;
        let first = |model: &str, counts: &RefusedCounts| {
            let last_leader = query.last_leader.get(model).map_or(&[][..], Vec::as_slice);
            PodStart { pod, is_new, last_leader }.first_count(model, counts)
        };
        self.refused.add(page.refused.clone(), first, now);
        self.page = Some((now, page));
    }
}

pub(super) type Answers = BTreeMap<Box<str>, PodAnswer>;

pub(super) struct Endpoint {
    pub(super) key: PickerKey,
    pub(super) client: Client,
    pub(super) fetcher: PageFetcher,
    pub(super) budget: PageBudget,
    pub(super) query: watch::Receiver<Arc<PickerQuery>>,
    pub(super) answers: watch::Sender<Answers>,
    pub(super) answered: Arc<Notify>,
}

/// Pod, its page, and the request.
type Reply = (Box<str>, Result<PickerPage, PageError>, LastRequest);

type PodEvents = BoxStream<'static, Result<Event<ServingPod>, watcher::Error>>;

impl Endpoint {
    /// Every [`PERIOD`] while a model is at zero or wakes, else less often. Never returns.
    pub(super) async fn run(self) {
        let mut selector: Option<String> = None;
        let mut read_selector = self.read_selector(Duration::ZERO);
        let mut pods: PodEvents = futures::stream::pending().boxed();
        let mut writer = Writer::new(PickerPod::projection());
        let mut requests: FuturesUnordered<BoxFuture<'_, Reply>> = FuturesUnordered::new();
        let mut in_flight = BTreeSet::new();
        let mut schedule = Schedule::default();
        let (mut is_urgent, mut is_listed) = (false, false);
        let mut faults = FaultLog::default();
        let mut ticks = tokio::time::interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                found = &mut read_selector => {
                    let is_missing = !matches!(found, Ok(Some(_)));
                    if let Some(new) = faults.log_service(&self.key, found)
                        && selector.as_ref() != Some(&new)
                    {
                        writer = Writer::new(PickerPod::projection());
                        pods = self.watch_pods(&new);
                        is_listed = false;
                        selector = Some(new);
                    }
                    read_selector = self.read_selector(if is_missing { RETRY } else { REREAD });
                }
                // While the watch fails, the known pods stay.
                Some(event) = pods.next() => if let Ok(event) = event {
                    writer.apply(&event);
                    if matches!(event, Event::InitDone) {
                        self.keep_answers(&targets(&writer.reader()), is_listed);
                        is_listed = true;
                        ticks.reset_immediately();
                    }
                },
                Some((pod, reply, request)) = requests.next() => {
                    in_flight.remove(&pod);
                    schedule.record(pod.clone(), answer_kind(&reply), is_urgent, Instant::now());
                    self.store(pod, reply, request, &mut faults);
                }
                _ = ticks.tick() => {
                    let was_urgent = std::mem::replace(&mut is_urgent, self.query.borrow().is_urgent());
                    if is_urgent && !was_urgent {
                        schedule.clear();
                    }
                    self.request_due(&writer.reader(), &mut in_flight, &mut schedule, &requests);
                }
            }
        }
    }

    /// Requests every due pod without a request in flight; removes answers of deleted pods.
    fn request_due<'a>(
        &'a self,
        pods: &Cache<Option<PickerPod>>,
        in_flight: &mut BTreeSet<Box<str>>,
        schedule: &mut Schedule,
        requests: &FuturesUnordered<BoxFuture<'a, Reply>>,
    ) {
        let targets = targets(pods);
        // Of more pods, one that replaces another may be old.
        self.keep_answers(&targets, targets.len() < MAX_PODS);
        schedule.retain(|pod| targets.contains_key(pod));
        let now = Instant::now();
        for (pod, address) in targets {
            if schedule.is_due(&pod, now) && in_flight.insert(pod.clone()) {
                requests.push(self.request(pod, address).boxed());
            }
        }
    }

    /// Keeps the answers of these pods.
    fn keep_answers(&self, targets: &BTreeMap<Box<str>, PickerPod>, is_new: bool) {
        self.answers.send_modify(|answers| {
            answers.retain(|pod, _| targets.contains_key(pod));
            for pod in targets.keys() {
                answers.entry(pod.clone()).or_insert_with(|| PodAnswer { is_new, ..PodAnswer::default() });
            }
        });
    }

    /// `None` if the Service has no selector.
    fn read_selector(&self, after: Duration) -> BoxFuture<'static, Result<Option<String>, String>> {
        let services: Api<Service> = Api::namespaced(self.client.clone(), &self.key.namespace);
        let pods = self.key.picker.pods.clone();
        async move {
            tokio::time::sleep(after).await;
            let name = match pods {
                PickerPods::Service(name) => name,
                PickerPods::Labels(labels) => return Ok(Some(labels)),
            };
            match tokio::time::timeout(READ_TIMEOUT, services.get(&name)).await {
                Ok(Ok(service)) => Ok(selector(&service)),
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err(format!("the API server did not answer within {} s", READ_TIMEOUT.as_secs())),
            }
        }
        .boxed()
    }

    fn watch_pods(&self, selector: &str) -> PodEvents {
        let api: Api<ServingPod> = Api::namespaced(self.client.clone(), &self.key.namespace);
        wva_runtime::watch::events(api, wva_runtime::watch::config().labels(selector))
            .default_backoff()
            .boxed()
    }

    async fn request(&self, pod: Box<str>, address: PickerPod) -> Reply {
        let _permit = self.budget.admit(&self.key.namespace).await;
        let query = self.query.borrow().clone();
        let bytes = AtomicUsize::new(0);
        let spend = |cost: usize| {
            bytes.fetch_add(cost, Ordering::Relaxed);
            self.budget.spend(&self.key.namespace, cost)
        };
        let address = address.named(&self.key.picker);
        let reply = self.fetcher.fetch(address, &self.key, &query, &spend).await;
        let request =
            LastRequest { at: Instant::now(), pod: address, bytes: bytes.into_inner(), error: None };
        (pod, reply, request)
    }

    fn store(
        &self,
        pod: Box<str>,
        reply: Result<PickerPage, PageError>,
        mut request: LastRequest,
        faults: &mut FaultLog,
    ) {
        match reply {
            Ok(page) => {
                let now = Instant::now();
                let query = self.query.borrow().clone();
                self.answers.send_modify(|answers| {
                    let answer = answers.entry(pod.clone()).or_default();
                    answer.last = Some(request);
                    answer.record(&pod, page, &query, now);
                });
                self.answered.notify_one();
            }
            Err(error) => {
                let advice = advice(&error, self.query.borrow().sends_token, self.fetcher.has_token());
                request.error = Some((error.to_string(), advice));
                self.answers.send_modify(|all| all.entry(pod.clone()).or_default().last = Some(request));
                faults.log_pod(&self.key, pod, &error, advice);
            }
        }
    }
}

fn answer_kind(reply: &Result<PickerPage, PageError>) -> AnswerKind {
    match reply {
        Ok(page) if page.is_picker => AnswerKind::Useful,
        Err(
            PageError::TooLong(_)
            | PageError::OverBudget
            | PageError::InvalidPage(_)
            | PageError::Encoding(_)
            | PageError::InvalidGzip(_),
        ) => AnswerKind::Invalid,
        Ok(_) | Err(_) => AnswerKind::Useless,
    }
}

fn targets(pods: &Cache<Option<PickerPod>>) -> BTreeMap<Box<str>, PickerPod> {
    let mut targets = BTreeMap::new();
    pods.for_each(|_, name, address| {
        if let Some(address) = address.filter(|_| targets.len() < MAX_PODS) {
            targets.insert(name.into(), address);
        }
    });
    targets
}

fn selector(service: &Service) -> Option<String> {
    let labels = service.spec.as_ref()?.selector.as_ref().filter(|labels| !labels.is_empty())?;
    let pairs: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    Some(pairs.join(","))
}

/// Remedy of a page that cannot be read; empty if the error says all.
fn advice(error: &PageError, sends_token: bool, has_token: bool) -> &'static str {
    let PageError::Refused(status) = error else { return "" };
    match status.as_u16() {
        401 if sends_token && has_token => {
            "The picker does not accept the controller's token: check that it asks this cluster, or, with a token of yours, EPP_METRIC_READER_BEARER_TOKEN"
        }
        401 if sends_token => {
            "The picker wants a token, and there is none: the log says why none could be requested, or set EPP_METRIC_READER_SERVICE_ACCOUNT"
        }
        401 => {
            "The picker wants a token, and none goes to this namespace: set its label wva.llmd.ai/picker-token to \"true\", or let the picker serve its metrics without authentication"
        }
        403 => {
            "The account of the token may not get the URL /metrics: bind it to a ClusterRole with this right"
        }
        500 => {
            "The picker cannot check tokens: let its account create tokenreviews and subjectaccessreviews, as its chart does with monitoring.prometheus.enabled=true"
        }
        _ => "",
    }
}

/// Logs each fault once.
#[derive(Default)]
struct FaultLog {
    service: Option<String>,
    pods: BTreeMap<Box<str>, Instant>,
}

impl FaultLog {
    /// Returns the selector.
    fn log_service(&mut self, key: &PickerKey, found: Result<Option<String>, String>) -> Option<String> {
        let fault = match found {
            Ok(Some(selector)) => {
                self.service = None;
                return Some(selector);
            }
            Ok(None) => "the Service has no selector".to_owned(),
            Err(error) => error,
        };
        if self.service.as_ref() != Some(&fault) {
            let PickerKey { namespace, picker } = key;
            tracing::warn!(
                namespace,
                %picker,
                fault,
                "Cannot use the Service of an endpoint picker; its models wake only by the queues in Prometheus"
            );
            self.service = Some(fault);
        }
        None
    }

    fn log_pod(&mut self, key: &PickerKey, pod: Box<str>, error: &PageError, advice: &str) {
        self.pods.retain(|_, at| at.elapsed() < WARN_INTERVAL);
        if let Entry::Vacant(unlogged) = self.pods.entry(pod) {
            let pod = &**unlogged.key();
            tracing::warn!(namespace = key.namespace, pod, %error, advice, "Cannot read the metrics of an endpoint picker pod");
            unlogged.insert(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn limits_the_number_of_polled_pods() {
        let mut writer = Writer::new(PickerPod::projection());
        for i in 0..100 {
            let pod = json!({"metadata": {"name": format!("p{i:03}"), "namespace": "ns"}, "status": {"podIP": "10.0.0.1"}});
            writer.apply(&Event::Apply(serde_json::from_value(pod).unwrap()));
        }
        let polled: Vec<_> = targets(&writer.reader()).into_keys().collect();
        assert_eq!((polled.len(), &*polled[0], &*polled[15]), (16, "p000", "p015"));
    }

    #[test]
    fn reads_the_selector_of_a_service() {
        let of = |selector: Value| selector_of(&json!({"spec": {"selector": selector}}));
        assert_eq!(of(json!({"app": "epp", "tier": "a"})).as_deref(), Some("app=epp,tier=a"));
        assert_eq!(of(json!({})), None);
        assert_eq!(
            selector_of(&json!({"spec": {"type": "ExternalName", "externalName": "other.example"}})),
            None
        );
    }

    fn selector_of(service: &Value) -> Option<String> {
        selector(&serde_json::from_value(service.clone()).unwrap())
    }
}
