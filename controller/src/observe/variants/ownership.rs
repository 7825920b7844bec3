//! Whose a VariantAutoscaling is, by its instance label and its namespace. Two controllers never manage one: each asks
//! this of the newest object it has seen, in every cycle, at each scrape and before each write.

use std::sync::Arc;
use std::time::Duration;

use wva_runtime::Cache;
use wva_scaling::VariantKey;

use crate::observe::watches::NamespaceFacts;
use crate::observe::watches::variant::Variant;

/// Which VariantAutoscalings belong to this controller.
#[derive(Clone, Debug, Default)]
pub struct Ownership {
    /// `CONTROLLER_INSTANCE`; `None` manages what carries no instance label.
    pub instance: Option<String>,
    /// Without an instance, manage labelled ones too.
    pub manage_labelled: bool,
    /// How long the series of a variant that was another controller's stay away: until Prometheus has given up those
    /// of the other.
    pub takeover_delay: Duration,
}

impl Ownership {
    /// Whether an object with this instance label is this controller's.
    pub(super) fn includes(&self, label: Option<&str>) -> bool {
        match (self.instance.as_deref(), label) {
            (Some(own), label) => label == Some(own),
            (None, label) => label.is_none() || self.manage_labelled,
        }
    }
}

/// Whether a controller manages an object. What is being deleted it does not, however long its finalizers take.
pub(crate) fn is_managed(
    variant: &Variant,
    ownership: &Ownership,
    namespaces: Option<&Cache<NamespaceFacts>>,
) -> bool {
    !variant.leaving
        && ownership.includes(variant.instance.as_deref())
        && !is_excluded(namespaces, &variant.key.namespace)
}

/// Whether a namespace says that nothing of its own is managed. In single-namespace mode none is seen, so none is
/// excluded.
#[must_use]
pub fn is_excluded(namespaces: Option<&Cache<NamespaceFacts>>, name: &str) -> bool {
    namespaces.and_then(|all| all.ask("", name, |namespace| namespace.excluded)).unwrap_or(false)
}

/// What this controller manages at the moment of the question. A publication is up to a cycle older than that: whoever
/// shows or writes something asks here first, so that what was given away, excluded or deleted meanwhile is left alone.
#[derive(Clone, Debug)]
pub struct Reach {
    ownership: Ownership,
    variants: Cache<Arc<Variant>>,
    namespaces: Option<Cache<NamespaceFacts>>,
}

impl Reach {
    /// By what these caches hold.
    #[must_use]
    pub fn new(
        ownership: Ownership,
        variants: Cache<Arc<Variant>>,
        namespaces: Option<Cache<NamespaceFacts>>,
    ) -> Self {
        Self { ownership, variants, namespaces }
    }

    /// Whether the object with this uid is there and managed.
    #[must_use]
    pub(crate) fn holds(&self, key: &VariantKey, uid: &str) -> bool {
        let ours =
            |v: &Arc<Variant>| v.uid == uid && is_managed(v, &self.ownership, self.namespaces.as_ref());
        self.variants.ask(&key.namespace, &key.name, ours).unwrap_or(false)
    }

    /// The object as it was seen last.
    pub(crate) fn variant(&self, key: &VariantKey) -> Option<Arc<Variant>> {
        self.variants.get(&key.namespace, &key.name)
    }

    /// The instance of this controller.
    pub(crate) fn instance(&self) -> Option<&str> {
        self.ownership.instance.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixture::Cluster;

    #[test]
    fn two_controllers_never_manage_one() {
        for (instance, manage_labelled, takes_labelled, takes_plain) in [
            (None, false, false, true),
            (None, true, true, true),
            (Some("x"), false, true, false),
            (Some("y"), true, false, false),
        ] {
            let instance = instance.map(str::to_owned);
            let o = Ownership { instance, manage_labelled, ..Ownership::default() };
            assert_eq!(o.includes(Some("x")), takes_labelled, "{o:?}");
            assert_eq!(o.includes(None), takes_plain, "{o:?}");
        }
    }

    #[test]
    fn what_is_given_away_excluded_or_deleted_is_out_of_reach_at_once() {
        let key = VariantKey { namespace: "ns".into(), name: "a".into() };
        let mut cluster = Cluster::new();
        let reach = cluster.reach(Ownership::default());
        let holds = || reach.holds(&key, "uid of a");
        assert!(!holds(), "it is not there yet");
        cluster.variant("a", "m", json!({}));
        assert!(holds() && !reach.holds(&key, "of another that had its name"));
        cluster.variant("a", "m", json!({"metadata": {"labels": {"wva.llmd.ai/controller-instance": "x"}}}));
        assert!(!holds(), "it is another's");
        cluster.variant("a", "m", json!({"metadata": {"deletionTimestamp": crate::fixture::CREATED}}));
        assert!(!holds(), "it is being deleted");
        cluster.variant("a", "m", json!({}));
        cluster.excluded_namespace("ns");
        assert!(!holds(), "its namespace is excluded");
        cluster.namespace("ns", json!({}));
        assert!(holds());
        cluster.without_variant("a");
        assert!(!holds());
    }
}
