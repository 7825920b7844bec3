//! Callers of the webhook. Without a client CA, the review of a stranger is answered, but its answer contains no value
//! of the running process and no event contains its user name. With a client CA, only the API server is answered, and
//! events name the user that it has authenticated.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use wva_testbed::install::{Install, InstallOptions, SERVICE, SYSTEM};
use wva_testbed::{Testbed, eventually};

use super::map_objects::MAIN as MAP;
use super::{SOON, WEBHOOKS_LOCK, create, shared};
use crate::support::{events, install_options, read_ca, valid_spec, variant};

const FORGED: &str = "system:admin-forged";
/// Values that only the process knows, from its main map and its environment.
const RUNNING: [&str; 3] = ["pool=gold", "77s", "53s"];

/// One release, and a stranger on the pod network.
struct Release<'t> {
    testbed: &'t Testbed,
    options: InstallOptions,
    namespace: String,
}

impl Release<'_> {
    fn map(&self, data: &Value) -> Value {
        let metadata = json!({"name": MAP, "namespace": self.namespace});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
    }

    /// Sends the creation of another main map to the program itself, as a stranger.
    async fn forge(&self, install: &Install) -> anyhow::Result<(u16, String)> {
        let port = install.address("admission")?.rsplit_once(':').context("no port")?.1.parse()?;
        let service = self.options.named(SERVICE);
        let host = format!("{service}.{}.svc", self.namespace);
        let client = reqwest::Client::builder()
            .no_proxy()
            .timeout(Duration::from_secs(20))
            .tls_certs_only([reqwest::Certificate::from_pem(&read_ca(self.testbed, &self.options).await?)?])
            .resolve(&host, std::net::SocketAddr::from(([127, 0, 0, 1], port)))
            .build()?;
        let object = self.map(&json!({"LEADER_ELECTION_LEASE_DURATION": "20s"}));
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "forged", "kind": {"group": "", "version": "v1", "kind": "ConfigMap"}, "name": MAP,
            "namespace": self.namespace, "operation": "CREATE", "userInfo": {"username": FORGED}, "object": object}});
        let url = format!("https://{host}:{port}/validate-v1-configmap");
        let answer = client.post(url).body(review.to_string()).send().await?;
        Ok((answer.status().as_u16(), answer.text().await?))
    }

    /// Messages of the events about denied changes.
    async fn notes(&self) -> anyhow::Result<Vec<String>> {
        let events = events(self.testbed, &self.namespace, "ImmutableConfigChangeRejected").await?;
        Ok(events.iter().map(|event| event["message"].to_string()).collect())
    }

    /// Waits until there are exactly this many.
    async fn notes_of(&self, events: usize) -> anyhow::Result<Vec<String>> {
        eventually("the event of a refused change", SOON, async || {
            let notes = self.notes().await?;
            ensure!(notes.len() == events, "{notes:?}");
            Ok(notes)
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn user_names_and_events_come_from_verified_callers() -> anyhow::Result<()> {
    let testbed = &shared().await?.testbed;
    let _open = WEBHOOKS_LOCK.read().await;
    let mut options = install_options();
    options.release = Some("callers".to_owned());
    let namespace = options.named(SYSTEM);
    options.judges = Some(namespace.clone());
    let options = options.with(&[("WATCH_NAMESPACE", &namespace), ("LEADER_ELECTION_RENEW_DEADLINE", "53s")]);
    let mut release = Release { testbed, options, namespace };
    testbed.kubectl(&["create", "namespace", &release.namespace]).await?.success()?;
    let started_with = release.map(&json!({"WVA_NODE_SELECTOR": "pool=gold", "REST_CLIENT_TIMEOUT": "77s"}));
    create(testbed, &release.namespace, &started_with).await?.success()?;

    without_client_ca(&release).await?;
    let ca = testbed.webhook_client_ca();
    let ca = ca.to_str().context("the path is not UTF-8")?;
    release.options = release.options.with(&[("WVA_WEBHOOK_CLIENT_CA", ca)]);
    with_client_ca(&release).await
}

/// A forged review is answered without running values, and no event has its user.
async fn without_client_ca(release: &Release<'_>) -> anyhow::Result<()> {
    let install = Install::start(release.testbed, &release.options).await?;
    let (status, answer) = release.forge(&install).await?;
    ensure!(status == 200 && answer.contains("WVA-CM-006"), "{status} {answer}");
    for part in ["data.WVA_NODE_SELECTOR", "data.REST_CLIENT_TIMEOUT"] {
        ensure!(answer.contains(part), "{part:?} is not in the answer: {answer}");
    }
    ensure!(
        RUNNING.iter().all(|value| !answer.contains(value)),
        "a running value is in the answer: {answer}"
    );
    let notes = release.notes_of(1).await?;
    ensure!(!notes[0].contains("forged") && notes[0].contains("WVA_NODE_SELECTOR"), "{notes:?}");
    install.process().wait_logged(SOON, &[&format!("\"unverified_user\":\"{FORGED}\"")]).await?;
    let log = install.process().log();
    ensure!(!log.contains(&format!("\"user\":\"{FORGED}\"")), "{log}");
    install.stop().await
}

/// A forged review is denied. Reviews of the API server are answered, and events name the user.
async fn with_client_ca(release: &Release<'_>) -> anyhow::Result<()> {
    let testbed = release.testbed;
    let install = Install::start(testbed, &release.options).await?;
    let (status, answer) = release.forge(&install).await?;
    ensure!(status == 403 && answer.contains("WVA_WEBHOOK_CLIENT_CA"), "{status} {answer}");
    let changed = json!({"data": {"WVA_NODE_SELECTOR": "pool=silver"}}).to_string();
    let patch = ["patch", "configmap", MAP, "-n", &release.namespace, "--type=merge", "-p", &changed];
    eventually("the API server to reach the program again", SOON, async || {
        let ran = testbed.kubectl(&[&patch[..], &["--dry-run=server"]].concat()).await?;
        ensure!(!ran.ok && ran.stderr.contains("[WVA-CM-001]"), "{ran:?}");
        // A repeated request creates no second event.
        let ran = testbed.kubectl(&patch).await?;
        ensure!(ran.stderr.contains("changed from \"pool=gold\" to \"pool=silver\""), "{ran:?}");
        Ok(())
    })
    .await?;
    let notes = release.notes_of(2).await?;
    let by_admin = |note: &String| note.contains("data.WVA_NODE_SELECTOR by admin");
    ensure!(notes.iter().any(by_admin), "{notes:?}");
    ensure!(notes.iter().all(|note| !note.contains("forged")), "{notes:?}");
    let refused = |code| [("resource", "configmaps"), ("allowed", "false"), ("code", code)];
    let count = install.series("wva_admission_reviews_total", &refused("403")).await?;
    ensure!(count == Some(1.0), "refused callers: {count:?}");

    // Reviews of variants are answered too.
    create(testbed, &release.namespace, &variant("passes", &valid_spec("passes"))).await?.success()?;
    let passed = [("resource", "variantautoscalings"), ("allowed", "true"), ("code", "200")];
    let count = install.series("wva_admission_reviews_total", &passed).await?;
    ensure!(count.is_some_and(|count| count >= 1.0), "reviews that passed: {count:?}");
    install.stop().await
}
