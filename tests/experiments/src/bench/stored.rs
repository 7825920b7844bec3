//! The cluster that reviews are judged against: namespaces full of variants, each with its Deployment and its HPA, and
//! in each namespace a workload that no variant has yet. The Deployments have no replicas, so that the control plane,
//! which shares the machine with what is measured, has nothing to do for them.

use std::time::Duration;

use anyhow::Context;
use kube::Api;
use kube::api::{DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use tokio::task::JoinSet;
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::{Testbed, within};

/// Namespaces, and variants in each.
pub(super) const NAMESPACES: usize = 20;
const EACH: usize = 50;
/// All variants.
pub(super) const VARIANTS: usize = NAMESPACES * EACH;
/// Name of the workload without a variant, and of its HPA.
pub(super) const NEW: &str = "new";

/// A single object is stored in milliseconds; the machine may be busy.
const CALL: Duration = Duration::from_secs(30);

/// Stores everything and gives the names of the namespaces.
pub(super) async fn store(testbed: &Testbed) -> anyhow::Result<Vec<String>> {
    let client = testbed.admin()?;
    let mut namespaces = Vec::new();
    let mut tasks = JoinSet::new();
    for _ in 0..NAMESPACES {
        let namespace = testbed.namespace("bench").await?;
        tasks.spawn(fill(client.clone(), namespace.clone()));
        namespaces.push(namespace);
    }
    while let Some(done) = tasks.join_next().await {
        done.context("storing objects panicked")??;
    }
    Ok(namespaces)
}

async fn fill(client: kube::Client, namespace: String) -> anyhow::Result<()> {
    for i in 0..EACH {
        let fixture = VariantFixture {
            // Two variants a model, as most fleets have it.
            model: format!("meta-llama/Llama-{}", i / 2),
            cost: if i % 2 == 0 { "10.0".to_owned() } else { "40.0".to_owned() },
            ..VariantFixture::new(&namespace, &format!("variant-{i}")).replicas(0)
        };
        for yaml in [fixture.deployment(), fixture.autoscaler(), fixture.variant()] {
            create(&client, &yaml).await?;
        }
    }
    let new = VariantFixture::new(&namespace, NEW).replicas(0);
    create(&client, &new.deployment()).await?;
    create(&client, &new.autoscaler()).await
}

/// Creates one namespaced object from its manifest.
pub(super) async fn create(client: &kube::Client, yaml: &str) -> anyhow::Result<()> {
    let object: DynamicObject =
        serde_saphyr::from_str(yaml).map_err(|e| anyhow::anyhow!("a fixture is no YAML: {e}"))?;
    let types = object.types.clone().context("a fixture without a kind")?;
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types)?);
    let namespace = object.metadata.namespace.clone().context("a fixture without a namespace")?;
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), &namespace, &resource);
    within("storing an object", CALL, api.create(&PostParams::default(), &object)).await.map(|_| ())
}
