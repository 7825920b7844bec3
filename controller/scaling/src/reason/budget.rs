//! Figures of the reasons about budgets that models share.

use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

use crate::snapshot::{QuotaAmount, QuotaNeed, QuotaWait};

/// A ResourceQuota without room for another replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QuotaShortage {
    /// Name of the ResourceQuota.
    pub quota: String,
    /// Resource, such as `requests.memory`.
    pub resource: String,
    /// What the quota leaves.
    pub left: QuotaAmount,
    /// What one replica takes.
    pub per_replica: QuotaAmount,
}

impl QuotaShortage {
    pub(crate) fn new(need: &QuotaNeed, left: u64) -> Self {
        Self {
            quota: need.quota.clone(),
            resource: need.resource.clone(),
            left: QuotaAmount(left),
            per_replica: need.per_replica,
        }
    }

    /// Name of the scarce resource.
    #[must_use]
    pub fn budget(&self) -> String {
        quota_budget(&self.resource, &self.quota)
    }
}

pub(crate) fn quota_budget(resource: &str, quota: &str) -> String {
    format!("{resource} of quota {quota}")
}

impl fmt::Display for QuotaShortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { quota, resource, left, per_replica } = self;
        let (left, per_replica) = (left.text(resource), per_replica.text(resource));
        write!(f, "limited: quota {quota} has {left} of {resource} left, a replica needs {per_replica}")
    }
}

/// A model with a better priority that waits for a budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BetterModel {
    pub(crate) namespace: String,
    pub(crate) model_id: String,
}

impl BetterModel {
    pub(crate) fn takes(&self, budget: String) -> YieldedBudget {
        YieldedBudget { budget, namespace: self.namespace.clone(), model_id: self.model_id.clone() }
    }
}

/// A budget that a model with a better priority gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct YieldedBudget {
    /// Such as `GPUs of H100`.
    pub budget: String,
    /// Namespace of the model that gets it.
    pub namespace: String,
    /// Model that gets it.
    #[serde(rename = "modelID")]
    pub model_id: String,
}

impl fmt::Display for YieldedBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { budget, namespace, model_id } = self;
        write!(f, "leaves {budget} to model {model_id} in namespace {namespace}, which has a better priority")
    }
}

/// Replicas that wait for quota. They take no requests soon, but are not broken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct WaitingReplicas {
    /// Number of them.
    pub waiting: u32,
    /// What they wait for, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<QuotaWait>,
}

impl fmt::Display for WaitingReplicas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} replica(s) wait for quota", self.waiting)?;
        self.cause.as_ref().map_or(Ok(()), |cause| write!(f, ": {cause}"))
    }
}
