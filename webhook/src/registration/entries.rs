//! The table of webhook entries: their names, paths and rules. The chart renders the same names; an entry that is not
//! in a configuration is never added to it.

use serde_json::{Value, json};

use crate::review::{CONFIG_MAP_PATH, MUTATE_PATH, VALIDATE_PATH};

/// Which of the two configurations an entry stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// `MutatingWebhookConfiguration`.
    Mutating,
    /// `ValidatingWebhookConfiguration`.
    Validating,
}

/// What an entry is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Variants of the instance; without an instance, those without a label.
    Variants,
    /// Variants without a label in the instance's own namespaces.
    UnlabelledVariants,
    /// The main config map.
    MainConfigMap,
    /// The other config maps that are read.
    EntryConfigMaps,
}

/// One webhook entry.
#[derive(Debug)]
pub struct Entry {
    /// Its name, unique in its configuration.
    pub name: &'static str,
    /// Where it stands.
    pub phase: Phase,
    /// What it is about.
    pub subject: Subject,
    /// The path it asks.
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
    // The mutating phase comes before the API server's own policy, whose refusal knows neither the command that makes
    // the change nor the event.
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
    // Again, since a later mutating webhook may have changed the map. Releases before had this entry here alone: the API
    // server would refuse a server-side apply without it, as the program owns fields of it.
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
    /// The entry is about variants.
    #[must_use]
    pub fn is_about_variants(&self) -> bool {
        matches!(self.subject, Subject::Variants | Subject::UnlabelledVariants)
    }

    /// The rules that open the entry, with every field that the apiserver would default, so that they compare equal
    /// to what is stored.
    #[must_use]
    pub fn rules(&self) -> Value {
        let (group, version, resource) = if self.is_about_variants() {
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
