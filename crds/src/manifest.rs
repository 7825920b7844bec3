//! The CRD as YAML, for `crds/*.yaml` and `wva crd`. `make generate` writes the file; a test of `xtask` fails if it is
//! out of date.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, JSON};
use kube::CustomResourceExt;
use serde_json::json;

use crate::VariantAutoscaling;

/// The CRD. An object without a status reads as one whose spec wva has not seen: kstatus takes an object without conditions
/// for ready.
#[must_use]
pub fn crd() -> CustomResourceDefinition {
    let mut crd = VariantAutoscaling::crd();
    let schemas = crd.spec.versions.iter_mut().filter_map(|version| version.schema.as_mut());
    let properties = schemas.filter_map(|schema| schema.open_api_v3_schema.as_mut()?.properties.as_mut());
    for status in properties.filter_map(|properties| properties.get_mut("status")) {
        status.default = Some(JSON(json!({"observedGeneration": -1})));
    }
    crd
}

/// The CRD as YAML.
///
/// # Errors
/// Errors of the serializer; none for the types of this crate.
pub fn crd_yaml() -> Result<String, serde_saphyr::ser::Error> {
    let yaml = serde_saphyr::to_string(&crd())?;
    Ok(format!("{}\n", yaml.trim_end()))
}
