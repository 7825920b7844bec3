//! Variants with their workloads and HPAs from the API server, once or as a watch.

use std::fmt::Debug;
use std::pin::pin;

use anyhow::Context as _;
use futures::StreamExt as _;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::task::JoinSet;
use wva_testbed::Testbed;

/// A variant with its Deployment and HPA of the same name.
#[derive(Clone, Debug)]
pub(crate) struct VariantState {
    pub(crate) name: String,
    pub(crate) target: Option<u64>,
    pub(crate) replicas: u64,
    pub(crate) ready: u64,
    variant: Value,
    autoscaler: Value,
}

impl VariantState {
    /// Field of a condition of the variant; empty if missing.
    pub(crate) fn condition(&self, kind: &str, field: &str) -> &str {
        condition(&self.variant, kind, field)
    }

    /// Whether `MetricsAvailable` is True.
    pub(crate) fn is_measured(&self) -> bool {
        self.condition("MetricsAvailable", "status") == "True"
    }

    /// Field of a condition of the HPA.
    pub(crate) fn hpa_condition(&self, kind: &str, field: &str) -> &str {
        condition(&self.autoscaler, kind, field)
    }
}

fn condition<'a>(object: &'a Value, kind: &str, field: &str) -> &'a str {
    let all = object["status"]["conditions"].as_array();
    let found = all.and_then(|all| all.iter().find(|condition| condition["type"] == kind));
    found.and_then(|condition| condition[field].as_str()).unwrap_or_default()
}

/// All objects of these kinds in a namespace.
pub(crate) async fn objects(testbed: &Testbed, namespace: &str, kinds: &str) -> anyhow::Result<Vec<Value>> {
    let json = testbed.kubectl(&["get", kinds, "-n", namespace, "-o", "json"]).await?.success()?;
    let list: Value = serde_json::from_str(&json)?;
    list["items"].as_array().cloned().context("a list without items")
}

/// The variants of a namespace.
pub(crate) async fn variants(testbed: &Testbed, namespace: &str) -> anyhow::Result<Vec<VariantState>> {
    Ok(variants_of(&objects(testbed, namespace, "va,deploy,hpa").await?))
}

/// The variants among these objects.
pub(crate) fn variants_of(objects: &[Value]) -> Vec<VariantState> {
    let of = |kind: &str, name: &Value| {
        let mut found = objects.iter().filter(|o| o["kind"] == kind && o["metadata"]["name"] == *name);
        found.next().cloned().unwrap_or_default()
    };
    let seen = |variant: &Value| {
        let name = &variant["metadata"]["name"];
        let deployment = of("Deployment", name);
        VariantState {
            name: name.as_str().unwrap_or_default().to_owned(),
            target: variant["status"]["desiredOptimizedAlloc"]["numReplicas"].as_u64(),
            replicas: deployment["spec"]["replicas"].as_u64().unwrap_or_default(),
            ready: deployment["status"]["readyReplicas"].as_u64().unwrap_or_default(),
            variant: variant.clone(),
            autoscaler: of("HorizontalPodAutoscaler", name),
        }
    };
    objects.iter().filter(|object| object["kind"] == "VariantAutoscaling").map(seen).collect()
}

/// Calls `see` with each object, and again after each change, until the set is dropped.
pub(crate) fn follow<K>(api: Api<K>, mut see: impl FnMut(K) + Send + 'static) -> JoinSet<()>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut watching = JoinSet::new();
    watching.spawn(async move {
        let mut seen = pin!(watcher(api, watcher::Config::default()).default_backoff().applied_objects());
        while let Some(object) = seen.next().await {
            // After an error the watch restarts and lists missed objects.
            if let Ok(object) = object {
                see(object);
            }
        }
    });
    watching
}
