//! GPU counts by extended resource: one resource per vendor, and one per MIG profile.

use std::collections::BTreeMap;
use std::ops::Add;

use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use wva_scaling::normalize_accelerator;

pub(crate) struct Vendor {
    /// That containers request.
    pub(crate) resource: &'static str,
    /// Node label with the product name.
    pub(crate) product: &'static str,
}

pub(crate) const VENDORS: [Vendor; 3] = [
    Vendor { resource: "nvidia.com/gpu", product: "nvidia.com/gpu.product" },
    Vendor { resource: "amd.com/gpu", product: "amd.com/gpu.product" },
    Vendor { resource: "intel.com/gpu", product: "intel.com/gpu.product" },
];
/// Index in [`VENDORS`] of the vendor of MIG slices.
pub(crate) const NVIDIA: usize = 0;
/// Resources of MIG slices (strategy `mixed` of the device plugin): `nvidia.com/mig-1g.5gb`.
const MIG_RESOURCE: &str = "nvidia.com/mig-";

/// True for resources whose units are GPUs or MIG slices.
pub(crate) fn is_gpu_resource(name: &str) -> bool {
    name.starts_with(MIG_RESOURCE) || VENDORS.iter().any(|vendor| vendor.resource == name)
}

/// `A100-MIG-1g.5gb`, the name that strategy `single` of the device plugin yields. `card`: in any spelling. A name of
/// a slice stays.
pub(crate) fn mig_accelerator(card: &str, profile: &str) -> String {
    let card = normalize_accelerator(card);
    if is_mig(&card) {
        return card;
    }
    // A resource name has no `+`; DRA drivers write `1g.5gb+me`.
    format!("{card}-MIG-{}", profile.replace('+', "."))
}

fn is_mig(accelerator: &str) -> bool {
    accelerator.split('-').any(|part| part.eq_ignore_ascii_case("mig"))
}

/// Why GPUs are not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoInventory {
    #[error(
        "WATCH_NAMESPACE is set, so nodes and pods of other namespaces are not watched; set WVA_LIMITED_MODE=true, and \
         grant get, list and watch on nodes and pods by a ClusterRole"
    )]
    NotWatched,
    #[error("no permission to read {0}; grant get, list and watch on {0} by a ClusterRole")]
    Forbidden(&'static str),
    /// The API server has not answered yet.
    #[error("{0} are not listed yet: the API server has not answered")]
    Unknown(&'static str),
}

/// Every pod in the cache has one, so it is small.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gpus {
    /// Whole cards, in the order of [`VENDORS`].
    pub(crate) cards: [u16; VENDORS.len()],
    /// Sorted by profile. Most pods have none.
    pub(crate) mig: Box<[MigCount]>,
}

/// MIG slices of one profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MigCount {
    /// `1g.5gb`.
    pub(crate) profile: Box<str>,
    pub(crate) count: u16,
}

impl Gpus {
    pub(crate) fn from_resources(resources: &BTreeMap<String, Quantity>) -> Self {
        let slices = resources.range(MIG_RESOURCE.to_owned()..).map_while(|(name, quantity)| {
            let profile = name.strip_prefix(MIG_RESOURCE)?;
            Some(MigCount { profile: profile.into(), count: whole_number(quantity).unwrap_or(0) })
        });
        Self {
            cards: VENDORS.map(|v| resources.get(v.resource).and_then(whole_number).unwrap_or(0)),
            mig: slices.filter(|slices| slices.count > 0).collect(),
        }
    }

    /// GPUs that a container requests. As in Kubernetes, missing requests default to the limits.
    fn requested(resources: Option<&ResourceRequirements>) -> Self {
        let list = |of: fn(&ResourceRequirements) -> Option<&BTreeMap<String, Quantity>>| {
            resources.and_then(of).map(Self::from_resources).unwrap_or_default()
        };
        list(|r| r.requests.as_ref()).max(&list(|r| r.limits.as_ref()))
    }

