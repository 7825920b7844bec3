//! Mode `files`: mounted certificates, here from `wva certs make`, are served, written into the webhook configurations
//! and the `APIService`, and replaced when they change; garbage changes nothing.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::trust::{Trust, secret_name};
use crate::support::{Outcome, dry_run_create, invalid_variant, valid_spec, variant};
use wva_testbed::install::{InstallOptions, SERVICE, SYSTEM};
use wva_testbed::replicas::Replicas;
use wva_testbed::{Testbed, eventually, run};

/// The program reads the files every 5 s, and the webhooks every 10 s.
const SOON: Duration = Duration::from_mins(3);

pub(crate) async fn certificate_files(testbed: &Testbed, wva: &Path) -> anyhow::Result<Outcome> {
    let [folder, other] = ["mounted", "other"].map(|name| testbed.data().join(name));
    for folder in [&folder, &other] {
        let mut make = tokio::process::Command::new(wva);
        make.args(["certs", "make", "--namespace", SYSTEM, "--service", SERVICE, "--out"]).arg(folder);
        run("wva certs make", make, "", SOON).await?.success()?;
    }
    let options = InstallOptions::quick(wva).with(&[("WEBHOOK_CERT_PATH", &folder.to_string_lossy())]);
    let mut replicas = Replicas::install(testbed, options, "files").await?;
    replicas.start(0).await?;
    replicas.wait_ready(&[0]).await?;
    replicas.wait_webhooks().await?;
    wait_until_trusted(&replicas, &folder).await?;
    // The API server learns of the caBundle by its watch.
    eventually("reviews to be answered", SOON, async || check_reviews(&replicas).await).await?;
    let secret = testbed.kubectl(&["get", "secret", &secret_name(&replicas), "-n", SYSTEM]).await?;
    ensure!(!secret.ok && secret.stderr.contains("NotFound"), "the program made a CA: {secret:?}");

    std::fs::write(folder.join("tls.crt"), "garbage")?;
    replicas.process(0)?.wait_logged(SOON, &["Invalid certificate files"]).await?;
    check_reviews(&replicas).await.context("with garbage in the folder")?;

    // The key last, so that the pair does not match for a moment.
    for file in ["ca.crt", "tls.crt", "tls.key"] {
        std::fs::copy(other.join(file), folder.join(file))?;
    }
    wait_until_trusted(&replicas, &other).await?;
    eventually("reviews to be answered with the new pair", SOON, async || {
        let served = replicas.process(0)?.log().matches("Serving a new certificate").count();
        ensure!(served == 2, "{served} certificates were served");
        check_reviews(&replicas).await
    })
    .await?;
    Ok(Outcome { figures: "two mounted certificates were served".to_owned(), ..Outcome::default() })
}

/// Waits until every `caBundle` has the CA of this folder.
async fn wait_until_trusted(replicas: &Replicas<'_>, folder: &Path) -> anyhow::Result<()> {
    let ca = std::fs::read_to_string(folder.join("ca.crt"))?;
    eventually("every caBundle to hold the CA", SOON, async || {
        for ((name, _), bundle) in &Trust::read(replicas).await?.bundles {
            ensure!(String::from_utf8_lossy(bundle).contains(ca.trim()), "{name} does not");
        }
        Ok(())
    })
    .await
}

/// A valid variant is admitted, and a violation that only the webhook detects is denied.
async fn check_reviews(replicas: &Replicas<'_>) -> anyhow::Result<()> {
    let client = replicas.testbed().admin()?;
    let admitted =
        dry_run_create(&client, replicas.namespace(), &variant("good", &valid_spec("good"))).await?;
    ensure!(admitted.is_ok(), "{admitted:?}");
    let refused = dry_run_create(&client, replicas.namespace(), &invalid_variant("bad")).await?;
    let message = refused.err().context("a fault was admitted")?.message;
    ensure!(message.contains("[WVA-VA-017]"), "{message}");
    Ok(())
}
