//! What a cycle says of each variant: counters of changed targets, and lines of the log.

use std::collections::BTreeMap;

use wva_scaling::trace::Trace;
use wva_scaling::{FallbackSource, VariantKey};

use crate::published::PublishedVariant;

/// Counts a change of the target that autoscalers are told.
pub(super) fn count(
    scalings: &mut BTreeMap<(VariantKey, &'static str, &'static str), u64>,
    key: &VariantKey,
    before: Option<&PublishedVariant>,
    after: &PublishedVariant,
) {
    let from = before.map_or(after.inherited.target, PublishedVariant::signal);
    let (Some(from), Some(to), Some(decision)) = (from, after.signal(), &after.decision) else {
        return;
    };
    let direction = match to.cmp(&from) {
        std::cmp::Ordering::Greater => "up",
        std::cmp::Ordering::Less => "down",
        std::cmp::Ordering::Equal => return,
    };
    *scalings.entry((key.clone(), direction, decision.reason().code())).or_default() += 1;
}

/// The line runbooks of the original look for, and the trace of every decision at debug level.
pub(super) fn narrate(key: &VariantKey, variant: &PublishedVariant) {
    let Some(decision) = &variant.decision else { return };
    if let Some(source) = decision.safety_net {
        let fallback = match source {
            FallbackSource::PreviousDesired => "previous-desired",
            FallbackSource::CurrentReplicas => "current-replicas",
        };
        tracing::info!(
            namespace = key.namespace,
            variant = key.name,
            currentReplicas = decision.current,
            desiredReplicas = decision.target(),
            fallbackSource = fallback,
            "Safety net activated: emitted fallback metrics"
        );
    }
    tracing::debug!(
        namespace = key.namespace,
        variant = key.name,
        current = decision.current,
        target = decision.target(),
        reason = decision.reason().code(),
        "{}",
        Trace(decision)
    );
}
