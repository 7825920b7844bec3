//! Owners of objects.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::workload_key::qualified_kind;

/// The controller of an object, by its owner references.
#[derive(Clone, Debug)]
pub struct Owner {
    /// Qualified kind, such as `ReplicaSet` or `ScaledObject.keda.sh`.
    pub kind: Box<str>,
    /// Name.
    pub name: Box<str>,
    /// UID.
    pub uid: Box<str>,
}

impl Owner {
    /// `None` without a controller.
    #[must_use]
    pub fn from_meta(meta: &ObjectMeta) -> Option<Self> {
        let owner = meta.owner_references.iter().flatten().find(|o| o.controller == Some(true))?;
        Some(Self {
            kind: qualified_kind(Some(&owner.api_version), &owner.kind).into(),
            name: owner.name.as_str().into(),
            uid: owner.uid.as_str().into(),
        })
    }
}
