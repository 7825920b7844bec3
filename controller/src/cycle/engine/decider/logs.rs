//! Log lines of a cycle, and counters of changed targets.

use std::collections::BTreeMap;
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;
use std::time::Instant;

use wva_crds::events::EventReason;
use wva_crds::runbook_lines::{RECONCILIATION_COMPLETED, SAFETY_NET_ACTIVATED, SIGNALS_EMITTED};
use wva_runtime::repeats::{RepeatCounters, RepeatStage};
use wva_scaling::trace::Trace;
use wva_scaling::{FallbackSource, VariantKey, Warning};

use crate::model::published::{PublishedVariant, ScalingKey};

/// Warnings of one kind that begin, continue or (without a kind) end.
struct Group {
    kind: Option<Discriminant<Warning>>,
    texts: Vec<String>,
    /// How often the first occurred.
    count: u64,
}

/// One line per kind: when it begins, once an hour, and when it ends.
pub(in crate::cycle::engine) fn log_warnings(
    warned: &mut RepeatCounters<String>,
    warnings: &[Warning],
    now: Instant,
) {
    for Group { kind, texts, count } in groups(warned, warnings, now) {
        let Some((first, others)) = texts.split_first() else { continue };
        let others =
            if others.is_empty() { String::new() } else { format!("; and {} more like it", others.len()) };
        if kind.is_some() {
            tracing::warn!(count, "{first}{others}");
        } else {
            tracing::info!(count, "Resolved: {first}{others}");
        }
    }
}

fn groups(warned: &mut RepeatCounters<String>, warnings: &[Warning], now: Instant) -> Vec<Group> {
    let kinds: BTreeMap<String, _> = warnings.iter().map(|w| (w.to_string(), discriminant(w))).collect();
    let mut groups: Vec<Group> = Vec::new();
    for (text, stage) in warned.record_all(kinds.keys().cloned().collect(), now) {
        let kind = kinds.get(&text).copied();
        match groups.iter_mut().find(|group| group.kind == kind) {
            Some(group) => group.texts.push(text),
            None => groups.push(Group { kind, texts: vec![text], count: stage.count() }),
        }
    }
    groups
}

pub(super) fn log_cycle(variants: &BTreeMap<VariantKey, Arc<PublishedVariant>>, all_analyzed: bool) {
    let signals = variants.values().filter(|variant| variant.signal().is_some()).count();
    if signals > 0 {
        tracing::info!(variants = signals, "{SIGNALS_EMITTED}");
    }
    tracing::info!(
        variants_processed = variants.len(),
        optimization_successful = all_analyzed,
        "{RECONCILIATION_COMPLETED}"
    );
}

pub(super) fn count_scaling(
    scalings: &mut BTreeMap<ScalingKey, u64>,
    variant: &VariantKey,
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
    let key = ScalingKey { variant: variant.clone(), direction, reason: decision.reason().code() };
    *scalings.entry(key).or_default() += 1;
}

/// The debug level adds the trace.
pub(super) fn log_decision(
    key: &VariantKey,
    variant: &PublishedVariant,
    last_target: Option<u32>,
    safety_net: Option<RepeatStage>,
) {
    if let Some(RepeatStage::Ended(count)) = safety_net {
        tracing::info!(namespace = key.namespace, variant = key.name, count, "Safety net ended");
    }
    let Some(decision) = &variant.decision else { return };
    if let Some(change) = variant.target_change(last_target) {
        let reason = EventReason::ScalingDecision.as_str();
        tracing::info!(namespace = key.namespace, variant = key.name, reason, "{change}");
    }
    if let (Some(source), Some(stage)) = (decision.safety_net(), safety_net) {
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
            count = stage.count(),
            "{SAFETY_NET_ACTIVATED}"
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
