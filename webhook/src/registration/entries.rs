//! Webhook entries: names, paths and rules. An entry that is missing in a configuration is never added.

use serde_json::{Value, json};

use crate::review::{CONFIG_MAP_PATH, MUTATE_PATH, VALIDATE_PATH};

/// The configuration of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// `MutatingWebhookConfiguration`.
    Mutating,
    /// `ValidatingWebhookConfiguration`.
    Validating,
}

/// Objects that an entry reviews.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Variants of the instance; without an instance, those without an instance label.
    Variants,
    /// Variants without an instance label in namespaces of the instance.
    UnlabelledVariants,
    /// The main ConfigMap.
    MainConfigMap,
    /// The other ConfigMaps that the controller reads.
    EntryConfigMaps,
}

/// One webhook entry.
#[derive(Debug)]
pub struct Entry {
    /// Name, unique in the webhook configuration.
    pub name: &'static str,
    /// Phase, which selects the webhook configuration.
    pub phase: Phase,
    /// Objects that it reviews.
    pub subject: Subject,
}

/// All entries.
pub static ENTRIES: &[Entry] = &[
    entry("mutate.va.llmd.ai", Phase::Mutating, Subject::Variants),
    entry("mutate-unlabelled.va.llmd.ai", Phase::Mutating, Subject::UnlabelledVariants),
    // The mutating phase runs before the ValidatingAdmissionPolicy, whose refusal has no full command and no event.
    entry("main.configmap.llmd.ai", Phase::Mutating, Subject::MainConfigMap),
    entry("validate.va.llmd.ai", Phase::Validating, Subject::Variants),
    entry("validate-unlabelled.va.llmd.ai", Phase::Validating, Subject::UnlabelledVariants),
    // Again, because a later mutating webhook may have changed the map. Earlier releases had only this entry and own
    // fields of it, so a server-side apply without it would be refused.
    entry("main.configmap.llmd.ai", Phase::Validating, Subject::MainConfigMap),
    entry("entries.configmap.llmd.ai", Phase::Validating, Subject::EntryConfigMaps),
];

const fn entry(name: &'static str, phase: Phase, subject: Subject) -> Entry {
    Entry { name, phase, subject }
}

impl Entry {
    /// Path of the review server.
    #[must_use]
    pub fn path(&self) -> &'static str {
        match self.phase {
            _ if !self.reviews_variants() => CONFIG_MAP_PATH,
            Phase::Mutating => MUTATE_PATH,
            Phase::Validating => VALIDATE_PATH,
        }
    }

    /// Whether the entry reviews variants.
    #[must_use]
    pub fn reviews_variants(&self) -> bool {
        matches!(self.subject, Subject::Variants | Subject::UnlabelledVariants)
    }

    /// Include every field that the API server defaults, so that they compare equal to the stored rules.
    #[must_use]
    pub fn rules(&self) -> Value {
        let (group, version, resource) = if self.reviews_variants() {
            (wva_crds::names::GROUP, wva_crds::names::VERSION, wva_crds::names::PLURAL)
        } else {
            ("", "v1", "configmaps")
        };
        json!([{
            "apiGroups": [group], "apiVersions": [version], "resources": [resource],
            "operations": ["CREATE", "UPDATE"], "scope": "Namespaced",
        }])
    }
}
