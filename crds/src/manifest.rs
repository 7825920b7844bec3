//! The CRD as YAML: what `crds/*.yaml` holds and `wva crd` prints. `make generate` writes it; `tests/program/generated.rs` fails when the
//! checked-in file differs from what the types say.

use kube::CustomResourceExt;

use crate::VariantAutoscaling;

/// The `CustomResourceDefinition` of `VariantAutoscaling`, as YAML with a final newline.
///
/// # Errors
/// Never for the types of this crate; the serializer's error is passed on rather than hidden.
pub fn crd_yaml() -> Result<String, serde_saphyr::ser::Error> {
    let yaml = serde_saphyr::to_string(&VariantAutoscaling::crd())?;
    Ok(format!("{}\n", yaml.trim_end()))
}
