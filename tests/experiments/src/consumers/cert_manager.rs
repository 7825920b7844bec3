//! cert-manager issues and renews the serving certificate of the chart's `certMode: cert-manager`, during reviews.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use serde_json::json;
use wva_testbed::install::{RELEASE, SYSTEM};
use wva_testbed::reviews::{Reviews, Tally};
use wva_testbed::{Process, eventually};

use super::programs::{apply, established, module, seconds, start, yaml_files};
use super::release::{MODELS, Site};
use crate::command::SOON;
use crate::report::Report;

/// Number of renewals of the serving certificate, and then of its CA.
const RENEWALS: u64 = 4;
/// Certificate of one hour that is renewed half a minute after issue.
const LIFE: [&str; 2] = ["1h", "59m30s"];
/// Reviews per second.
const RATE: u32 = 20;
/// Log message of a pod for each new certificate it serves.
const SERVED: &str = "Serving a new certificate";

/// Runs the experiment.
pub(super) async fn run(wva: &Path, report: &mut Report) -> anyhow::Result<()> {
    let site = Site::start("consumers-cert-manager", wva).await?;
    let crds = module("cert-manager", "github.com/cert-manager/cert-manager").await?.join("deploy/crds");
    apply(&site.testbed, &yaml_files(&crds)?).await?;
    established(&site.testbed).await?;
    let kubeconfig = format!("--kubeconfig={}", site.testbed.admin_kubeconfig().display());
    let manager = start(&site.testbed, "cert-manager", &[kubeconfig], &[]).await?;
    manager.wait_logged(SOON, &["starting the controller"]).await?;
    let ran = steps(&site, report).await;
    ran.with_context(|| [tail(&manager), site.evidence()].join("\n"))
}

fn tail(manager: &Process) -> String {
    format!("the end of the log of cert-manager:\n{}", manager.log_tail(15))
}

async fn steps(site: &Site, report: &mut Report) -> anyhow::Result<()> {
    let began = Instant::now();
    site.install("wva.webhook.certMode=cert-manager").await?;
    let (leaf, ca) = (format!("{RELEASE}-webhook"), format!("{RELEASE}-webhook-ca"));
    let signer = issuer_of(site, &leaf).await?;
    let figures = format!("by {signer}; the release works after {}", seconds(began.elapsed()));
    let issued = signer.contains("Issuer") && revision(site, &leaf).await? == 1;
    report.row("cert-manager issues the webhook's certificate", figures, "issued once", issued)?;
    let reviews = Reviews::start(&site.testbed, MODELS, RATE).await?;
    let (tally, served) = renewals(site, &leaf, reviews).await?;
    let figures = format!("{} reviews: {}", tally.sent(), faults(&tally));
    let what = format!("reviews during {RENEWALS} renewals of the certificate");
    report.row(&what, figures, "none fails", tally.faults().is_empty())?;
    let all = served.iter().all(|count| *count >= RENEWALS);
    report.row("certificates that each pod served", format!("{served:?}"), "every renewed one", all)?;
    let reviews = Reviews::start(&site.testbed, MODELS, RATE).await?;
    let tally = new_ca(site, &leaf, &ca, reviews).await?;
    let figures = format!("{} reviews: {}", tally.sent(), faults(&tally));
    report.row(
        "reviews while the CA is renewed with a new key",
        figures,
        "none fails",
        tally.faults().is_empty(),
    )
}

fn faults(tally: &Tally) -> String {
    let faults = tally.faults();
    if faults.is_empty() { "all verdicts are right".to_owned() } else { faults.join("; ") }
}

