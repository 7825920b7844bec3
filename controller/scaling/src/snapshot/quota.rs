//! ResourceQuotas: what they allow, what a replica takes from them, and why replicas wait for quota.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Amount of a resource as a ResourceQuota counts it: millicores of CPU, else whole units (bytes, GPUs, pods).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct QuotaAmount(pub u64);

/// One resource that one ResourceQuota limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QuotaLimit {
    /// Namespace of the ResourceQuota.
    pub namespace: String,
    /// Name of the ResourceQuota.
    pub quota: String,
    /// Resource, such as `requests.memory`.
    pub resource: String,
    /// Most that the pods of the namespace may use.
    pub limit: QuotaAmount,
    /// Used by pods, and by replicas without pods that were requested earlier.
    #[serde(default)]
    pub used: QuotaAmount,
}

/// What one replica takes from one resource of a ResourceQuota.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QuotaNeed {
    /// Name of the ResourceQuota, in the namespace of the variant.
    pub quota: String,
    /// Resource, such as `requests.memory`.
    pub resource: String,
    /// Amount of all pods of one replica.
    pub per_replica: QuotaAmount,
}

/// What replicas wait for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum QuotaWait {
    /// Scheduling gate of their pods, such as `kueue.x-k8s.io/admission`.
    Gate(String),
    /// ResourceQuota that has no room for their pods.
    Quota(String),
}

impl fmt::Display for QuotaWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gate(gate) => write!(f, "scheduling gate {gate}"),
            Self::Quota(quota) => write!(f, "ResourceQuota {quota} has no room for their pods"),
        }
    }
}

const BINARY_UNITS: [(&str, u64); 4] = [("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)];

impl QuotaAmount {
    /// Whether amounts of this resource are millicores.
    #[must_use]
    pub fn is_millicores(resource: &str) -> bool {
        matches!(resource, "cpu" | "requests.cpu" | "limits.cpu")
    }

    /// Amount as Kubernetes writes it: `1500m` of CPU, `16Gi` of memory.
    #[must_use]
    pub fn text(self, resource: &str) -> String {
        let Self(amount) = self;
        if Self::is_millicores(resource) {
            return if amount.is_multiple_of(1000) {
                (amount / 1000).to_string()
            } else {
                format!("{amount}m")
            };
        }
        let unit = BINARY_UNITS.iter().find(|(_, size)| amount >= *size && amount.is_multiple_of(*size));
        unit.map_or_else(|| amount.to_string(), |(suffix, size)| format!("{}{suffix}", amount / size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_the_units_of_kubernetes() {
        for (resource, amount, want) in [
            ("requests.cpu", 1500, "1500m"),
            ("cpu", 4000, "4"),
            ("limits.memory", 16 << 30, "16Gi"),
            ("memory", 1_000_000_000, "1000000000"),
            ("memory", 1536 << 10, "1536Ki"),
            ("requests.nvidia.com/gpu", 8, "8"),
            ("pods", 0, "0"),
        ] {
            assert_eq!(QuotaAmount(amount).text(resource), want);
        }
    }
}
