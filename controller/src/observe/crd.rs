//! Check of the installed CRD at start-up.

use kube::Client;
use wva_crds::manifest;
use wva_runtime::crd::{CrdSchemaError, missing_fields};

/// Logs a warning if the installed CRD is missing, or lacks fields of this release.
pub async fn warn_if_crd_outdated(client: &Client) {
    match missing_fields(client, &manifest::crd()).await {
        Ok(missing) if missing.is_empty() => {}
        Ok(missing) => tracing::warn!(
            fields = missing.join(", "),
            "The VariantAutoscaling CRD is outdated and drops fields; apply the CRD of this release: wva crd | kubectl \
             apply --server-side --force-conflicts -f -"
        ),
        Err(CrdSchemaError::NotInstalled { .. }) => tracing::warn!(
            "The VariantAutoscaling CRD is not installed; apply it: wva crd | kubectl apply --server-side -f -"
        ),
        Err(error) => {
            tracing::warn!(%error, "Cannot check whether the VariantAutoscaling CRD is up to date");
        }
    }
}