/// Shortens the certificate's lifetime, and waits until every pod serves the last renewal. The issued certificate
/// stays valid, so the first renewal is manual and the others are by age. Returns the reviews, and the number of
/// certificates that each pod began to serve.
async fn renewals(site: &Site, leaf: &str, reviews: Reviews) -> anyhow::Result<(Tally, Vec<u64>)> {
    let (first, before) = (revision(site, leaf).await?, served(site).await?);
    let [duration, renew_before] = LIFE;
    let patch = json!({"spec": {"duration": duration, "renewBefore": renew_before}}).to_string();
    site.kubectl(&["patch", "certificate", leaf, "-n", SYSTEM, "--type=merge", "-p", &patch]).await?;
    renew(site, leaf).await?;
    let wanted = first + RENEWALS;
    let limit = SOON * u32::try_from(RENEWALS)?;
    eventually(&format!("revision {wanted} of the certificate"), limit, async || {
        let now = revision(site, leaf).await?;
        ensure!(now >= wanted, "it is at {now}");
        Ok(())
    })
    .await?;
    // A pod that never does is reported as a missed row.
    let all = eventually("every pod to serve it", SOON, async || served_since(site, &before, RENEWALS).await);
    let _ = all.await;
    let served = served(site).await?;
    let more = served.iter().zip(&before).map(|(now, before)| now - before).collect();
    Ok((reviews.end().await?, more))
}

/// Number of certificates that each pod has begun to serve.
async fn served(site: &Site) -> anyhow::Result<Vec<u64>> {
    Ok(site.pods().await?.iter().map(|pod| count_served(&site.log(pod))).collect())
}

/// Whether every pod has begun to serve this number of additional certificates.
async fn served_since(site: &Site, before: &[u64], more: u64) -> anyhow::Result<()> {
    let now = served(site).await?;
    let all = now.len() == before.len() && now.iter().zip(before).all(|(now, before)| *now >= before + more);
    ensure!(all, "{before:?} before, {now:?} now");
    Ok(())
}

/// Certificates in a log, identified by expiry: each server of the pod logs each of them.
fn count_served(log: &str) -> u64 {
    let lines = log.lines().filter(|line| line.contains(SERVED));
    let ends: BTreeSet<_> =
        lines.filter_map(|line| line.split_once("\"not_after\":")).map(|(_, end)| end.get(..25)).collect();
    ends.iter().map(|_| 1).sum()
}

/// Renews the CA, and waits until every pod serves a certificate of the new one.
async fn new_ca(site: &Site, leaf: &str, ca: &str, reviews: Reviews) -> anyhow::Result<Tally> {
    let before = trusted(site, leaf).await?;
    renew(site, ca).await?;
    eventually("a certificate of the new CA", SOON, async || {
        ensure!(trusted(site, leaf).await? != before, "it is still of the old one");
        Ok(())
    })
    .await?;
    let then = served(site).await?;
    eventually("every pod to serve it", SOON, async || served_since(site, &then, 1).await).await?;
    reviews.end().await
}

/// Renews a certificate, as `cmctl renew` does.
async fn renew(site: &Site, certificate: &str) -> anyhow::Result<()> {
    let condition = json!({
        "type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": "renewed by a test",
        "lastTransitionTime": k8s_openapi::jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    });
    let patch = json!([{"op": "add", "path": "/status/conditions/-", "value": condition}]).to_string();
    let args = [
        "patch", "certificate", certificate, "-n", SYSTEM, "--subresource=status", "--type=json", "-p",
        &patch,
    ];
    site.kubectl(&args).await.map(drop)
}

/// Number of times a certificate has been issued.
async fn revision(site: &Site, certificate: &str) -> anyhow::Result<u64> {
    let object = site.read(&["certificate", certificate, "-n", SYSTEM]).await?;
    object["status"]["revision"].as_u64().context("it has not been issued")
}

/// `Kind/name` of the issuer, from the certificate's Secret.
async fn issuer_of(site: &Site, certificate: &str) -> anyhow::Result<String> {
    let secret = secret(site, certificate).await?;
    let annotation = |name: &str| {
        secret["metadata"]["annotations"][format!("cert-manager.io/{name}")]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    Ok(format!("{}/{}", annotation("issuer-kind"), annotation("issuer-name")))
}

/// `ca.crt` of the certificate's Secret.
async fn trusted(site: &Site, certificate: &str) -> anyhow::Result<String> {
    let secret = secret(site, certificate).await?;
    secret["data"]["ca.crt"].as_str().map(str::to_owned).context("the Secret has no ca.crt")
}

async fn secret(site: &Site, certificate: &str) -> anyhow::Result<serde_json::Value> {
    let object = site.read(&["certificate", certificate, "-n", SYSTEM]).await?;
    let name = object["spec"]["secretName"].as_str().context("a Certificate without a Secret")?;
    site.read(&["secret", name, "-n", SYSTEM]).await
}
