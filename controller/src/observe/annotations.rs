//! HPAs and ScaledObjects with the annotations of llm-d WVA v0.9, and the variants that wva created for them.

use std::sync::Arc;

use wva_objects::autoscaler::{AutoscalerKind, AutoscalerName};
use wva_rules::AnnotatedAutoscaler;

use crate::observe::variants::{Ownership, is_excluded, is_managed};
use crate::observe::watches::Watches;
use crate::observe::watches::variant::Variant;

/// Annotated autoscalers of this controller, by namespace and name.
pub(crate) fn annotated_autoscalers(watches: &Watches, ownership: &Ownership) -> Vec<AnnotatedAutoscaler> {
    let mut all = Vec::new();
    let instance_of = |namespace: &str| {
        let namespaces = watches.namespaces.as_ref()?;
        namespaces.get_with("", namespace, |facts| facts.instance.clone())?
    };
    for cache in [&watches.autoscalers, &watches.scaled_objects.cache] {
        cache.for_each(|namespace, _, autoscaler| {
            if autoscaler.annotations.is_some() {
                all.extend(AnnotatedAutoscaler::new(
                    namespace,
                    autoscaler,
                    instance_of(namespace).as_deref().filter(|label| !label.is_empty()),
                ));
            }
        });
    }
    all.retain(|a: &AnnotatedAutoscaler| {
        ownership.includes(a.instance()) && !is_excluded(watches.namespaces.as_ref(), &a.namespace)
    });
    all.sort_by(|a, b| a.namespace.cmp(&b.namespace));
    all
}

/// Variants that wva created for autoscalers that are not annotated any more. Kubernetes deletes those of deleted
/// autoscalers.
pub(crate) fn abandoned_variants(
    watches: &Watches,
    ownership: &Ownership,
    annotated: &[AnnotatedAutoscaler],
) -> Vec<Arc<Variant>> {
    let exists = |namespace: &str, owner: &AutoscalerName| {
        let cache = match owner.kind {
            AutoscalerKind::Hpa => &watches.autoscalers,
            AutoscalerKind::ScaledObject => &watches.scaled_objects.cache,
        };
        cache.get_with(namespace, &owner.name, |_| ()).is_some()
    };
    let mut all = Vec::new();
    watches.variants.for_each(|_, _, variant: &Arc<Variant>| {
        if is_managed(variant, ownership, watches.namespaces.as_ref()) && variant.origin.is_some() {
            all.push(variant.clone());
        }
    });
    all.retain(|variant| {
        let origin = variant.origin.as_ref();
        origin.is_some_and(|origin| exists(&variant.key.namespace, &origin.autoscaler))
            && !annotated.iter().any(|a| a.owns(&variant.key.namespace, variant.origin.as_deref()))
    });
    all
}

#[cfg(test)]
mod tests;
