//! Carries out steps from 0 replicas: an HPA switches itself off there, so that nobody else would. What was decided is
//! published first; then the workload is given its replicas, and an event says so. A workload that a ScaledObject takes
//! to 0 and back is left to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use kube::Client;
use tokio::time::Instant;
use wva_scaling::snapshot::Mode;
use wva_scaling::{Decision, VariantKey};

use crate::actuate::{Actuator, Outcome, Step};
use crate::published::{Published, PublishedVariant, Reader};
use crate::report::events::{Told, tell};
use crate::variants::Variant;
use crate::watches::{Cache, Watches};
use crate::workloads::{self, WorkloadKey};

/// Longest wait for the status to show the target, which the external metrics API serves from it. A request that waits
/// must not wait longer for that: an HPA that reads an old 0 keeps its minimum.
const SIGNAL: Duration = Duration::from_millis(300);
/// Time between two looks at it.
const LOOK: Duration = Duration::from_millis(10);
/// First and longest pause before a step that failed is tried again.
const PAUSE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// Carries out steps from 0 replicas.
pub struct FromZero {
    /// Through a client that lets nothing through when this replica does not lead.
    pub actuator: Actuator,
    /// The same client, for events.
    pub acting: Client,
    /// Watch caches.
    pub watches: Watches,
    /// Who reports events.
    pub pod_name: Option<String>,
}

/// One step that is to be carried out.
#[derive(Clone, Debug, PartialEq)]
struct Due {
    key: VariantKey,
    uid: String,
    step: Step,
    /// Why, for the event.
    why: String,
}

/// What was tried of a step.
#[derive(Clone, Copy, Debug)]
struct Tried {
    failures: u32,
    /// Not again before; `None` while it is under way.
    again: Option<Instant>,
}

impl FromZero {
    /// Carries out what is published, until the engine is gone. To be run by the leader.
    pub async fn run(&self, mut published: Reader) {
        let mut tried: BTreeMap<VariantKey, Tried> = BTreeMap::new();
        let mut under_way = FuturesUnordered::new();
        loop {
            let newest = published.borrow_and_update().clone();
            let due = newest.map(|newest| self.due(&newest)).unwrap_or_default();
            tried.retain(|key, tried| tried.again.is_none() || due.iter().any(|due| due.key == *key));
            let now = Instant::now();
            for due in due {
                let before = tried.get(&due.key).copied().unwrap_or(Tried { failures: 0, again: Some(now) });
                if before.again.is_some_and(|again| again <= now) {
                    tried.insert(due.key.clone(), Tried { again: None, ..before });
                    under_way.push(self.carry_out(due));
                }
            }
            let next = tried.values().filter_map(|tried| tried.again).min();
            tokio::select! {
                changed = published.changed() => if changed.is_err() { return },
                Some((key, carried_out)) = under_way.next() => {
                    let failures = tried.get(&key).map_or(0, |tried| tried.failures);
                    // One that was carried out is looked at again, for the watch cache may not show it yet.
                    let failures = if carried_out { 0 } else { failures.saturating_add(1) };
                    tried.insert(key, Tried { failures, again: Some(Instant::now() + pause(failures)) });
                }
                () = tokio::time::sleep_until(next.unwrap_or(now)), if next.is_some() => {}
            }
        }
    }

    /// The steps from 0 that are published and not carried out.
    fn due(&self, published: &Published) -> Vec<Due> {
        let mut due: Vec<Due> = Vec::new();
        for (key, variant) in &published.variants {
            if let Some(to) = lifted(variant)
                && let Some(step) = self.step(key, to)
            {
                let why = variant.decision.as_ref().map(Decision::reason);
                let why = why.map(ToString::to_string).unwrap_or_default();
                due.push(Due { key: key.clone(), uid: variant.uid.clone(), step, why });
            }
        }
        if !due.is_empty() {
            let others = keda_wakes(&self.watches);
            due.retain(|due| !others.contains(&due.step.workload));
        }
        due
    }

    /// The step of a variant's workload, where that is at 0 still.
    fn step(&self, key: &VariantKey, to: u32) -> Option<Step> {
        let variant = self.watches.variants.get(&key.namespace, &key.name)?;
        let workload = variant.workload()?.clone();
        let seen = workloads::workload(&self.watches, &workload)?;
        (seen.replicas.current == 0).then(|| Step { workload, uid: seen.uid, from: 0, to })
    }

    /// Carries one step out; whether it was.
    async fn carry_out(&self, due: Due) -> (VariantKey, bool) {
        let Due { key, uid, step, why } = due;
        shown(&self.watches.variants, &key, step.to).await;
        let outcome = self.actuator.carry_out(&step).await;
        let carried_out = match outcome {
            Ok(Outcome::Done) => {
                let note = format!("scaled from 0 to {}: {why}", step.to);
                let told = Told { warning: false, reason: "ScaledFromZero", note };
                tell(&self.acting, &key, &uid, &told, self.pod_name.as_deref()).await;
                true
            }
            // What somebody else did shows in the watch cache in a moment.
            Ok(Outcome::Already | Outcome::Overtaken | Outcome::Gone) => true,
            Err(error) => {
                tracing::warn!(
                    namespace = key.namespace,
                    variant = key.name,
                    %error,
                    "A step from 0 replicas could not be carried out; it is tried again"
                );
                false
            }
        };
        (key, carried_out)
    }
}

/// The replicas a variant is lifted to from 0, where its mode lets that be carried out.
fn lifted(variant: &PublishedVariant) -> Option<u32> {
    let decision = variant.decision.as_ref()?;
    let acts = matches!(decision.mode, Mode::Auto | Mode::Fixed(_));
    (acts && decision.current == 0).then(|| decision.target()).filter(|to| *to > 0)
}

/// Workloads that a ScaledObject takes to 0 and back.
fn keda_wakes(watches: &Watches) -> BTreeSet<WorkloadKey> {
    let mut all = BTreeSet::new();
    watches.scaled_objects.cache.each(|namespace, _, object| {
        if object.limits.min == 0 {
            all.insert(WorkloadKey {
                namespace: namespace.to_owned(),
                kind: object.kind.to_string(),
                name: object.name.to_string(),
            });
        }
    });
    all
}

/// Waits until the status of a variant shows its target.
async fn shown(variants: &Cache<Arc<Variant>>, key: &VariantKey, target: u32) {
    let shows = |v: &Arc<Variant>| {
        let alloc = v.status.alloc.as_ref();
        alloc.is_some_and(|a| u32::try_from(a.num_replicas).is_ok_and(|n| n >= target))
    };
    let waited = async {
        let mut looks = tokio::time::interval(LOOK);
        while variants.ask(&key.namespace, &key.name, shows) == Some(false) {
            looks.tick().await;
        }
    };
    // However it ends, the gauge and the decision are out.
    let _ = tokio::time::timeout(SIGNAL, waited).await;
}

fn pause(failures: u32) -> Duration {
    PAUSE.0.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1))).min(PAUSE.1)
}
