//! What cycles and reports know of endpoint pickers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::watch;
use wva_crds::picker_report::PickerReport;
use wva_objects::WorkloadKey;
#[cfg(test)]
use wva_runtime::Availability;
use wva_runtime::OptionalCache;
use wva_scaling::VariantKey;
use wva_scaling::snapshot::WakeObstacle;

use super::endpoint::Answers;
use super::queues::Queues;
use super::selection::{self, PickerQuery, Routes, ServingState, select_pickers};
use super::{PickerKey, PolledAnswers};
use crate::model::keys::NamedPickers;
use crate::model::published::PublishedVariant;
use crate::observe::pools::Pool;
use crate::observe::variants::ManagedVariant;
use crate::observe::watches::Watches;
use wva_scaling::ModelKey;

/// InferencePools and the queues at their pickers.
#[derive(Clone)]
pub struct Pickers {
    pub(super) pools: OptionalCache<Pool>,
    pub(super) named: watch::Sender<Arc<NamedPickers>>,
    pub(super) queues: watch::Receiver<Arc<Queues>>,
    pub(super) polled: watch::Receiver<Arc<PolledAnswers>>,
}

impl Pickers {
    pub(crate) fn queues(&self) -> watch::Receiver<Arc<Queues>> {
        self.queues.clone()
    }

    /// What was last read of each picker.
    #[must_use]
    pub fn reports(&self) -> Vec<PickerReport> {
        let now = Instant::now();
        let report =
            |(key, (query, answers)): (&PickerKey, &(watch::Receiver<_>, watch::Receiver<Answers>))| {
                let query: Arc<PickerQuery> = Arc::clone(&query.borrow());
                PickerReport {
                    namespace: key.namespace.clone(),
                    picker: key.picker.to_string(),
                    models: query.all().cloned().collect(),
                    pods: answers.borrow().iter().map(|(pod, answer)| answer.report(pod, now)).collect(),
                }
            };
        self.polled.borrow().iter().map(report).collect()
    }

    /// Sets the pickers that entries name.
    pub(crate) fn set_named(&self, named: NamedPickers) {
        self.named.send_if_modified(|now| {
            let differs = **now != named;
            if differs {
                *now = Arc::new(named);
            }
            differs
        });
    }

    /// Whether a picker queues requests of this workload of a model.
    pub(crate) fn has_picker(&self, watches: &Watches, workload: &WorkloadKey, model: &str) -> bool {
        let routes = Routes { watches, pools: &self.pools.cache, named: &self.named.borrow() };
        !routes.is_empty() && !routes.pickers(workload, model).is_empty()
    }

    /// Pools that select pods of these workloads. `may_fail`: requests may fail while the model is at zero.
    pub(crate) fn pools_of(
        &self,
        watches: &Watches,
        workloads: &[&WorkloadKey],
        model: &str,
        may_fail: bool,
    ) -> Vec<ModelPool> {
        let routes = Routes { watches, pools: &self.pools.cache, named: &self.named.borrow() };
        if routes.is_empty() {
            return Vec::new();
        }
        let queues = self.queues.borrow();
        let names: BTreeMap<_, _> =
            workloads.iter().flat_map(|workload| routes.pool_pickers(workload, model)).collect();
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
        model: &str,
        workloads: &[&WorkloadKey],
    ) -> bool {
        let routes = Routes { watches, pools: &self.pools.cache, named: &self.named.borrow() };
        routes.serves_only(&pool.picker, model, workloads)
    }

    /// Models to wake without a recent answer from all pods of all pickers.
    pub(crate) fn models_with_unread_queue(
        &self,
        watches: &Watches,
        managed: &[ManagedVariant],
        variants: &BTreeMap<VariantKey, Arc<PublishedVariant>>,
        now: Instant,
    ) -> BTreeSet<ModelKey> {
        let routes = Routes { watches, pools: &self.pools.cache, named: &self.named.borrow() };
        let state = |key: &VariantKey| {
            ServingState::from_decision(variants.get(key).and_then(|v| v.decision.as_ref()))
        };
        if routes.is_empty() || !variants.keys().any(|key| state(key) == ServingState::ToZero) {
            return BTreeSet::new();
        }
        let queues = self.queues.borrow();
        let queries = select_pickers(&routes, managed, state, |_| false);
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
        let (_, polled) = watch::channel(Arc::default());
        (Self { pools, named: watch::Sender::default(), queues, polled }, sender)
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
