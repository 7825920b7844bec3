//! Which series are read. A pod writes what it likes on its page, so wva keeps series of its own variants only, and of
//! each pod no more than a server has.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use super::pod_model::PodModel;
use crate::observe::pods::without_rank;

/// Most names of models in the series of a pod. Names of models in the namespace count without a limit.
const MAX_NAMES: usize = 32;
/// Most engines of a pod, on all of its servers.
pub(crate) const MAX_ENGINES: usize = 64;
/// Most series of a pod in an answer: 64 engines with 32 counters.
const MAX_SERIES: usize = 2048;
/// Most InferencePools of a namespace.
const MAX_POOLS: usize = 64;
/// Most series of a model in an answer. Histograms have the most: vLLM has 24 buckets, and the router 25.
const MAX_SERIES_OF_MODEL: usize = 512;
/// Longer labels are not read. A name of a pod or namespace has at most 253 bytes.
const LONGEST_NAME: usize = 512;
/// Most pods of no workload that are counted.
const MAX_UNMAPPED: usize = 1000;
/// Most limits that are reported.
const MAX_REACHED: usize = 16;

/// Models and pods whose series are read. Its names are shared with everything that is read.
#[derive(Debug, Default)]
pub(crate) struct SeriesFilter {
    namespaces: HashMap<Arc<str>, NamespaceFilter>,
    /// Number of managed pods.
    pods: usize,
    /// Tests of single queries read everything.
    #[cfg(test)]
    reads_all: bool,
}

#[derive(Debug, Default)]
struct NamespaceFilter {
    models: HashSet<Arc<str>>,
    /// Positions of pods of variants; `None` for pods of other workloads.
    pods: HashMap<Arc<str>, Option<usize>>,
}

impl SeriesFilter {
    #[cfg(test)]
    pub(crate) fn everything() -> Self {
        Self { reads_all: true, ..Self::default() }
    }

    pub(crate) fn add_model(&mut self, namespace: &str, model: &str) {
        if !self.namespaces.contains_key(namespace) {
            self.namespaces.insert(namespace.into(), NamespaceFilter::default());
        }
        if let Some(of) = self.namespaces.get_mut(namespace).filter(|of| !of.models.contains(model)) {
            of.models.insert(model.into());
        }
    }

    /// `is_managed`: it belongs to a variant, else to another workload.
    pub(crate) fn add_pod(&mut self, namespace: &str, pod: &str, is_managed: bool) {
        if let Some(of_namespace) = self.namespaces.get_mut(namespace) {
            of_namespace.pods.insert(pod.into(), is_managed.then_some(self.pods));
            self.pods += usize::from(is_managed);
        }
    }

    /// The shared name of a managed namespace.
    fn namespace(&self, namespace: &str) -> Option<Arc<str>> {
        #[cfg(test)]
        if self.reads_all {
            return Some(namespace.into());
        }
        self.namespaces.get_key_value(namespace).map(|(name, _)| name.clone())
    }

    /// The shared name of a managed model.
    fn model(&self, namespace: &str, model: &str) -> Option<Arc<str>> {
        #[cfg(test)]
        if self.reads_all {
            return Some(model.into());
        }
        self.namespaces.get(namespace)?.models.get(model).cloned()
    }

    fn pod(&self, namespace: &str, label: &str) -> FoundPod {
        #[cfg(test)]
        if self.reads_all {
            return FoundPod::Managed(label.into(), 0);
        }
        let pods = self.namespaces.get(namespace).map(|of| &of.pods);
        let find = |name: &str| pods?.get_key_value(name).map(|(name, at)| (name.clone(), *at));
        let found =
            find(label).or_else(|| without_rank(label).and_then(find).map(|(_, at)| (Arc::from(label), at)));
        match found {
            Some((name, Some(at))) => FoundPod::Managed(name, at),
            Some((_, None)) => FoundPod::Other,
            None => FoundPod::Unmapped,
        }
    }
}

/// What the label of a pod means.
enum FoundPod {
    /// A pod of a variant: its shared name, and its position.
    Managed(Arc<str>, usize),
    /// A pod of another workload.
    Other,
    /// A pod of no known workload.
    Unmapped,
}

/// Namespace and name of a pod.
pub(crate) type PodName = (Box<str>, Box<str>);

/// A limit that series reached. Further ones are not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReachedLimit {
    pub(crate) namespace: Arc<str>,
    /// Kind of the object that has them.
    kind: &'static str,
    name: Arc<str>,
    limit: Limit,
}

/// How many of something are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limit {
    most: usize,
    what: &'static str,
}

impl fmt::Display for ReachedLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name, limit: Limit { most, what }, .. } = self;
        write!(f, "{kind} {name:?} has more than {most} {what}")
    }
}

#[derive(Clone, Debug, Default)]
struct SeenPod {
    series: usize,
    /// Names of models in the series that no managed model has.
    names: Vec<Arc<str>>,
    engines: Vec<Arc<str>>,
}

/// Names in the series of one answer that are read.
#[derive(Debug)]
pub(crate) struct ReadNames {
    filter: Arc<SeriesFilter>,
    /// Pods by position; empty until the first series of a pod.
    pods: Vec<SeenPod>,
    /// Series of each model, by namespace.
    models: HashMap<(Arc<str>, Arc<str>), usize>,
    pools: HashMap<Arc<str>, Vec<Arc<str>>>,
    unmapped: HashSet<PodName>,
    reached: Vec<ReachedLimit>,
}

