//! What the API server stores of events: series, actions, related objects and the reporting controller.

use anyhow::{Context as _, ensure};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use wva_controller::EventReporter;
use wva_controller::events::PendingEvent;
use wva_crds::events::{EventReason, EventSource, ObjectKind, object_reference};
use wva_testbed::{Testbed, eventually};

use super::{SOON, cluster};
use crate::support::{Cluster, list_objects};

/// As long as a label value may be, with all kinds of characters.
const INSTANCE: &str = "Blue_1.of-the-longest-names-that-a-label-value-of-an-object-has";

/// Waits for the events of a variant whose workload is deleted again and again: one object for each text.
pub(super) async fn wait_for_series(cluster: &Cluster, ns: &str) -> anyhow::Result<()> {
    let (yet, again) = eventually("one event for each text, with its repeats", SOON, async || {
        let mut events = list(&cluster.testbed, ns, "reason=TargetNotFound").await?;
        events.sort_by_key(|event| event["eventTime"].to_string());
        let [yet, again] = &events[..] else { anyhow::bail!("{events:?}") };
        ensure!(again["series"]["count"] == 2, "{again}");
        Ok((yet.clone(), again.clone()))
    })
    .await?;
    ensure!(yet["series"].is_null() && yet["note"].to_string().contains("does not exist yet"), "{yet}");
    ensure!(again["note"].to_string().contains("no longer exists"), "{again}");
    ensure!(again["series"]["lastObservedTime"].as_str() > again["eventTime"].as_str(), "{again}");
    for event in [yet, again] {
        ensure!(event["type"] == "Warning" && event["action"] == "ResolveTarget", "{event}");
        let (regarding, related) = (&event["regarding"], &event["related"]);
        ensure!(regarding["kind"] == "VariantAutoscaling" && regarding["name"] == "late", "{event}");
        ensure!(related["kind"] == "Deployment" && related["name"] == "late", "{event}");
        ensure!(event["reportingController"] == "wva", "{event}");
    }
    Ok(())
}

async fn list(testbed: &Testbed, ns: &str, selector: &str) -> anyhow::Result<Vec<Value>> {
    let selector = selector.replace('=', "%3D").replace('/', "%2F");
    list_objects(testbed, "apis/events.k8s.io/v1", ns, &format!("events?fieldSelector={selector}")).await
}

/// Writes the same event three times.
async fn write_thrice(client: kube::Client, ns: &str, reason: EventReason) {
    let source = EventSource { instance: Some(INSTANCE.to_owned()), pod: Some("pod".to_owned()) };
    let reporter = EventReporter::new(client, source);
    let pending = PendingEvent { warning: true, reason, note: "the same text".to_owned(), digest: None };
    for _ in 0..3 {
        let kind = |api_version, kind| ObjectKind { api_version, kind };
        let regarding = object_reference(kind("llmd.ai/v1alpha1", "VariantAutoscaling"), ns, "a", Some("u"));
        let workload = object_reference(kind("apps/v1", "Deployment"), ns, "d", None);
        reporter.report_on(regarding, Some(workload), &pending).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_accepts_series_and_every_instance() -> anyhow::Result<()> {
    let testbed = &cluster().await?.testbed;
    let ns = testbed.namespace("series").await?;
    ensure!(INSTANCE.len() == 63, "it is shorter than a label value may be");
    for reason in EventReason::ALL {
        write_thrice(testbed.admin()?, &ns, *reason).await;
    }
    let events = list(testbed, &ns, &format!("reportingController=wva.llmd.ai/{INSTANCE}")).await?;
    ensure!(events.len() == EventReason::ALL.len(), "{events:?}");
    for event in events {
        ensure!(event["series"]["count"] == 3 && event["reportingInstance"] == "pod", "{event}");
        ensure!(event["related"]["name"] == "d" && event["regarding"]["name"] == "a", "{event}");
    }
    Ok(())
}

/// The role of release 0.1.0 has no patches.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_right_to_patch_each_event_is_its_own() -> anyhow::Result<()> {
    let testbed = &cluster().await?.testbed;
    let ns = testbed.namespace("no-series").await?;
    let create = json!({"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"]});
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": "old", "namespace": ns}, "rules": [create]});
    testbed.apply(&role.to_string()).await?;
    let account = format!("{ns}:default");
    let bind = ["create", "rolebinding", "old", "--role=old", "--serviceaccount", &account, "-n", &ns];
    testbed.kubectl(&bind).await?.success()?;
    let user = format!("--as=system:serviceaccount:{account}");
    let can_create = ["auth", "can-i", "create", "events.events.k8s.io", &user, "-n", &ns];
    eventually("the role to apply", SOON, async || testbed.kubectl(&can_create).await?.success()).await?;
    let file = testbed.service_account_kubeconfig(&ns, "default").await?;
    let kubeconfig = Kubeconfig::read_from(file).context("the kubeconfig of the account")?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    write_thrice(kube::Client::try_from(config)?, &ns, EventReason::Stuck).await;
    let events = list(testbed, &ns, "reason=Stuck").await?;
    ensure!(events.len() == 3 && events.iter().all(|event| event["series"].is_null()), "{events:?}");
    Ok(())
}
