//! Does the Service lead anywhere? The API server sends reviews to the Service, which has no endpoint before the
//! kubelet has seen a replica ready: a webhook opened before that would refuse everything.

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Client;
use kube::api::{Api, ListParams};

use super::{Error, call};

/// The Service that the webhook configurations name.
#[derive(Clone, Debug)]
pub struct ServiceRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl ServiceRef {
    /// Succeeds where the Service has a ready endpoint. One of type `ExternalName` leads to a name instead, behind which
    /// nothing here can look.
    pub(super) async fn leads_somewhere(&self, client: &Client) -> Result<(), Error> {
        let services: Api<Service> = Api::namespaced(client.clone(), &self.namespace);
        let service = call("read", "Service", &self.name, services.get(&self.name)).await?;
        if service.spec.and_then(|spec| spec.type_).as_deref() == Some("ExternalName") {
            return Ok(());
        }
        let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), &self.namespace);
        let of_service = ListParams::default().labels(&format!("kubernetes.io/service-name={}", self.name));
        let request = slices.list(&of_service);
        let slices = call("read", "EndpointSlices of Service", &self.name, request).await?;
        // Not said to be ready means ready, by the API's own words.
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
