//! Replicas of one workload over time, from a watch.

use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use parking_lot::{Mutex, MutexGuard};
use tokio::task::JoinSet;

use crate::variants::follow;

/// Changes of a workload's replicas since the watch began.
#[derive(Clone, Default)]
pub(crate) struct History(Arc<Mutex<Vec<(Instant, i32)>>>);

impl History {
    pub(crate) fn all(&self) -> MutexGuard<'_, Vec<(Instant, i32)>> {
        self.0.lock()
    }

    /// Watches the only workload of a namespace.
    pub(crate) fn follow(&self, deployments: Api<Deployment>) -> JoinSet<()> {
        let history = self.clone();
        follow(deployments, move |deployment: Deployment| {
            let replicas = deployment.spec.and_then(|spec| spec.replicas).unwrap_or(1);
            let mut all = history.all();
            if all.last().is_none_or(|(_, last)| *last != replicas) {
                all.push((Instant::now(), replicas));
            }
        })
    }

    /// Time of the first change after a moment that satisfies a condition.
    pub(crate) fn first_since(&self, since: Instant, wanted: impl Fn(i32) -> bool) -> Option<Instant> {
        self.all().iter().find(|(at, replicas)| *at > since && wanted(*replicas)).map(|(at, _)| *at)
    }

    pub(crate) fn now(&self) -> Option<i32> {
        self.all().last().map(|(_, replicas)| *replicas)
    }
}
