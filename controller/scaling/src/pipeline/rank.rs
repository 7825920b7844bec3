//! Ranks of models for the GPUs and quotas that they share.

use std::cmp::Ordering;

use crate::snapshot::{Config, Priority};

/// Rank of a model by its service classes. Any tenant may give a model the name that a class lists, so a class counts
/// against models of other namespaces only where the operator bound it to the namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rank {
    /// Best priority of the classes that are bound to the namespace. It counts against all models.
    bound: Option<Priority>,
    /// Best priority of the other classes. It counts within the namespace.
    named: Option<Priority>,
}

impl Rank {
    pub(super) fn of(config: &Config, namespace: &str, model_id: &str) -> Self {
        let bound = config.namespace_priorities.get(namespace).and_then(|models| models.get(model_id));
        Self { bound: bound.copied(), named: config.priorities.get(model_id).copied() }
    }

    pub(super) fn is_bound(self) -> bool {
        self.bound.is_some()
    }

    pub(super) fn has_class(self) -> bool {
        self.bound.is_some() || self.named.is_some()
    }

    /// The better one first. Models without a bound class are equal, and come last.
    pub(super) fn cmp_across(self, other: Self) -> Ordering {
        let key = |rank: Self| (rank.bound.is_none(), rank.bound);
        key(self).cmp(&key(other))
    }

    /// The same for two models of a namespace. Models without a class are equal, and come last.
    pub(super) fn cmp_within(self, other: Self) -> Ordering {
        let key = |rank: Self| (rank.named.is_none(), rank.named);
        self.cmp_across(other).then(key(self).cmp(&key(other)))
    }

    /// Whether classes rank the model before another one, which has a class as well.
    pub(super) fn is_better(self, other: Self, is_same_namespace: bool) -> bool {
        let [own, other] =
            [self, other].map(|rank| if is_same_namespace { rank } else { Self { named: None, ..rank } });
        own.has_class() && other.has_class() && own.cmp_within(other).is_lt()
    }
}
