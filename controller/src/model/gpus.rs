//! Reasons why the GPUs of the cluster are not counted.

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
