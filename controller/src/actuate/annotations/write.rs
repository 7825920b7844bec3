//! Writes of VariantAutoscalings. A create never overwrites an object, and every other write is conditional on the uid.

use std::time::Duration;

use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use serde_json::Value;
use wva_crds::VariantAutoscaling;
use wva_crds::names::{ACCELERATOR_LABEL, PLURAL};
use wva_runtime::api_call::{ApiCall, is_temporary};
use wva_runtime::leadership::NotLeading;
use wva_scaling::VariantKey;

use crate::observe::watches::variant::Variant;

/// Field manager of the objects.
const MANAGER: &str = "wva-annotations";
const TIMEOUT: Duration = Duration::from_secs(10);

/// A change of one VariantAutoscaling.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Change {
    Create(Value),
    Apply { manifest: Value, uid: String },
    Delete { key: VariantKey, uid: String },
}

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(super) enum WriteError {
    /// The API server refused the write: by admission, by the schema or for lack of permissions.
    #[error("the API server refused the VariantAutoscaling: {0}")]
    Refused(String),
    #[error(
        "{0}; grant this controller create, patch and delete of variantautoscalings (Helm: wva.annotations=true)"
    )]
    Forbidden(String),
    /// May succeed later.
    #[error("{0}")]
    Failed(String),
    #[error("not done within {} s", TIMEOUT.as_secs())]
    TooSlow,
    #[error(transparent)]
    NotLeading(NotLeading),
}

impl WriteError {
    pub(super) const fn is_temporary(&self) -> bool {
        matches!(self, Self::Failed(_) | Self::TooSlow)
    }
}

impl Change {
    pub(super) fn delete(variant: &Variant) -> Self {
        Self::Delete { key: variant.key.clone(), uid: variant.uid.clone() }
    }

    /// `None` for a deletion.
    pub(super) fn manifest(&self) -> Option<(VariantKey, &Value)> {
        match self {
            Self::Create(manifest) | Self::Apply { manifest, .. } => Some((self.key(), manifest)),
            Self::Delete { .. } => None,
        }
    }

    fn key(&self) -> VariantKey {
        match self {
            Self::Create(manifest) | Self::Apply { manifest, .. } => {
                let text = |field| manifest["metadata"][field].as_str().unwrap_or_default().to_owned();
                VariantKey { namespace: text("namespace"), name: text("name") }
            }
            Self::Delete { key, .. } => key.clone(),
        }
    }

    const fn action(&self) -> &'static str {
        match self {
            Self::Create(_) => "create",
            Self::Apply { .. } => "apply",
            Self::Delete { .. } => "delete",
        }
    }
}

pub(super) struct VariantWriter {
    client: Client,
}

impl VariantWriter {
    pub(super) const fn new(client: Client) -> Self {
        Self { client }
    }

    /// Returns the written object, or `None` after a deletion.
    pub(super) async fn write(&self, change: &Change) -> Result<Option<Variant>, WriteError> {
        let written = async {
            match change {
                Change::Create(manifest) => {
                    let uid = self.create(&change.key(), manifest).await?;
                    self.apply(&change.key(), manifest, &uid).await.map(Some)
                }
                Change::Apply { manifest, uid } => self.apply(&change.key(), manifest, uid).await.map(Some),
                Change::Delete { key, uid } => self.delete(key, uid).await.map(|()| None),
            }
        };
        let written = tokio::time::timeout(TIMEOUT, written).await.unwrap_or(Err(WriteError::TooSlow))?;
        let (VariantKey { namespace, name: variant }, action) = (change.key(), change.action());
        tracing::info!(namespace, variant, action, "Wrote the VariantAutoscaling of an annotated autoscaler");
        Ok(written)
    }

    /// An apply would take over an object that a user has created since. The fields that a later apply may remove are left
    /// to it: those of a create stay.
    async fn create(&self, key: &VariantKey, manifest: &Value) -> Result<String, WriteError> {
        let mut object = manifest.clone();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("annotations");
        }
        if let Some(labels) = object["metadata"]["labels"].as_object_mut() {
            labels.remove(ACCELERATOR_LABEL);
        }
        let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let object: DynamicObject =
            serde_json::from_value(object).map_err(|e| WriteError::Refused(e.to_string()))?;
        let created = self.api(key).create(&params, &object).await;
        let created = created.map_err(|e| to_error(&call("create", key), &e))?;
        Ok(created.metadata.uid.unwrap_or_default())
    }

    /// Forced: the annotations decide, not who changed the object last. Fields that only others set stay.
    async fn apply(&self, key: &VariantKey, manifest: &Value, uid: &str) -> Result<Variant, WriteError> {
        let mut manifest = manifest.clone();
        manifest["metadata"]["uid"] = uid.into();
        let params = PatchParams::apply(MANAGER).force();
        let applied = self.api(key).patch(&key.name, &params, &Patch::Apply(&manifest)).await;
        applied.map(|object| Variant::read(&object)).map_err(|e| to_error(&call("patch", key), &e))
    }

    async fn delete(&self, key: &VariantKey, uid: &str) -> Result<(), WriteError> {
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match self.api(key).delete(&key.name, &params).await {
            Ok(_) => Ok(()),
            // It is gone, or another object has its name.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            Err(error) => Err(to_error(&call("delete", key), &error)),
        }
    }

    fn api(&self, key: &VariantKey) -> Api<DynamicObject> {
        let resource = ApiResource::erase::<VariantAutoscaling>(&());
        Api::namespaced_with(self.client.clone(), &key.namespace, &resource)
    }
}

fn call<'a>(verb: &'a str, key: &'a VariantKey) -> ApiCall<'a> {
    ApiCall { verb, resource: PLURAL, namespace: &key.namespace, name: &key.name }
}

fn to_error(call: &ApiCall<'_>, error: &kube::Error) -> WriteError {
    if let Some(not_leading) = NotLeading::cause_of(error) {
        return WriteError::NotLeading(not_leading);
    }
    match error {
        // Admission answers 422, or 403 with its own name.
        kube::Error::Api(status) if status.code == 403 && status.message.contains(" is forbidden: User ") => {
            WriteError::Forbidden(call.describe_failure(error))
        }
        // The cache is behind: another object has appeared or gone.
        kube::Error::Api(status)
            if status.code >= 400 && !is_temporary(status.code) && !matches!(status.code, 404 | 409) =>
        {
            WriteError::Refused(status.message.clone())
        }
        _ => WriteError::Failed(call.describe_failure(error)),
    }
}
