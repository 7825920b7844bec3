//! A pod whose metrics page wva reads itself.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;
use wva_objects::pod::{Container, PodSpec};

/// The fields of a pod that tell where it serves.
#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(inherit = "Pod")]
pub(crate) struct ServingPod {
    #[serde(default)]
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    spec: PodSpec,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    phase: Option<String>,
    #[serde(rename = "podIP")]
    pod_ip: Option<String>,
}

impl ServingPod {
    pub(crate) fn containers(&self) -> &[Container] {
        &self.spec.containers
    }

    /// `None` before it has one that can be read.
    pub(crate) fn ip(&self) -> Option<IpAddr> {
        self.status.pod_ip.as_deref()?.parse().ok()
    }

    /// The phase of the API, such as `Running`.
    pub(crate) fn phase(&self) -> Option<&str> {
        self.status.phase.as_deref()
    }
}
