//! ConfigMaps with the names of global or local maps that no controller of wva reads.

use wva_crds::names::CONFIG_ENABLED_LABEL;
use wva_rules::{MapNames, MapRole, MapScope};

use super::chain::Finding;
use super::controllers::Controller;
use super::facts::Facts;
use crate::cluster::{ObjectId, entry, is_excluded, text};
use crate::installs::is_local_name;

/// Names in one line.
const MAX_NAMES: usize = 8;

/// Why a map is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnreadReason {
    /// Global maps work only in the namespace of a controller.
    OtherNamespace,
    /// The controller reads another map of its namespace.
    Hidden,
    /// The namespace of a local map has no variants.
    NoVariants,
}

/// Nothing without a controller of wva: maps are then read by llm-d WVA, or before the install.
pub(super) fn check_unread_maps(facts: &Facts) -> Vec<Finding> {
    let all = facts.install.controllers.iter().flatten();
    let controllers: Vec<&Controller> = all.filter(|controller| !controller.is_llm_d_wva).collect();
    let Some(first) = controllers.first() else { return Vec::new() };
    let unread: Vec<(UnreadReason, String)> = facts
        .install
        .config_maps
        .maps
        .iter()
        .filter_map(|map| {
            Some((reason(facts, &controllers, map)?, format!("{}/{}", map.namespace, map.name)))
        })
        .collect();
    let names = |reason: UnreadReason| {
        let names: Vec<&str> =
            unread.iter().filter(|(why, _)| *why == reason).map(|(_, name)| name.as_str()).collect();
        (!names.is_empty()).then(|| list_names(&names))
    };
    let move_command = format!("wva migrate -A --controller-namespace {}", first.namespace);
    let mut findings = Vec::new();
    if let Some(names) = names(UnreadReason::OtherNamespace) {
        findings.push(Finding::warning(
            format!("wva does not read {names}: it reads global maps in its own namespace"),
            format!("{move_command}, then delete them"),
        ));
    }
    if let Some(names) = names(UnreadReason::Hidden) {
        findings.push(Finding::warning(
            format!("wva does not read {names}: another map of the namespace takes precedence"),
            "move the entries to that map, with Helm to wva.capacityScaling, then delete these \
             (docs/guides/thresholds.md)",
        ));
    }
    if let Some(names) = names(UnreadReason::NoVariants) {
        findings.push(Finding::warning(
            format!("wva does not read {names}: the namespace has no variants"),
            format!(
                "for that namespace: kubectl label namespace NAMESPACE {CONFIG_ENABLED_LABEL}=true; for all: copy it to {}",
                first.namespace
            ),
        ));
    }
    findings
}

fn list_names(names: &[&str]) -> String {
    let shown: Vec<&str> = names.iter().take(MAX_NAMES).copied().collect();
    match names.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// `None` if a controller reads the map.
fn reason(facts: &Facts, controllers: &[&Controller], map: &ObjectId) -> Option<UnreadReason> {
    if controllers.iter().any(|controller| reads_global(facts, &controller.maps, map)) {
        return None;
    }
    if controllers.iter().any(|controller| controller.maps.namespace == map.namespace) {
        return Some(UnreadReason::Hidden);
    }
    // With variants in its namespace, wva reads the global map of llm-d WVA as a local one.
    let has_variants = facts.install.config_maps.namespaces_with_variants.contains(&map.namespace);
    let is_of_llm_d_wva = facts
        .install
        .controllers
        .iter()
        .flatten()
        .any(|controller| controller.is_llm_d_wva && controller.namespace == map.namespace);
    if !is_local_name(&map.name) || (is_of_llm_d_wva && !has_variants) {
        return Some(UnreadReason::OtherNamespace);
    }
    let is_enabled = facts.objects.namespaces.iter().any(|namespace| {
        text(namespace, "/metadata/name") == map.namespace
            && entry(namespace, "/metadata/labels", CONFIG_ENABLED_LABEL).is_some()
    });
    let is_read = is_enabled || has_variants || is_excluded(&facts.objects.namespaces, &map.namespace);
    (!is_read).then_some(UnreadReason::NoVariants)
}

/// Whether a controller reads the global map. It reads only the first one of a role, but all of service classes.
fn reads_global(facts: &Facts, names: &MapNames, map: &ObjectId) -> bool {
    let Some((role, MapScope::Global)) = names.role(&map.namespace, &map.name) else { return false };
    let exists = |name: &&str| {
        facts
            .install
            .config_maps
            .maps
            .iter()
            .any(|other| other.namespace == map.namespace && other.name == **name)
    };
    role == MapRole::ServiceClasses
        || names.global_names(role).iter().find(|name| exists(name)).is_some_and(|name| *name == map.name)
}