/// A managed pod and a name of a model in its series.
#[derive(Debug)]
pub(crate) struct ReadPod {
    pub(crate) key: PodModel,
    at: usize,
}

impl ReadNames {
    pub(crate) fn new(filter: Arc<SeriesFilter>) -> Self {
        let (pods, models, pools, unmapped, reached) = Default::default();
        Self { filter, pods, models, pools, unmapped, reached }
    }

    /// Pods of no known workload, and limits that were reached.
    pub(crate) fn into_parts(self) -> (HashSet<PodName>, Vec<ReachedLimit>) {
        (self.unmapped, self.reached)
    }

    /// Key of a series of a managed pod. Counts the series.
    pub(crate) fn pod(&mut self, namespace: &str, pod: &str, model: &str) -> Option<ReadPod> {
        let (pod, at) = match self.filter.pod(namespace, pod) {
            FoundPod::Managed(name, at) => (name, at),
            FoundPod::Other => return None,
            FoundPod::Unmapped => {
                if self.unmapped.len() < MAX_UNMAPPED {
                    self.unmapped.insert((namespace.into(), pod.into()));
                }
                return None;
            }
        };
        let namespace = self.filter.namespace(namespace)?;
        if self.pods.is_empty() {
            self.pods.resize(self.filter.pods.max(1), SeenPod::default());
        }
        let seen = self.pods.get_mut(at)?;
        seen.series += 1;
        if seen.series > MAX_SERIES {
            let limit = Limit { most: MAX_SERIES, what: "series" };
            reach(&mut self.reached, &namespace, "pod", &pod, limit);
            return None;
        }
        let name =
            self.filter.model(&namespace, model).or_else(|| limited(&mut seen.names, model, MAX_NAMES));
        let Some(model_name) = name else {
            let limit = too_many(model, Limit { most: MAX_NAMES, what: "names of models" });
            reach(&mut self.reached, &namespace, "pod", &pod, limit);
            return None;
        };
        Some(ReadPod { key: PodModel { namespace, pod, model_name }, at })
    }

    /// Engine of a pod, with the name of its server after `@`.
    pub(crate) fn engine(&mut self, of: &ReadPod, engine: &str, server: &str) -> Option<Arc<str>> {
        let seen = self.pods.get_mut(of.at)?;
        let engine = if server.is_empty() { engine } else { &format!("{engine}@{server}") };
        let found = limited(&mut seen.engines, engine, MAX_ENGINES);
        if found.is_none() {
            let PodModel { namespace, pod, .. } = &of.key;
            let limit = too_many(engine, Limit { most: MAX_ENGINES, what: "engines" });
            reach(&mut self.reached, namespace, "pod", pod, limit);
        }
        found
    }

    /// Namespace and name of a managed model. Counts its series.
    pub(crate) fn model(&mut self, namespace: &str, model: &str) -> Option<(Arc<str>, Arc<str>)> {
        let key = (self.filter.namespace(namespace)?, self.filter.model(namespace, model)?);
        let series = self.models.entry(key.clone()).or_default();
        *series += 1;
        if *series > MAX_SERIES_OF_MODEL {
            let limit = Limit { most: MAX_SERIES_OF_MODEL, what: "series" };
            reach(&mut self.reached, &key.0, "model", &key.1, limit);
            return None;
        }
        Some(key)
    }

    /// Namespace and name of an `InferencePool`.
    pub(crate) fn pool(&mut self, namespace: &str, pool: &str) -> Option<(Arc<str>, Arc<str>)> {
        let namespace = self.filter.namespace(namespace)?;
        let found = limited(self.pools.entry(namespace.clone()).or_default(), pool, MAX_POOLS);
        if found.is_none() {
            let limit = too_many(pool, Limit { most: MAX_POOLS, what: "InferencePools" });
            reach(&mut self.reached, &namespace, "namespace", &namespace, limit);
        }
        Some((namespace, found?))
    }
}

/// The stored name; `None` if there are too many, or it is too long.
fn limited(known: &mut Vec<Arc<str>>, name: &str, most: usize) -> Option<Arc<str>> {
    if let Some(known) = known.iter().find(|known| ***known == *name) {
        return Some(known.clone());
    }
    let name: Arc<str> = (known.len() < most && name.len() <= LONGEST_NAME).then(|| name.into())?;
    // Most pods have one.
    known.reserve_exact(1);
    known.push(name.clone());
    Some(name)
}

/// The limit that a new name exceeds.
fn too_many(name: &str, number: Limit) -> Limit {
    let length = Limit { most: LONGEST_NAME, what: "bytes in a label" };
    if name.len() > LONGEST_NAME { length } else { number }
}

/// Notes it once.
fn reach(
    reached: &mut Vec<ReachedLimit>,
    namespace: &Arc<str>,
    kind: &'static str,
    name: &Arc<str>,
    limit: Limit,
) {
    let new = ReachedLimit { namespace: namespace.clone(), kind, name: name.clone(), limit };
    if reached.len() < MAX_REACHED && !reached.contains(&new) {
        reached.push(new);
    }
}

#[cfg(test)]
mod tests;
