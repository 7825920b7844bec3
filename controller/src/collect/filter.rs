//! Which series are read. A pod writes what it likes on its page, so wva keeps series of its own variants only, and of
//! each pod no more than a server has.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use super::signals::PodModel;

/// Most names of models in the series of a pod. Names of models in the namespace count without a limit.
const MAX_NAMES: usize = 32;
/// Most engines of a pod, on all of its servers.
const MAX_ENGINES: usize = 64;
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

/// Models and pods whose series are read.
#[derive(Debug, Default)]
pub(crate) struct SeriesFilter {
    namespaces: HashMap<Box<str>, NamespaceFilter>,
    /// Tests of single queries read everything.
    #[cfg(test)]
    reads_all: bool,
}

#[derive(Debug, Default)]
struct NamespaceFilter {
    models: HashSet<Box<str>>,
    /// True for pods of variants, false for those of other workloads.
    pods: HashMap<Box<str>, bool>,
}

impl SeriesFilter {
    #[cfg(test)]
    pub(crate) fn everything() -> Self {
        Self { reads_all: true, ..Self::default() }
    }

    pub(crate) fn add_model(&mut self, namespace: &str, model: &str) {
        self.namespaces.entry(namespace.into()).or_default().models.insert(model.into());
    }

    /// `is_managed`: it belongs to a variant, else to another workload.
    pub(crate) fn add_pod(&mut self, namespace: &str, pod: &str, is_managed: bool) {
        if let Some(of_namespace) = self.namespaces.get_mut(namespace) {
            of_namespace.pods.insert(pod.into(), is_managed);
        }
    }

    fn has_namespace(&self, namespace: &str) -> bool {
        #[cfg(test)]
        if self.reads_all {
            return true;
        }
        self.namespaces.contains_key(namespace)
    }

    fn has_model(&self, namespace: &str, model: &str) -> bool {
        #[cfg(test)]
        if self.reads_all {
            return true;
        }
        self.namespaces.get(namespace).is_some_and(|of| of.models.contains(model))
    }

    /// `None`: it belongs to no known workload.
    fn pod(&self, namespace: &str, label: &str) -> Option<bool> {
        #[cfg(test)]
        if self.reads_all {
            return Some(true);
        }
        let pods = &self.namespaces.get(namespace)?.pods;
        pods.get(label).or_else(|| pods.get(without_rank(label)?)).copied()
    }
}

/// Name of the pod that a label with a rank suffix, as KServe writes it, may mean.
pub(crate) fn without_rank(label: &str) -> Option<&str> {
    let (name, rank) = label.rsplit_once("-rank-")?;
    rank.bytes().all(|b| b.is_ascii_digit()).then_some(name)
}

/// Namespace and name of a pod.
pub(crate) type PodName = (Box<str>, Box<str>);

/// A limit that series reached. Further ones are not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReachedLimit {
    pub(crate) namespace: Arc<str>,
    /// Kind and name.
    of: (&'static str, Arc<str>),
    limit: usize,
    what: &'static str,
}

impl fmt::Display for ReachedLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { of: (kind, name), limit, what, .. } = self;
        write!(f, "{kind} {name:?} has more than {limit} {what}")
    }
}

#[derive(Debug, Default)]
struct SeenNamespace {
    pods: HashMap<Arc<str>, SeenPod>,
    /// Series of each model.
    models: HashMap<Arc<str>, usize>,
    pools: HashSet<Arc<str>>,
}

#[derive(Debug, Default)]
struct SeenPod {
    series: usize,
    names: Vec<Arc<str>>,
    engines: Vec<Arc<str>>,
}

/// Names in the series of one answer that are read. Each is stored once: an answer repeats a few of them thousands of times.
#[derive(Debug)]
pub(crate) struct ReadNames {
    filter: Arc<SeriesFilter>,
    seen: HashMap<Arc<str>, SeenNamespace>,
    unmapped: HashSet<PodName>,
    reached: Vec<ReachedLimit>,
}

impl ReadNames {
    pub(crate) fn new(filter: Arc<SeriesFilter>) -> Self {
        Self { filter, seen: HashMap::new(), unmapped: HashSet::new(), reached: Vec::new() }
    }

    /// Pods of no known workload, and limits that were reached.
    pub(crate) fn into_parts(self) -> (HashSet<PodName>, Vec<ReachedLimit>) {
        (self.unmapped, self.reached)
    }