    /// GPUs of the containers, or the peak of the init containers if that is more. Sidecars keep theirs.
    pub(crate) fn for_pod<'a>(
        containers: impl IntoIterator<Item = &'a Container>,
        init: impl IntoIterator<Item = &'a Container>,
    ) -> Self {
        let requested = |c: &Container| Self::requested(c.resources.as_ref());
        let (mut sidecars, mut peak) = (Self::default(), Self::default());
        for container in init {
            let with_it = sidecars.clone() + requested(container);
            peak = peak.max(&with_it);
            if container.restart_policy.as_deref() == Some("Always") {
                sidecars = with_it;
            }
        }
        containers.into_iter().map(requested).fold(sidecars, Add::add).max(&peak)
    }

    pub(crate) fn for_template(pod: &PodSpec) -> Self {
        Self::for_pod(&pod.containers, pod.init_containers.iter().flatten())
    }

    /// Cards and slices.
    pub(crate) fn total(&self) -> u32 {
        let slices = self.mig.iter().map(|slices| u32::from(slices.count));
        self.cards.iter().map(|n| u32::from(*n)).chain(slices).fold(0, u32::saturating_add)
    }

    /// Profile of its slices. `None` with whole cards, or with slices of several profiles.
    pub(crate) fn mig_profile(&self) -> Option<&str> {
        match (&*self.mig, self.cards) {
            ([slices], [0, 0, 0]) => Some(&slices.profile),
            _ => None,
        }
    }

    /// The same without a resource.
    pub(crate) fn without(mut self, resource: &str) -> Self {
        for (count, vendor) in self.cards.iter_mut().zip(&VENDORS) {
            if vendor.resource == resource {
                *count = 0;
            }
        }
        if let Some(profile) = resource.strip_prefix(MIG_RESOURCE) {
            self.mig = self.mig.into_iter().filter(|slices| &*slices.profile != profile).collect();
        }
        self
    }

    fn max(self, other: &Self) -> Self {
        self.combined(other, u16::max)
    }

    /// `combine` returns the other count if one is 0.
    fn combined(mut self, other: &Self, combine: fn(u16, u16) -> u16) -> Self {
        for (n, other) in self.cards.iter_mut().zip(other.cards) {
            *n = combine(*n, other);
        }
        if !other.mig.is_empty() {
            let mut all: BTreeMap<Box<str>, u16> =
                self.mig.into_iter().map(|slices| (slices.profile, slices.count)).collect();
            for MigCount { profile, count } in &other.mig {
                let n = all.entry(profile.clone()).or_default();
                *n = combine(*n, *count);
            }
            self.mig = all.into_iter().map(|(profile, count)| MigCount { profile, count }).collect();
        }
        self
    }
}

impl Add for Gpus {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.combined(&other, u16::saturating_add)
    }
}

