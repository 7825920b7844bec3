//! The CRD as YAML, for `crds/*.yaml` and `wva crd`. `make generate` writes the file; `tests/program/generated.rs` fails if
//! it is out of date.

use kube::CustomResourceExt;

use crate::VariantAutoscaling;

/// The CRD as YAML.
///
/// # Errors
/// Errors of the serializer; none for the types of this crate.
pub fn crd_yaml() -> Result<String, serde_saphyr::ser::Error> {
    let yaml = serde_saphyr::to_string(&VariantAutoscaling::crd())?;
    Ok(format!("{}\n", yaml.trim_end()))
}
