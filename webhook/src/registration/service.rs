//! Checks that the Service has a ready endpoint: a webhook that is registered earlier would deny every request.

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Client;
use kube::api::{Api, ListParams};

use super::{Error, call};

/// Service of the webhook configurations.
#[derive(Clone, Debug)]
pub struct ServiceRef {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl ServiceRef {
    /// Succeeds for an `ExternalName` Service too: it has no endpoints.
    pub(super) async fn check_endpoint(&self, client: &Client) -> Result<(), Error> {
        let services: Api<Service> = Api::namespaced(client.clone(), &self.namespace);
        let service = call("read", "Service", &self.name, services.get(&self.name)).await?;
        if service.spec.and_then(|spec| spec.type_).as_deref() == Some("ExternalName") {
            return Ok(());
        }
        let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), &self.namespace);
        let of_service = ListParams::default().labels(&format!("kubernetes.io/service-name={}", self.name));
        let request = slices.list(&of_service);
        let slices = call("read", "EndpointSlices of Service", &self.name, request).await?;
        // The API defines a missing `ready` as true.
        let ready = slices
            .iter()
            .flat_map(|slice| slice.endpoints.iter().flatten())
            .any(|endpoint| endpoint.conditions.as_ref().and_then(|c| c.ready).unwrap_or(true));
        if ready {
            Ok(())
        } else {
            Err(Error::NoEndpoint { namespace: self.namespace.clone(), name: self.name.clone() })
        }
    }
}
