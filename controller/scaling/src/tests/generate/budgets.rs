//! Random ResourceQuotas and service class priorities.

use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;
use wva_crds::GoDuration;
use wva_crds::entries::Priority;

use crate::snapshot::{QuotaAmount, QuotaLimit, QuotaNeed, QuotaWait, ReturnedReplicas, Snapshot};

/// Quotas and priorities of a snapshot with up to three models.
#[derive(Clone, Debug)]
pub(super) struct Budgets {
    /// Room for pods in each namespace.
    room: Option<u64>,
    /// By model.
    priorities: Option<Vec<u32>>,
    forbidden: bool,
    terminating: u32,
    /// Of the first variant of each model.
    unplaced: u32,
    /// Seconds since the other models gave a replica back to the first one.
    returned: Option<u64>,
}

pub(super) fn budgets() -> impl Strategy<Value = Budgets> {
    let priorities = weighted(0.9, vec(1_u32..4, 3));
    let terminating = prop_oneof![6 => Just(0), 1 => Just(1_u32)];
    let returned = weighted(0.3, prop::sample::select(&[1_u64, 120, 121][..]));
    let unplaced = prop_oneof![6 => Just(0), 1 => 1_u32..4, 1 => Just(1000)];
    let rest = (terminating, unplaced, returned);
    (weighted(0.4, 0_u64..2), priorities, prop::bool::weighted(0.02), rest).prop_map(
        |(room, priorities, forbidden, (terminating, unplaced, returned))| Budgets {
            room,
            priorities,
            forbidden,
            terminating,
            unplaced,
            returned,
        },
    )
}

impl Budgets {
    pub(super) fn add_to(self, snapshot: &mut Snapshot) {
        let Self { room, priorities, forbidden, terminating, unplaced, returned } = self;
        snapshot.config.quotas_forbidden = forbidden;
        let named = |name: &str| name.to_owned();
        if let Some(room) = room {
            let row = |namespace: &str| QuotaLimit {
                namespace: named(namespace),
                quota: named("team"),
                resource: named("pods"),
                limit: QuotaAmount(room + 5),
                used: QuotaAmount(5),
            };
            snapshot.config.quotas = ["ns", "other"].map(row).into();
        }
        let returned = snapshot.models.first().zip(returned).map(|(first, seconds)| ReturnedReplicas {
            namespace: first.namespace.clone(),
            model_id: first.model_id.clone(),
            replicas: 1,
            ago: GoDuration::from_secs(seconds),
        });
        for (i, model) in snapshot.models.iter_mut().enumerate() {
            let priority = priorities.as_ref().and_then(|all| all.get(i)).copied();
            let priority = priority.and_then(|n| Priority::try_from(f64::from(n)).ok());
            if let Some(priority) = priority {
                snapshot.config.priorities.insert(model.model_id.clone(), priority);
                // Every second class is bound to its namespace, too.
                if priority.get() % 2 == 0 {
                    let bound =
                        snapshot.config.namespace_priorities.entry(model.namespace.clone()).or_default();
                    bound.insert(model.model_id.clone(), priority);
                }
            }
            if let Some(variant) = model.variants.first_mut() {
                variant.terminating = terminating;
                variant.unplaced = unplaced;
                variant.returned = returned.clone().filter(|_| i > 0);
                variant.quota_wait = (i == 0).then(|| QuotaWait::Gate(named("example.com/gate")));
                if room.is_some() {
                    let per_replica = QuotaAmount(u64::from(variant.gpus_per_replica.0));
                    variant.quota_needs.push(QuotaNeed {
                        quota: named("team"),
                        resource: named("pods"),
                        per_replica,
                    });
                }
            }
        }
    }
}
