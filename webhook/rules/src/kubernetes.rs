//! Version of Kubernetes, as far as fields depend on it.

use std::fmt;
use std::str::FromStr;

/// Version of an API server, such as `1.34`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KubernetesVersion {
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
}

/// Oldest version that wva works with: it has `matchConditions` of webhooks and `ValidatingAdmissionPolicy` in `v1`.
pub const OLDEST_KUBERNETES: KubernetesVersion = KubernetesVersion { major: 1, minor: 30 };

/// First version whose API server stores the `tolerance` of an HPA by default.
const HPA_TOLERANCE: KubernetesVersion = KubernetesVersion { major: 1, minor: 35 };

/// What a cluster cannot do before a version, in the order of the versions.
const LIMITS: [(KubernetesVersion, &str); 3] = [
    (KubernetesVersion { major: 1, minor: 34 }, "GPUs of resource claims do not count"),
    (HPA_TOLERANCE, "HPAs ignore steps within 10 %, for they have no tolerance field"),
    (KubernetesVersion { major: 1, minor: 37 }, "HPAs do not scale to 0 without a feature gate"),
];

/// The text names no version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a version of Kubernetes; write it as 1.34 or v1.34.2")]
pub struct VersionError(String);

impl KubernetesVersion {
    /// Whether its HPAs have a `tolerance`. Kubernetes 1.33 and 1.34 drop the field without a word, unless the feature
    /// gate `HPAConfigurableTolerance` is set; older ones do not know it.
    #[must_use]
    pub fn has_hpa_tolerance(self) -> bool {
        self >= HPA_TOLERANCE
    }

    /// What a cluster of this version cannot do, each with the first version that can.
    pub fn limits(self) -> impl Iterator<Item = (Self, &'static str)> {
        LIMITS.into_iter().filter(move |(since, _)| self < *since)
    }
}

impl FromStr for KubernetesVersion {
    type Err = VersionError;

    /// `1.34`, `v1.34.2` or `v1.34.1-eks-1a2b3c4`.
    fn from_str(text: &str) -> Result<Self, VersionError> {
        let mut numbers = text.trim().trim_start_matches('v').split('.').map(|part| {
            let end = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
            part[..end].parse().ok()
        });
        let mut next = || numbers.next().flatten().ok_or_else(|| VersionError(text.to_owned()));
        Ok(Self { major: next()?, minor: next()? })
    }
}

impl fmt::Display for KubernetesVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_versions_of_distributions() {
        for (text, want) in [
            ("1.34", Some("1.34")),
            ("v1.36.3", Some("1.36")),
            ("v1.34.1-eks-1a2b3c4", Some("1.34")),
            ("1.35+", Some("1.35")),
            ("1", None),
            ("", None),
            ("latest", None),
        ] {
            let found: Option<KubernetesVersion> = text.parse().ok();
            assert_eq!(found.map(|version| version.to_string()).as_deref(), want, "{text}");
        }
    }

    #[test]
    fn hpas_have_a_tolerance_from_1_35_on() {
        let has = |text: &str| text.parse::<KubernetesVersion>().unwrap().has_hpa_tolerance();
        assert_eq!(["1.34", "1.35", "2.0"].map(has), [false, true, true]);
    }

    #[test]
    fn older_versions_have_more_limits() {
        let limits = |minor| KubernetesVersion { major: 1, minor }.limits().map(|(since, _)| since.minor);
        assert!(limits(OLDEST_KUBERNETES.minor).eq([34, 35, 37]));
        assert!(limits(35).eq([37]));
        assert_eq!(limits(37).count(), 0);
    }
}