/// Reads a whole quantity. For extended resources the API server accepts no fractions and abbreviates thousands as
/// `k`.
fn whole_number(quantity: &Quantity) -> Option<u16> {
    let text = quantity.0.as_str();
    let count = match text.strip_suffix('k') {
        Some(thousands) => thousands.parse::<u32>().ok()?.saturating_mul(1000),
        None => text.parse().ok()?,
    };
    Some(u16::try_from(count).unwrap_or(u16::MAX))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn asks(gpus: &Value) -> Value {
        json!({"name": "c", "resources": gpus})
    }

    fn nvidia(n: u32) -> Value {
        asks(&json!({"limits": {"nvidia.com/gpu": n.to_string(), "cpu": "4"}}))
    }

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "tests hand it over as they write it")]
    fn check(containers: Value, init: Value, want: [u16; 3]) {
        let pod: PodSpec =
            serde_json::from_value(json!({"containers": containers, "initContainers": init})).unwrap();
        let found = Gpus::for_pod(&pod.containers, pod.init_containers.iter().flatten());
        let want = Gpus { cards: want, mig: Box::default() };
        assert_eq!(found, want, "{containers} after {init}");
    }

    fn slices(profile: &str, n: u32) -> Value {
        let mut limits = serde_json::Map::from_iter([("cpu".to_owned(), json!("4"))]);
        limits.insert(format!("nvidia.com/mig-{profile}"), json!(n.to_string()));
        json!({"name": "c", "resources": {"limits": limits}})
    }

    #[test]
    fn mig_slices_count_by_profile() {
        let count = |containers: Value, init: Value| {
            let pod: PodSpec =
                serde_json::from_value(json!({"containers": containers, "initContainers": init})).unwrap();
            let gpus = Gpus::for_template(&pod);
            let slices: Vec<String> = gpus.mig.iter().map(|m| format!("{} {}", m.count, m.profile)).collect();
            (gpus.cards[NVIDIA], slices.join(", "), gpus.total(), gpus.mig_profile().map(str::to_owned))
        };
        let found = |cards, slices: &str, total, profile: Option<&str>| {
            (cards, slices.to_owned(), total, profile.map(str::to_owned))
        };
        let (one, two) = (slices("1g.5gb", 1), slices("2g.10gb.me", 2));
        assert_eq!(count(json!([one]), json!([])), found(0, "1 1g.5gb", 1, Some("1g.5gb")));
        assert_eq!(
            count(json!([one, one]), json!([slices("1g.5gb", 3)])),
            found(0, "3 1g.5gb", 3, Some("1g.5gb"))
        );
        assert_eq!(count(json!([one, two]), json!([])), found(0, "1 1g.5gb, 2 2g.10gb.me", 3, None));
        assert_eq!(count(json!([one, nvidia(1)]), json!([])), found(1, "1 1g.5gb", 2, None));
        assert_eq!(count(json!([slices("1g.5gb", 0)]), json!([])), found(0, "", 0, None));
    }

    #[test]
    fn names_slices_as_strategy_single_does() {
        let single = normalize_accelerator("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb");
        assert_eq!(single, "A100-MIG-1g.5gb");
        for (card, profile, want) in [
            ("NVIDIA-A100-SXM4-40GB", "1g.5gb", &*single),
            ("NVIDIA A100-SXM4-40GB", "1g.5gb", &*single),
            ("A100", "1g.5gb+me", "A100-MIG-1g.5gb.me"),
            ("a100-mig-2g.10gb", "1g.5gb", "a100-mig-2g.10gb"),
        ] {
            assert_eq!(mig_accelerator(card, profile), want, "{card} {profile}");
        }
    }

    #[test]
    fn removes_one_resource() {
        let both =
            || Gpus { cards: [2, 1, 0], mig: [MigCount { profile: "1g.5gb".into(), count: 1 }].into() };
        assert_eq!(both().without("nvidia.com/gpu"), Gpus { cards: [0, 1, 0], ..both() });
        assert_eq!(both().without("nvidia.com/mig-1g.5gb"), Gpus { mig: Box::default(), ..both() });
        assert_eq!(both().without("nvidia.com/mig-2g.10gb").without("cpu"), both());
    }

    #[test]
    fn limits_stand_in_for_requests_and_vendors_count_apart() {
        check(json!([nvidia(2), nvidia(1), {"name": "sidecar"}]), json!([]), [3, 0, 0]);
        let both = json!({"limits": {"nvidia.com/gpu": "2"}, "requests": {"nvidia.com/gpu": "2"}});
        check(json!([asks(&both)]), json!([]), [2, 0, 0]);
        check(json!([asks(&json!({"requests": {"amd.com/gpu": "4"}}))]), json!([]), [0, 4, 0]);
        check(json!([asks(&json!({"limits": {"intel.com/gpu": "1k"}}))]), json!([]), [0, 0, 1000]);
        for strange in ["0.5", "", "many", "-1"] {
            check(json!([asks(&json!({"limits": {"nvidia.com/gpu": strange}}))]), json!([]), [0, 0, 0]);
        }
        check(json!([nvidia(70_000), nvidia(1)]), json!([]), [u16::MAX, 0, 0]);
    }

    #[test]
    fn init_containers_count_by_peak_and_sidecars_add_up() {
        let sidecar = |n| {
            let mut container = nvidia(n);
            container["restartPolicy"] = "Always".into();
            container
        };
        check(json!([nvidia(2)]), json!([nvidia(1)]), [2, 0, 0]);
        check(json!([nvidia(2)]), json!([nvidia(4), nvidia(3)]), [4, 0, 0]);
        check(json!([nvidia(2)]), json!([sidecar(1)]), [3, 0, 0]);
        check(json!([nvidia(2)]), json!([sidecar(1), nvidia(4)]), [5, 0, 0]);
        check(json!([nvidia(2)]), json!([nvidia(4), sidecar(1)]), [4, 0, 0]);
    }
}
