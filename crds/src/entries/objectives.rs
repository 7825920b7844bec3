//! Objectives of service classes, from either layout of the map.

use super::fault::Fault;
use super::read::{Entry, ParsedEntry, read_text};
use super::schema::Kind;
use super::service_class::{ServiceClassEntry, ServiceClassList, ServiceClassModel, ServiceClassRow};
use super::units::{Millis, Priority, SloTarget};
use crate::names::SERVICE_CLASSES_KEY;

/// Objectives of one class for one model, from either layout.
#[derive(Clone, Debug, PartialEq)]
pub struct Objective {
    /// Name of the class.
    pub class: String,
    /// Priority of the class.
    pub priority: Priority,
    /// Name of the model.
    pub model: String,
    /// Namespaces that the class is bound to. `None`: it applies everywhere.
    pub namespaces: Option<Vec<String>>,
    /// Inter-token latency.
    pub itl: Option<Millis>,
    /// Time to first token.
    pub ttft: Option<Millis>,
    /// Share of the requests that is to be kept within both.
    pub target: Option<SloTarget>,
}

/// Parses one entry of a service-class map.
///
/// # Errors
/// All faults of the entry.
pub fn parse_objectives(key: &str, text: &str) -> Result<Vec<Objective>, Vec<Fault>> {
    if key == SERVICE_CLASSES_KEY {
        let rows = read_text::<ServiceClassList>(text)?.0;
        let objective = |row: ServiceClassRow| Objective {
            class: row.name,
            priority: row.priority,
            model: row.model,
            namespaces: row.namespaces,
            itl: row.itl_slo.or(row.slo_itl),
            ttft: row.ttft_slo.or(row.slo_ttw),
            target: row.slo_target,
        };
        return Ok(rows.into_iter().map(objective).collect());
    }
    let entry = ParsedEntry::from_entry(ServiceClassEntry::KIND, key, text);
    // Admission accepts an empty entry, too.
    if entry.is_empty() {
        return Ok(Vec::new());
    }
    let ServiceClassEntry { name, priority, namespaces, data } = entry.to_typed()?;
    let objective = |model: ServiceClassModel| Objective {
        class: name.clone(),
        priority,
        model: model.model,
        namespaces: namespaces.clone(),
        itl: model.itl_slo.or(model.slo_tpot),
        ttft: model.ttft_slo.or(model.slo_ttft),
        target: model.slo_target,
    };
    Ok(data.into_iter().map(objective).collect())
}

impl Entry for ServiceClassList {
    const KIND: Kind = Kind::ServiceClassesList;
}

impl Entry for ServiceClassEntry {
    const KIND: Kind = Kind::ServiceClass;
}
