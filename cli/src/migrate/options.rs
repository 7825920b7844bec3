//! What a command line asks of the conversion.

use wva_rules::KubernetesVersion;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PlanOptions<'a> {
    pub(super) recommend: bool,
    /// The list of workloads is complete.
    pub(super) from_cluster: bool,
    /// `None`: not known.
    pub(super) kubernetes: Option<KubernetesVersion>,
    /// Namespace of the install that reads the global maps.
    pub(super) controller_namespace: Option<&'a str>,
    /// Helm release of that install.
    pub(super) release: Option<&'a str>,
}
