//! Cached fields of ResourceQuotas: what they allow, what is used, and which pods they count.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ResourceQuota, ResourceQuotaSpec, ScopedResourceSelectorRequirement};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use wva_runtime::cache::Projection;
use wva_scaling::snapshot::QuotaAmount;

use crate::model::demand::{PodDemand, QuotaResource, QuotaScope};
use crate::model::quantity::{Rounding, quota_amount};

/// Kept of a quota, which may have any number of resources.
const MAX_ROWS: usize = 64;

#[derive(Clone, Debug)]
pub(crate) struct QuotaFacts {
    pub(crate) rows: Box<[QuotaRow]>,
    /// A pod counts if it is in all of them.
    scopes: Box<[QuotaScope]>,
}

/// One resource that pods take.
#[derive(Clone, Debug)]
pub(crate) struct QuotaRow {
    /// Name of the resource as the ResourceQuota writes it.
    pub(crate) name: Box<str>,
    pub(crate) resource: QuotaResource,
    pub(crate) limit: QuotaAmount,
    pub(crate) used: QuotaAmount,
}

impl QuotaRow {
    pub(crate) fn left(&self) -> u64 {
        self.limit.0.saturating_sub(self.used.0)
    }
}

impl QuotaFacts {
    /// A changed quota starts no cycle: every pod changes it.
    pub(crate) fn quotas() -> Projection<ResourceQuota, Self> {
        Projection { read: Self::new, is_same: None }
    }

    fn new(quota: &ResourceQuota) -> Self {
        let (spec, status) = (quota.spec.as_ref(), quota.status.as_ref());
        // The API server enforces the status; it is empty for a moment after the creation.
        let enforced = status.and_then(|status| status.hard.as_ref()).filter(|hard| !hard.is_empty());
        let hard = enforced.or_else(|| spec.and_then(|spec| spec.hard.as_ref()));
        let used = status.and_then(|status| status.used.as_ref());
        let row = |(name, limit): (&String, &Quantity)| {
            Some(QuotaRow {
                name: name.as_str().into(),
                resource: QuotaResource::parse(name)?,
                limit: quota_amount(name, limit, Rounding::Down)?,
                used: amount(used, name),
            })
        };
        Self {
            rows: hard.into_iter().flatten().filter_map(row).take(MAX_ROWS).collect(),
            scopes: spec.map(scopes).unwrap_or_default(),
        }
    }

    pub(crate) fn counts(&self, pod: &PodDemand) -> bool {
        self.scopes.iter().all(|scope| pod.is_in_scope(scope))
    }
}

fn amount(used: Option<&BTreeMap<String, Quantity>>, name: &str) -> QuotaAmount {
    let quantity = used.and_then(|used| used.get(name));
    quantity.and_then(|quantity| quota_amount(name, quantity, Rounding::Up)).unwrap_or_default()
}

fn scopes(spec: &ResourceQuotaSpec) -> Box<[QuotaScope]> {
    let plain = spec.scopes.iter().flatten().map(|name| scope(name, "Exists", &[]));
    let selected =
        spec.scope_selector.iter().flat_map(|selector| selector.match_expressions.iter().flatten());
    let selected = selected.map(|ScopedResourceSelectorRequirement { operator, scope_name, values }| {
        scope(scope_name, operator, values.as_deref().unwrap_or_default())
    });
    plain.chain(selected).collect()
}

fn scope(name: &str, operator: &str, values: &[String]) -> QuotaScope {
    let names = || values.iter().map(|value| value.as_str().into()).collect();
    match (name, operator) {
        ("Terminating", _) => QuotaScope::Terminating(true),
        ("NotTerminating", _) => QuotaScope::Terminating(false),
        ("BestEffort", _) => QuotaScope::BestEffort(true),
        ("NotBestEffort", _) => QuotaScope::BestEffort(false),
        ("PriorityClass", "Exists") => QuotaScope::HasPriorityClass(true),
        ("PriorityClass", "DoesNotExist") => QuotaScope::HasPriorityClass(false),
        ("PriorityClass", "In") => QuotaScope::PriorityClass { is_in: true, names: names() },
        ("PriorityClass", "NotIn") => QuotaScope::PriorityClass { is_in: false, names: names() },
        _ => QuotaScope::Other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "tests hand it over as they write it")]
    fn facts(spec: Value, status: Value) -> QuotaFacts {
        let quota = json!({"metadata": {"name": "q", "namespace": "ns"}, "spec": spec, "status": status});
        QuotaFacts::new(&serde_json::from_value(quota).unwrap())
    }

    fn rows(facts: &QuotaFacts) -> Vec<(&str, u64, u64)> {
        facts.rows.iter().map(|row| (&*row.name, row.limit.0, row.used.0)).collect()
    }

    #[test]
    fn reads_what_the_api_server_enforces() {
        let spec = json!({"hard": {"pods": "9", "count/services": "1"}});
        let status = json!({"hard": {"pods": "4", "requests.cpu": "2"}, "used": {"pods": "3", "requests.cpu": "1500m"}});
        let enforced = facts(spec.clone(), status);
        assert_eq!(rows(&enforced), [("pods", 4, 3), ("requests.cpu", 2000, 1500)]);
        assert_eq!(enforced.rows[1].left(), 500);
        assert_eq!(rows(&facts(spec, json!({}))), [("pods", 9, 0)]);
    }

    #[test]
    fn reads_scopes_and_their_selector() {
        let expression = |operator: &str, values: Value| json!({"scopeName": "PriorityClass", "operator": operator, "values": values});
        let selector = json!([expression("In", json!(["high"])), expression("Exists", json!(null))]);
        let quota = facts(
            json!({"scopes": ["NotTerminating", "Later"], "scopeSelector": {"matchExpressions": selector}}),
            json!({}),
        );
        let class = QuotaScope::PriorityClass { is_in: true, names: ["high".into()].into() };
        let want =
            [QuotaScope::Terminating(false), QuotaScope::Other, class, QuotaScope::HasPriorityClass(true)];
        assert_eq!(&*quota.scopes, &want);
        let any = PodDemand::default();
        assert!(!quota.counts(&any));
        assert!(facts(json!({"scopes": ["NotTerminating", "BestEffort"]}), json!({})).counts(&any));
    }
}