    /// Key of a series of a managed pod. Counts the series.
    pub(crate) fn pod_model(&mut self, namespace: &str, pod: &str, model: &str) -> Option<PodModel> {
        match self.filter.pod(namespace, pod) {
            Some(true) => {}
            Some(false) => return None,
            None => {
                if self.unmapped.len() < MAX_UNMAPPED {
                    self.unmapped.insert((namespace.into(), pod.into()));
                }
                return None;
            }
        }
        let (namespace, seen) = entry(&mut self.seen, namespace);
        let (pod, of_pod) = entry(&mut seen.pods, pod);
        of_pod.series += 1;
        let of = ("pod", &pod);
        if of_pod.series > MAX_SERIES {
            reach(&mut self.reached, &namespace, of, (MAX_SERIES, "series"));
            return None;
        }
        let most = if self.filter.has_model(&namespace, model) { usize::MAX } else { MAX_NAMES };
        let Some(model_name) = limited(&mut of_pod.names, model, most) else {
            reach(&mut self.reached, &namespace, of, too_many(model, (MAX_NAMES, "names of models")));
            return None;
        };
        Some(PodModel { namespace, pod, model_name })
    }

    /// Engine of a pod, with the name of its server after `@`.
    pub(crate) fn engine(&mut self, of: &PodModel, engine: &str, server: &str) -> Option<Arc<str>> {
        let (namespace, seen) = entry(&mut self.seen, &of.namespace);
        let (pod, of_pod) = entry(&mut seen.pods, &of.pod);
        let engine = if server.is_empty() { engine } else { &format!("{engine}@{server}") };
        let found = limited(&mut of_pod.engines, engine, MAX_ENGINES);
        if found.is_none() {
            reach(&mut self.reached, &namespace, ("pod", &pod), too_many(engine, (MAX_ENGINES, "engines")));
        }
        found
    }

    /// Namespace and name of a managed model. Counts its series.
    pub(crate) fn model(&mut self, namespace: &str, model: &str) -> Option<(Arc<str>, Arc<str>)> {
        if !self.filter.has_model(namespace, model) {
            return None;
        }
        let (namespace, seen) = entry(&mut self.seen, namespace);
        let (model, series) = entry(&mut seen.models, model);
        *series += 1;
        if *series > MAX_SERIES_OF_MODEL {
            reach(&mut self.reached, &namespace, ("model", &model), (MAX_SERIES_OF_MODEL, "series"));
            return None;
        }
        Some((namespace, model))
    }

    /// Namespace and name of an `InferencePool`.
    pub(crate) fn pool(&mut self, namespace: &str, pool: &str) -> Option<(Arc<str>, Arc<str>)> {
        if !self.filter.has_namespace(namespace) {
            return None;
        }
        let (namespace, seen) = entry(&mut self.seen, namespace);
        if let Some(known) = seen.pools.get(pool) {
            return Some((namespace, known.clone()));
        }
        if seen.pools.len() >= MAX_POOLS || pool.len() > LONGEST_NAME {
            let of = ("namespace", &namespace.clone());
            reach(&mut self.reached, &namespace, of, too_many(pool, (MAX_POOLS, "InferencePools")));
            return None;
        }
        let pool: Arc<str> = pool.into();
        seen.pools.insert(pool.clone());
        Some((namespace, pool))
    }
}

/// The stored name, and its value.
fn entry<'a, V: Default>(all: &'a mut HashMap<Arc<str>, V>, name: &str) -> (Arc<str>, &'a mut V) {
    let name = all.get_key_value(name).map_or_else(|| name.into(), |(known, _)| known.clone());
    (name.clone(), all.entry(name).or_default())
}

/// The stored name; `None` if there are too many, or it is too long.
fn limited(known: &mut Vec<Arc<str>>, name: &str, most: usize) -> Option<Arc<str>> {
    if let Some(known) = known.iter().find(|known| ***known == *name) {
        return Some(known.clone());
    }
    let is_allowed = known.len() < most && (name.len() <= LONGEST_NAME || most == usize::MAX);
    let name: Arc<str> = is_allowed.then(|| name.into())?;
    known.push(name.clone());
    Some(name)
}

/// The limit that a new name exceeds.
fn too_many(name: &str, number: (usize, &'static str)) -> (usize, &'static str) {
    if name.len() > LONGEST_NAME { (LONGEST_NAME, "bytes in a label") } else { number }
}

/// Notes it once.
fn reach(
    reached: &mut Vec<ReachedLimit>,
    namespace: &Arc<str>,
    (kind, name): (&'static str, &Arc<str>),
    (limit, what): (usize, &'static str),
) {
    let new = ReachedLimit { namespace: namespace.clone(), of: (kind, name.clone()), limit, what };
    if reached.len() < MAX_REACHED && !reached.contains(&new) {
        reached.push(new);
    }
}

#[cfg(test)]
mod tests;
