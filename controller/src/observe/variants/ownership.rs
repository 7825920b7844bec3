//! Ownership by instance label and namespace. Two controllers never manage one variant: each checks its cache in every
//! cycle, at each scrape and before each write.

use std::sync::Arc;
use std::time::Duration;

use wva_runtime::Cache;
use wva_scaling::VariantKey;

use crate::observe::watches::NamespaceFacts;
use crate::observe::watches::variant::Variant;

/// Selects the variants of this controller.
#[derive(Clone, Debug, Default)]
pub struct Ownership {
    /// `CONTROLLER_INSTANCE`. `None`: variants without an instance label.
    pub instance: Option<String>,
    /// A controller without an instance manages labelled variants too.
    pub manage_labelled: bool,
    /// How long series of a variant taken over are withheld, until Prometheus drops the other controller's.
    pub takeover_delay: Duration,
}

impl Ownership {
    /// Decides by the instance label.
    pub(crate) fn includes(&self, label: Option<&str>) -> bool {
        match (self.instance.as_deref(), label) {
            (Some(own), label) => label == Some(own),
            (None, label) => label.is_none() || self.manage_labelled,
        }
    }
}

/// An object being deleted is not managed, however long its finalizers take.
pub(crate) fn is_managed(
    variant: &Variant,
    ownership: &Ownership,
    namespaces: Option<&Cache<NamespaceFacts>>,
) -> bool {
    !variant.is_terminating
        && ownership.includes(variant.instance.as_deref())
        && !is_excluded(namespaces, &variant.key.namespace)
}

/// Whether the namespace is excluded. `None`: single-namespace mode, in which none is.
#[must_use]
pub fn is_excluded(namespaces: Option<&Cache<NamespaceFacts>>, name: &str) -> bool {
    namespaces.and_then(|all| all.get_with("", name, |namespace| namespace.excluded)).unwrap_or(false)
}

/// Ownership by the caches. A publication can be a cycle old, so publishers and writers check here first.
#[derive(Clone, Debug)]
pub struct OwnershipView {
    ownership: Ownership,
    variants: Cache<Arc<Variant>>,
    namespaces: Option<Cache<NamespaceFacts>>,
}

impl OwnershipView {
    /// Ownership by these caches.
    #[must_use]
    pub fn new(
        ownership: Ownership,
        variants: Cache<Arc<Variant>>,
        namespaces: Option<Cache<NamespaceFacts>>,
    ) -> Self {
        Self { ownership, variants, namespaces }
    }

    /// Compares the uid.
    #[must_use]
    pub(crate) fn is_managed(&self, key: &VariantKey, uid: &str) -> bool {
        let is_ours =
            |v: &Arc<Variant>| v.uid == uid && is_managed(v, &self.ownership, self.namespaces.as_ref());
        self.variants.get_with(&key.namespace, &key.name, is_ours).unwrap_or(false)
    }

    pub(crate) fn variant(&self, key: &VariantKey) -> Option<Arc<Variant>> {
        self.variants.get(&key.namespace, &key.name)
    }

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
    fn two_controllers_never_manage_one_variant() {
        for (instance, manage_labelled, owns_labelled, owns_plain) in [
            (None, false, false, true),
            (None, true, true, true),
            (Some("x"), false, true, false),
            (Some("y"), true, false, false),
        ] {
            let instance = instance.map(str::to_owned);
            let o = Ownership { instance, manage_labelled, ..Ownership::default() };
            assert_eq!(o.includes(Some("x")), owns_labelled, "{o:?}");
            assert_eq!(o.includes(None), owns_plain, "{o:?}");
        }
    }

    #[test]
    fn handed_over_excluded_or_deleted_is_unmanaged_at_once() {
        let key = VariantKey { namespace: "ns".into(), name: "a".into() };
        let mut cluster = Cluster::new();
        let view = cluster.ownership_view(Ownership::default());
        let is_managed = || view.is_managed(&key, "uid of a");
        assert!(!is_managed(), "it does not exist yet");
        cluster.variant("a", "m", json!({}));
        assert!(is_managed() && !view.is_managed(&key, "uid of an earlier object"));
        cluster.variant("a", "m", json!({"metadata": {"labels": {"wva.llmd.ai/controller-instance": "x"}}}));
        assert!(!is_managed(), "another instance owns it");
        cluster.variant("a", "m", json!({"metadata": {"deletionTimestamp": crate::fixture::CREATED}}));
        assert!(!is_managed(), "it is being deleted");
        cluster.variant("a", "m", json!({}));
        cluster.excluded_namespace("ns");
        assert!(!is_managed(), "its namespace is excluded");
        cluster.namespace("ns", json!({}));
        assert!(is_managed());
        cluster.without_variant("a");
        assert!(!is_managed());
    }
}
