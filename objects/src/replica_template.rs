//! Pods of one replica of a workload.

use std::collections::BTreeMap;

use serde::Deserialize as _;
use serde::de::Error as _;
use serde_json::Value;
use thiserror::Error;

use crate::pod::{PodSpec, PodTemplate};

/// Why a workload has no readable pods.
#[derive(Debug, Error)]
pub enum TemplateError {
    /// The workload has no pod template.
    #[error("no pod template")]
    Missing,
    /// The pod template is not one.
    #[error("invalid pod template: {0}")]
    Invalid(#[from] serde_json::Error),
}

/// Pods of one replica.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReplicaTemplate {
    /// The pod; of a group its leader.
    pub leader: PodSpec,
    /// Labels of the leader.
    pub labels: BTreeMap<String, String>,
    /// The other pods of a group.
    pub workers: Option<Workers>,
}

/// Workers of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct Workers {
    /// Spec of each worker.
    pub pod: PodSpec,
    /// Number of workers.
    pub count: u64,
}

impl ReplicaTemplate {
    /// Reads a Deployment, StatefulSet or LeaderWorkerSet.
    ///
    /// # Errors
    /// It has no pod template, or an invalid one.
    pub fn from_workload(workload: &Value) -> Result<Self, TemplateError> {
        match workload.pointer("/spec/leaderWorkerTemplate") {
            Some(group) => Self::from_group(group),
            None => Self::from_pods(workload.pointer("/spec/template"), None, 0),
        }
    }

    /// A leader and `size - 1` workers. Without a leader template the leader uses the worker template.
    fn from_group(group: &Value) -> Result<Self, TemplateError> {
        let template = |name: &str| group.get(name).filter(|template| !template.is_null());
        let worker = template("workerTemplate");
        let count = group.get("size").and_then(Value::as_u64).unwrap_or(1).saturating_sub(1);
        Self::from_pods(template("leaderTemplate").or(worker), worker, count)
    }

    /// `count`: number of workers.
    fn from_pods(leader: Option<&Value>, worker: Option<&Value>, count: u64) -> Result<Self, TemplateError> {
        let read = |template: &Value| {
            if !template.is_object() {
                return Err(TemplateError::Invalid(serde_json::Error::custom("not an object")));
            }
            let PodTemplate { metadata, spec } = PodTemplate::deserialize(template)?;
            let labels = metadata.and_then(|meta| meta.labels).unwrap_or_default();
            Ok::<_, TemplateError>((labels, spec.ok_or(TemplateError::Missing)?))
        };
        let (labels, leader) = read(leader.ok_or(TemplateError::Missing)?)?;
        let workers = match worker.filter(|_| count > 0) {
            Some(template) => Some(Workers { pod: read(template)?.1, count }),
            None => None,
        };
        Ok(Self { leader, labels, workers })
    }

    /// Each pod, and how often a replica has it.
    pub fn pods(&self) -> impl Iterator<Item = (&PodSpec, u64)> {
        let workers = self.workers.iter().map(|workers| (&workers.pod, workers.count));
        std::iter::once((&self.leader, 1)).chain(workers)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str) -> Value {
        json!({"spec": {"containers": [{"name": name}]}})
    }

    /// Names of the first containers, and the numbers of pods.
    fn pods(spec: &Value) -> Result<Vec<(String, u64)>, String> {
        let read = ReplicaTemplate::from_workload(&json!({"spec": spec})).map_err(|e| e.to_string())?;
        Ok(read.pods().map(|(pod, count)| (pod.containers[0].name.clone(), count)).collect())
    }

    #[test]
    fn reads_pods_of_each_kind_of_workload() {
        let (leader, worker) = (pod("leader"), pod("worker"));
        for (spec, want) in [
            (json!({"template": leader}), vec![("leader", 1)]),
            (
                json!({"leaderWorkerTemplate": {"size": 4, "leaderTemplate": leader, "workerTemplate": worker}}),
                vec![("leader", 1), ("worker", 3)],
            ),
            (
                json!({"leaderWorkerTemplate": {"size": 2, "workerTemplate": worker}}),
                vec![("worker", 1), ("worker", 1)],
            ),
            (
                json!({"leaderWorkerTemplate": {"leaderTemplate": leader, "workerTemplate": worker}}),
                vec![("leader", 1)],
            ),
        ] {
            let want: Vec<(String, u64)> =
                want.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
            assert_eq!(pods(&spec), Ok(want), "{spec}");
        }
    }

    #[test]
    fn names_missing_and_invalid_templates() {
        for spec in [json!({}), json!({"template": {}}), json!({"leaderWorkerTemplate": {}})] {
            assert_eq!(pods(&spec), Err("no pod template".to_owned()), "{spec}");
        }
        let error = pods(&json!({"leaderWorkerTemplate": {"workerTemplate": 7}})).unwrap_err();
        assert!(error.starts_with("invalid pod template: "), "{error}");
    }
}
