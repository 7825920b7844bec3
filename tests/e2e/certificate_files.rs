//! Mode `files` on a real control plane: certificates that somebody else makes, here `wva certs make`, are served, put
//! into the webhook configurations and the APIService, and taken anew when they change; garbage changes nothing.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::{good, try_create, variant};
use anyhow::{Context as _, ensure};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use wva_testbed::install::{Install, InstallOptions, SERVICE, SYSTEM, WEBHOOKS};
use wva_testbed::{Options, Testbed, eventually};

/// Files are looked at every 5 s, and the webhooks every 10.
const DEADLINE: Duration = Duration::from_mins(1);
const WVA: &str = env!("CARGO_BIN_EXE_wva");

fn make(folder: &Path) -> anyhow::Result<()> {
    let made = Command::new(WVA)
        .args(["certs", "make", "--namespace", SYSTEM, "--service", SERVICE, "--out"])
        .arg(folder)
        .output()?;
    ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Ok(())
}

/// One variant without a fault is admitted, and one with a fault that only the webhook knows is refused.
async fn reviews_are_answered(testbed: &Testbed, namespace: &str) -> anyhow::Result<()> {
    let client = testbed.admin()?;
    let admitted = try_create(&client, namespace, &variant("good", &good("good"))).await?;
    ensure!(admitted.is_ok(), "{admitted:?}");
    let mut bad = variant("bad", &good("bad"));
    bad["metadata"]["annotations"] = serde_json::json!({"wva.llmd.ai/mode": "sometimes"});
    let refused = try_create(&client, namespace, &bad).await?;
    let message = refused.err().context("a fault was admitted")?.message;
    ensure!(message.contains("WVA-VA-"), "{message}");
    Ok(())
}

/// The CA bundle of the first webhook.
async fn bundle(testbed: &Testbed) -> anyhow::Result<String> {
    let found = Api::<ValidatingWebhookConfiguration>::all(testbed.admin()?).get(WEBHOOKS).await?;
    let webhook = found.webhooks.and_then(|all| all.into_iter().next());
    let bundle = webhook.and_then(|webhook| webhook.client_config.ca_bundle);
    Ok(String::from_utf8(bundle.context("there is no CA bundle")?.0)?)
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_of_others_are_served_and_followed() -> anyhow::Result<()> {
    let options = Options {
        name: "certificate-files".to_owned(),
        nodes: Vec::new(),
        with_prometheus: false,
        ..Options::default()
    };
    let testbed = Testbed::start(options).await?;
    let (folder, other) = (testbed.data().join("mounted"), testbed.data().join("other"));
    make(&folder)?;
    make(&other)?;
    let mut options = InstallOptions::quick(WVA);
    let path = folder.to_str().context("the folder's name is no UTF-8")?.to_owned();
    options.env.push(("WEBHOOK_CERT_PATH".to_owned(), path));
    let install = Install::start(&testbed, &options).await?;
    let namespace = testbed.namespace("reviews").await?;
    reviews_are_answered(&testbed, &namespace).await?;
    let secret = testbed.kubectl(&["get", "secret", &format!("{SERVICE}-ca"), "-n", SYSTEM]).await?;
    ensure!(!secret.ok && secret.stderr.contains("NotFound"), "nobody asked for a CA: {secret:?}");

    std::fs::write(folder.join("tls.crt"), "garbage")?;
    eventually("the garbage to be told of", DEADLINE, async || {
        ensure!(install.process().log().contains("cannot be used: put a certificate there"), "not yet");
        Ok(())
    })
    .await?;
    reviews_are_answered(&testbed, &namespace).await.context("with garbage in the folder")?;

    // The key last, so that the pair does not match for a moment.
    for file in ["ca.crt", "tls.crt", "tls.key"] {
        std::fs::copy(other.join(file), folder.join(file))?;
    }
    let ca = std::fs::read_to_string(other.join("ca.crt"))?;
    eventually("the webhooks to trust the new CA", DEADLINE, async || {
        let bundle = bundle(&testbed).await?;
        ensure!(bundle.contains(ca.trim()), "not yet");
        Ok(())
    })
    .await?;
    eventually("reviews to be answered with the new pair", DEADLINE, async || {
        ensure!(install.process().log().matches("Serving a new certificate").count() == 2, "not yet");
        reviews_are_answered(&testbed, &namespace).await
    })
    .await?;
    install.stop().await
}
