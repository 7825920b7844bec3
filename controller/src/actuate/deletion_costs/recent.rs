//! Last marks of variants that an autoscaler scales. A mark is repeated when it can differ, else every [`REFRESH`].

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;
use wva_scaling::VariantKey;

use super::REFRESH;
use crate::model::published::Published;
use crate::observe::watches::PodFacts;

#[derive(Debug)]
struct Mark {
    at: Instant,
    to: u32,
    /// Digest of the names and the readiness.
    pods: u64,
}

#[derive(Debug, Default)]
pub(super) struct RecentMarks(Mutex<BTreeMap<VariantKey, Mark>>);

impl RecentMarks {
    fn all(&self) -> MutexGuard<'_, BTreeMap<VariantKey, Mark>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a mark is due now. If so, it is recorded.
    pub(super) fn begin(&self, variant: &VariantKey, to: u32, pods: &[(Box<str>, PodFacts)]) -> bool {
        let mut digest = DefaultHasher::new();
        for (name, pod) in pods {
            (name, pod.progress.is_ready()).hash(&mut digest);
        }
        let mark = Mark { at: Instant::now(), to, pods: digest.finish() };
        let mut all = self.all();
        let is_recent = |last: &Mark| {
            (last.to, last.pods) == (mark.to, mark.pods) && mark.at.duration_since(last.at) < REFRESH
        };
        let is_due = !all.get(variant).is_some_and(is_recent);
        if is_due {
            all.insert(variant.clone(), mark);
        }
        is_due
    }

    /// Drops the marks of all variants that no autoscaler scales down.
    pub(super) fn retain_scale_downs(&self, published: &Published) {
        let is_kept = |variant: &VariantKey| published.scale_downs.get(variant).is_some_and(|s| !s.is_step);
        self.all().retain(|variant, _| is_kept(variant));
    }

    /// Time at which the first mark is to be repeated.
    pub(super) fn next_refresh(&self) -> Instant {
        let oldest = self.all().values().map(|mark| mark.at).min();
        oldest.unwrap_or_else(Instant::now) + REFRESH
    }
}
