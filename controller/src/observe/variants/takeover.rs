//! Variants taken over by a change of their instance label. Their series are withheld: Prometheus keeps the old ones
//! for a while, and an HPA adds up all that match. Without the metric it does not scale.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use wva_scaling::VariantKey;

use super::{ManagedVariant, Ownership};
use crate::observe::watches::Watches;

#[derive(Debug, Default)]
pub(crate) struct TakeoverTracker {
    foreign: BTreeSet<VariantKey>,
    /// Ends of the delays.
    withheld: BTreeMap<VariantKey, Instant>,
}

impl TakeoverTracker {
    /// Returns the ends of the delays. `managed` is sorted by key.
    pub(crate) fn update(
        &mut self,
        watches: &Watches,
        ownership: &Ownership,
        managed: &[ManagedVariant],
        now: Instant,
    ) -> BTreeMap<VariantKey, Instant> {
        let is_ours = |key: &VariantKey| managed.binary_search_by(|m| m.key.cmp(key)).is_ok();
        self.withheld.retain(|key, end| *end > now && is_ours(key));
        let end = now + ownership.takeover_delay;
        let taken_over = self.foreign.iter().filter(|key| end > now && is_ours(key));
        self.withheld.extend(taken_over.map(|key| (key.clone(), end)));
        self.foreign.clear();
        watches.variants.for_each(|_, _, v| {
            if !ownership.includes(v.instance.as_deref()) {
                self.foreign.insert(v.key.clone());
            }
        });
        self.withheld.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use crate::fixture::Cluster;
    use crate::observe::variants::managed_variants;

    const DELAY: Duration = Duration::from_secs(30);

    fn labelled(instance: Option<&str>) -> Value {
        json!({"metadata": {"labels": {"wva.llmd.ai/controller-instance": instance.unwrap_or_default()}}})
    }

    struct Case(Cluster, TakeoverTracker, Instant);

    impl Case {
        /// Whether variant `a` with this instance label is withheld at this second. Variant `other` never is.
        fn is_withheld(&mut self, second: u64, instance: Option<&str>) -> bool {
            let Self(cluster, takeover, start) = self;
            cluster.variant("a", "m", labelled(instance)).variant("other", "m", labelled(None));
            let ownership = Ownership { takeover_delay: DELAY, ..Ownership::default() };
            let managed = managed_variants(&cluster.watches(), &ownership);
            let now = *start + Duration::from_secs(second);
            let withheld = takeover.update(&cluster.watches(), &ownership, &managed, now);
            assert!(withheld.keys().all(|key| key.name == "a"), "{withheld:?}");
            !withheld.is_empty()
        }
    }

    #[test]
    fn withholds_taken_over_variant_for_the_delay() {
        let mut case = Case(Cluster::new(), TakeoverTracker::default(), Instant::now());
        assert!(!case.is_withheld(0, None), "no other controller owned it");
        assert!(!case.is_withheld(10, Some("x")), "it is handed over");
        assert!(case.is_withheld(20, None), "it comes back");
        assert!(case.is_withheld(49, None));
        assert!(!case.is_withheld(50, None), "the delay is over");
        assert!(!case.is_withheld(60, None));
    }

    #[test]
    fn delay_restarts_after_another_handover() {
        let mut case = Case(Cluster::new(), TakeoverTracker::default(), Instant::now());
        assert!(!case.is_withheld(0, Some("x")));
        assert!(case.is_withheld(10, None));
        assert!(!case.is_withheld(20, Some("x")), "no delay for what is not ours");
        assert!(case.is_withheld(30, None));
    }

    #[test]
    fn end_of_exclusion_causes_no_delay() {
        let mut case = Case(Cluster::new(), TakeoverTracker::default(), Instant::now());
        case.0.excluded_namespace("ns");
        assert!(!case.is_withheld(0, None));
        case.0.namespace("ns", json!({}));
        assert!(!case.is_withheld(10, None), "no other controller published it");
    }
}
