//! Input of the checks before an install, read once.

use clap::ArgMatches;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::Api;
use kube::api::PostParams;
use serde_json::Value;
use wva_rules::KubernetesVersion;

use super::controllers::{Installed, list_controllers};
use super::facts::{get_api_service, server_pods};
use super::pre::prometheus_services;
use crate::arguments::value;
use crate::cluster::{
    ApiError, Cluster, NETWORK_POLICIES, NODES, Resource, SCALED_OBJECTS, SERVICE_MONITORS, SERVICES,
    VALIDATING_WEBHOOKS, connection_error, id, items, text,
};
use crate::prometheus::{Prometheus, Series};

/// Namespace of the documents.
const NAMESPACE: &str = "workload-variant-autoscaler-system";

/// A kind of which the chart creates objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Right {
    group: &'static str,
    pub(super) plural: &'static str,
    pub(super) is_namespaced: bool,
}

const fn in_cluster(group: &'static str, plural: &'static str) -> Right {
    Right { group, plural, is_namespaced: false }
}

const fn in_namespace(group: &'static str, plural: &'static str) -> Right {
    Right { group, plural, is_namespaced: true }
}

/// Kinds of the chart with its defaults.
pub(super) const RIGHTS: [Right; 11] = [
    in_cluster("apiextensions.k8s.io", "customresourcedefinitions"),
    in_cluster("rbac.authorization.k8s.io", "clusterroles"),
    in_cluster("rbac.authorization.k8s.io", "clusterrolebindings"),
    in_cluster("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
    in_cluster("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
    in_cluster("admissionregistration.k8s.io", "validatingadmissionpolicies"),
    in_cluster("admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
    in_namespace("apps", "deployments"),
    in_namespace("", "configmaps"),
    in_namespace("", "secrets"),
    in_namespace("rbac.authorization.k8s.io", "roles"),
];

pub(super) struct PreFacts {
    /// Namespace of the future release.
    pub(super) namespace: String,
    /// `None` if the API server names none.
    pub(super) kubernetes: Option<KubernetesVersion>,
    pub(super) missing_rights: Result<Vec<Right>, String>,
    pub(super) controllers: Result<Installed, String>,
    /// `Ok(None)`: no server is registered.
    pub(super) api_service: Result<Option<Value>, String>,
    pub(super) has_keda: Result<bool, String>,
    pub(super) has_monitors: Result<bool, String>,
    pub(super) nodes: Result<Vec<Value>, String>,
    /// Names of validating webhook configurations.
    pub(super) webhooks: Vec<String>,
    /// `NetworkPolicies` of the namespace.
    pub(super) network_policies: Vec<Value>,
    /// `NAMESPACE/NAME:PORT` of Services that look like a Prometheus.
    pub(super) prometheus_services: Vec<String>,
    /// Pods of model servers by namespace; `None` without `--prometheus`.
    pub(super) series: Option<Result<Vec<Series>, String>>,
    /// Variable of this shell that names a proxy.
    pub(super) proxy: Option<&'static str>,
}

impl PreFacts {
    /// # Errors
    /// The Prometheus options are wrong, or the API server does not answer.
    pub(super) async fn read(arguments: &ArgMatches) -> anyhow::Result<Self> {
        let prometheus = Prometheus::from_options(arguments)?;
        let everywhere = Cluster::connect_everywhere(arguments).await?;
        if let Err(error) = everywhere.get("/version").await {
            anyhow::ensure!(error.code != 0, "{}", error.message);
        }
        let namespace = value(arguments, "namespace").unwrap_or(NAMESPACE).to_owned();
        let inside = Cluster { namespace: Some(namespace.clone()), ..everywhere.clone() };
        let mut unreadable = Vec::new();
        let controllers = list_controllers(&everywhere, arguments, &mut unreadable).await;
        let reason = unreadable.into_iter().map(|kind| kind.reason).next();
        let services = everywhere.list(&SERVICES).await.unwrap_or_default();
        let webhooks = everywhere.list(&VALIDATING_WEBHOOKS).await.unwrap_or_default();
        let series = match &prometheus {
            Some(prometheus) => Some(prometheus.series(&server_pods()).await),
            None => None,
        };
        Ok(Self {
            kubernetes: everywhere.kubernetes_version().await,
            missing_rights: missing_rights(&everywhere, &namespace).await,
            controllers: controllers.ok_or_else(|| reason.unwrap_or_default()),
            api_service: get_api_service(&everywhere).await,
            has_keda: is_served(&everywhere, &SCALED_OBJECTS).await,
            has_monitors: is_served(&everywhere, &SERVICE_MONITORS).await,
            nodes: everywhere.list(&NODES).await.map_err(|error| error.to_string()),
            webhooks: webhooks.iter().map(|webhook| id(webhook).name).collect(),
            network_policies: inside.list(&NETWORK_POLICIES).await.unwrap_or_default(),
            prometheus_services: prometheus_services(&services),
            series,
            proxy: ["HTTPS_PROXY", "https_proxy"].into_iter().find(|name| std::env::var_os(name).is_some()),
            namespace,
        })
    }
}

/// Whether the API server serves the kind. Every user may ask; a list can be forbidden for kinds that are not served, too.
async fn is_served(
    cluster: &Cluster,
    Resource { group, version, plural, .. }: &Resource,
) -> Result<bool, String> {
    match cluster.get(&format!("/apis/{group}/{version}")).await {
        Ok(list) => Ok(items(&list, "/resources").any(|resource| text(resource, "/name") == *plural)),
        Err(ApiError { code: 404, .. }) => Ok(false),
        Err(ApiError { message, .. }) => Err(message),
    }
}

/// Rights that the user lacks.
async fn missing_rights(cluster: &Cluster, namespace: &str) -> Result<Vec<Right>, String> {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(cluster.client.clone());
    let mut missing = Vec::new();
    for right in RIGHTS {
        let attributes = ResourceAttributes {
            group: Some(right.group.to_owned()),
            resource: Some(right.plural.to_owned()),
            verb: Some("create".to_owned()),
            namespace: right.is_namespaced.then(|| namespace.to_owned()),
            ..ResourceAttributes::default()
        };
        let spec = SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            ..SelfSubjectAccessReviewSpec::default()
        };
        let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
        let answer = reviews.create(&PostParams::default(), &review).await;
        let answer = answer.map_err(|error| connection_error(&cluster.server, &error))?;
        if !answer.status.is_some_and(|status| status.allowed) {
            missing.push(right);
        }
    }
    Ok(missing)
}
