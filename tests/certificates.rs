//! The CA on a real control plane: whatever is done to its Secret, every review in the meantime is answered, and the
//! rotation that follows is carried through.

mod common;
mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use common::{Cluster, DEADLINE, cluster};
use serde_json::{Value, json};
use support::{good, try_create, variant};
use wva_testbed::eventually;
use wva_testbed::install::{SERVICE, SYSTEM, WEBHOOKS};

/// After this time a replica is believed to have a CA that others trust.
const SEASONED: Duration = Duration::from_secs(11);

/// Data of the Secret, base64.
async fn data(cluster: &Cluster) -> anyhow::Result<Value> {
    let secret = format!("{SERVICE}-ca");
    let json =
        cluster.testbed.kubectl(&["get", "secret", &secret, "-n", SYSTEM, "-o", "json"]).await?.success()?;
    Ok(serde_json::from_str::<Value>(&json)?["data"].take())
}

/// Waits until another CA than `before` signs and the one before is still trusted.
async fn rotated(cluster: &Cluster, what: &str, before: &Value) -> anyhow::Result<Value> {
    eventually(&format!("the rotation after: {what}"), DEADLINE, async || {
        let now = data(cluster).await?;
        ensure!(now["ca.crt"].is_string() && now["ca.crt"] != *before, "the same CA signs: {:?}", keys(&now));
        ensure!(now["next-ca.crt"].is_null(), "a rotation is under way: {:?}", keys(&now));
        ensure!(now["previous-ca.crt"].is_string(), "the CA before is not trusted: {:?}", keys(&now));
        Ok(now["ca.crt"].clone())
    })
    .await
}

fn keys(data: &Value) -> Vec<&String> {
    data.as_object().into_iter().flatten().map(|(key, _)| key).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_review_fails_whatever_happens_to_the_secret() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    let namespace = cluster.testbed.namespace("reviews").await?;
    let client = cluster.testbed.admin()?;
    let answered = AtomicUsize::new(0);
    let reviews = async {
        loop {
            let name = format!("va-{}", answered.load(Ordering::SeqCst));
            match try_create(&client, &namespace, &variant(&name, &good(&name))).await {
                Ok(Ok(_)) => answered.fetch_add(1, Ordering::SeqCst),
                Ok(Err(refused)) => anyhow::bail!("review {name} failed: {refused:?}"),
                Err(error) => return Err(error),
            };
        }
    };
    tokio::select! {
        failed = reviews => failed,
        done = destroy(cluster) => done,
    }?;
    let answered = answered.load(Ordering::SeqCst);
    ensure!(answered > 100, "only {answered} reviews in all that time prove little");
    Ok(())
}

async fn destroy(cluster: &Cluster) -> anyhow::Result<()> {
    let (testbed, secret) = (&cluster.testbed, format!("{SERVICE}-ca"));
    // One that has just started takes any good Secret as it is.
    let began = Instant::now();
    let first = eventually("the first CA to have been used for a while", DEADLINE, async || {
        ensure!(began.elapsed() > SEASONED, "not yet");
        Ok(data(cluster).await?["ca.crt"].clone())
    })
    .await?;
    testbed.kubectl(&["delete", "secret", &secret, "-n", SYSTEM]).await?.success()?;
    let second = rotated(cluster, "the Secret was deleted", &first).await?;
    let garbage = json!({"data": {"ca.crt": "Z2FyYmFnZQ==", "next-ca.key": "Z2FyYmFnZQ=="}}).to_string();
    testbed
        .kubectl(&["patch", "secret", &secret, "-n", SYSTEM, "--type=merge", "-p", &garbage])
        .await?
        .success()?;
    rotated(cluster, "the Secret held garbage", &second).await?;
    eventually("the current CA to be the first that everybody trusts", DEADLINE, async || {
        let current = data(cluster).await?["ca.crt"].clone();
        // The end of the base64 depends on what follows.
        let start = current.as_str().and_then(|ca| ca.get(..ca.len() - 8)).unwrap_or("none");
        let validating = format!("validatingwebhookconfiguration/{WEBHOOKS}");
        for (object, path) in [
            (validating.as_str(), "jsonpath={.webhooks[0].clientConfig.caBundle}"),
            ("apiservice/v1beta1.external.metrics.k8s.io", "jsonpath={.spec.caBundle}"),
        ] {
            let bundle = testbed.kubectl(&["get", object, "-o", path]).await?.success()?;
            ensure!(bundle.starts_with(start), "{object} has another first");
        }
        Ok(())
    })
    .await?;
    for name in ["ca", "serving"] {
        let labels = [("name", name)];
        let ends = cluster.install.series("wva_certificate_expiry_timestamp_seconds", &labels).await?;
        ensure!(ends.is_some_and(|ends| ends > 1.7e9), "the end of {name}: {ends:?}");
    }
    let events = testbed
        .kubectl(&[
            "get",
            "events",
            "-n",
            SYSTEM,
            "-o",
            "jsonpath={range .items[*]}{.reason}: {.message}{'\\n'}{end}",
        ])
        .await?
        .success()?;
    for told in
        ["Created a new CA", "the Secret does not exist", "step 2 of 3", "not exactly one X.509 certificate"]
    {
        ensure!(events.contains(told), "{told:?} is not among the events: {events}");
    }
    Ok(())
}
