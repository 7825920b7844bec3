//! Variants that come from another controller, by a change of their instance label. Their series stay away for the
//! takeover delay, as those of a new leader do: Prometheus holds the other's for a while, and an HPA adds up all that
//! match. An HPA without a metric holds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use wva_scaling::VariantKey;

use super::{Managed, Ownership};
use crate::observe::watches::Watches;

/// Whose variants were in the last cycle, and which are not shown yet.
#[derive(Debug, Default)]
pub(crate) struct Takeover {
    /// Those of other controllers.
    foreign: BTreeSet<VariantKey>,
    /// Those that are this controller's since, and when they are shown.
    withheld: BTreeMap<VariantKey, Instant>,
}

impl Takeover {
    /// Takes in whose the variants are now, and says which of `managed`, in order of their keys, are shown only later.
    pub(crate) fn at(
        &mut self,
        watches: &Watches,
        ownership: &Ownership,
        managed: &[Managed],
        now: Instant,
    ) -> BTreeMap<VariantKey, Instant> {
        let is_ours = |key: &VariantKey| managed.binary_search_by(|m| m.key.cmp(key)).is_ok();
        self.withheld.retain(|key, shown| *shown > now && is_ours(key));
        let shown = now + ownership.takeover_delay;
        let taken = self.foreign.iter().filter(|key| shown > now && is_ours(key));
        self.withheld.extend(taken.map(|key| (key.clone(), shown)));
        self.foreign.clear();
        watches.variants.each(|_, _, v| {
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
    use crate::observe::variants::managed;

    const DELAY: Duration = Duration::from_secs(30);

    fn labelled(instance: Option<&str>) -> Value {
        json!({"metadata": {"labels": {"wva.llmd.ai/controller-instance": instance.unwrap_or_default()}}})
    }

    struct Case(Cluster, Takeover, Instant);

    impl Case {
        /// Whether `a` is withheld at this second, its label being this. Another one never is.
        fn at(&mut self, second: u64, instance: Option<&str>) -> bool {
            let Self(cluster, takeover, start) = self;
            cluster.variant("a", "m", labelled(instance)).variant("other", "m", labelled(None));
            let ownership = Ownership { takeover_delay: DELAY, ..Ownership::default() };
            let managed = managed(&cluster.watches(), &ownership);
            let now = *start + Duration::from_secs(second);
            let withheld = takeover.at(&cluster.watches(), &ownership, &managed, now);
            assert!(withheld.keys().all(|key| key.name == "a"), "{withheld:?}");
            !withheld.is_empty()
        }
    }

    #[test]
    fn what_was_anothers_is_shown_after_the_delay() {
        let mut case = Case(Cluster::new(), Takeover::default(), Instant::now());
        assert!(!case.at(0, None), "it was nobody else's");
        assert!(!case.at(10, Some("x")), "it is given away");
        assert!(case.at(20, None), "it comes back");
        assert!(case.at(49, None));
        assert!(!case.at(50, None), "the delay is over");
        assert!(!case.at(60, None));
    }

    #[test]
    fn what_goes_again_meanwhile_waits_anew() {
        let mut case = Case(Cluster::new(), Takeover::default(), Instant::now());
        assert!(!case.at(0, Some("x")));
        assert!(case.at(10, None));
        assert!(!case.at(20, Some("x")), "no delay for what is not ours");
        assert!(case.at(30, None));
    }

    #[test]
    fn a_namespace_that_is_no_longer_excluded_waits_for_nothing() {
        let mut case = Case(Cluster::new(), Takeover::default(), Instant::now());
        case.0.excluded_namespace("ns");
        assert!(!case.at(0, None));
        case.0.namespace("ns", json!({}));
        assert!(!case.at(10, None), "nobody else showed it");
    }
}
