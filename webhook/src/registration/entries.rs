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
    /// Without an instance label, in namespaces of the instance.
    UnlabelledVariants,
    /// The main ConfigMap.
    MainConfigMap,
    /// The other ConfigMaps that the controller reads.
    EntryConfigMaps,
}

/// One webhook entry.
#[derive(Debug)]
pub struct Entry {
    /// Unique in its configuration.
    pub name: &'static str,
    /// Its configuration.
    pub phase: Phase,
    /// Objects that it reviews.
    pub subject: Subject,
    /// Path of the review server.
    pub path: &'static str,
}

/// All entries.
pub static ENTRIES: &[Entry] = &[
    Entry {
        name: "mutate.va.llmd.ai",
        phase: Phase::Mutating,
        subject: Subject::Variants,
        path: MUTATE_PATH,
    },
    Entry {
        name: "mutate-unlabelled.va.llmd.ai",
        phase: Phase::Mutating,
        subject: Subject::UnlabelledVariants,
        path: MUTATE_PATH,
    },
    // The mutating phase runs before the ValidatingAdmissionPolicy, whose refusal has no full command and no event.
    Entry {
        name: "main.configmap.llmd.ai",
        phase: Phase::Mutating,
        subject: Subject::MainConfigMap,
        path: CONFIG_MAP_PATH,
    },
    Entry {
        name: "validate.va.llmd.ai",
        phase: Phase::Validating,
        subject: Subject::Variants,
        path: VALIDATE_PATH,
    },
    Entry {
        name: "validate-unlabelled.va.llmd.ai",
        phase: Phase::Validating,
        subject: Subject::UnlabelledVariants,
        path: VALIDATE_PATH,
    },
    // Again, because a later mutating webhook may have changed the map. Earlier releases own fields of this entry, so a
    // server-side apply without it would be refused.
    Entry {
        name: "main.configmap.llmd.ai",
        phase: Phase::Validating,
        subject: Subject::MainConfigMap,
        path: CONFIG_MAP_PATH,
    },
    Entry {
        name: "entries.configmap.llmd.ai",
        phase: Phase::Validating,
        subject: Subject::EntryConfigMaps,
        path: CONFIG_MAP_PATH,
    },
];

impl Entry {
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
