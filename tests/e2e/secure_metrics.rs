//! Secure metrics on a real API server: `/metrics` over HTTPS with the self-made certificate, only for callers that the
//! API server authenticates and allows.
//! Why a control plane of its own: its API server stops.

use std::net::IpAddr;
use std::time::Duration;

use crate::support::{install_options, read_ca, repository_path};
use anyhow::{Context as _, ensure};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use wva_testbed::handshake::tls;
use wva_testbed::install::{Install, PICKER_READER, SYSTEM};
use wva_testbed::{Component, Options, Testbed, eventually};

/// Longest wait for an API server that restarts, or for a review that is due.
const OUTAGE: Duration = Duration::from_mins(3);
const READER: &str = "
{apiVersion: v1, kind: ServiceAccount, metadata: {name: scraper, namespace: default}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: stranger, namespace: default}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: scraper}
rules: [{nonResourceURLs: [/metrics], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: scraper}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: scraper}
subjects: [{kind: ServiceAccount, name: scraper, namespace: default}]
";

/// A caller of `/metrics` over HTTPS.
struct Scraper<'a> {
    testbed: &'a Testbed,
    install: &'a Install,
    client: reqwest::Client,
}

/// Status and body of an answer.
struct Scrape {
    status: u16,
    body: String,
}

impl Scraper<'_> {
    async fn scrape(&self, token: Option<&str>) -> anyhow::Result<Scrape> {
        let request =
            self.client.get(format!("https://localhost:{}/metrics", port(self.install, "metrics")?));
        let answer = token.iter().fold(request, reqwest::RequestBuilder::bearer_auth).send().await?;
        Ok(Scrape { status: answer.status().as_u16(), body: answer.text().await? })
    }

    /// Asserts the status, and that only 200 has metrics.
    async fn expect(&self, what: &str, token: Option<&str>, wanted: u16) -> anyhow::Result<()> {
        let Scrape { status, body } = self.scrape(token).await?;
        ensure!(
            status == wanted && body.contains("wva_build_info") == (wanted == 200),
            "{what}: {status} {body}"
        );
        Ok(())
    }

    /// A new token of a service account.
    async fn token(&self, account: &str) -> anyhow::Result<String> {
        let token = self.testbed.kubectl(&["create", "token", account]).await?.success()?;
        Ok(token.trim().to_owned())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_require_rbac_permission() -> anyhow::Result<()> {
    let testbed = Testbed::start(Options { name: "secure-metrics".to_owned(), ..Options::default() }).await?;
    // The debug build repeats reviews after a second, not after a minute.
    let fault = ("WVA_FAULT", "forget-reviews");
    let options = install_options().with(&[("METRICS_SECURE", "true"), ("ENABLE_HTTP2", "true"), fault]);
    let install = Install::start(&testbed, &options).await?;
    testbed.apply(READER).await?;

    let pem = read_ca(&testbed, &options).await?;
    let client = |address: [u8; 4]| {
        let builder = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(20));
        let certificate = reqwest::Certificate::from_pem(&pem)?;
        builder.local_address(IpAddr::from(address)).tls_certs_only([certificate]).build()
    };
    let caller = Scraper { testbed: &testbed, install: &install, client: client([127, 0, 0, 1])? };
    caller.expect("without a token", None, 401).await?;
    caller.expect("with a made-up token", Some("made-up"), 401).await?;
    caller.expect("without the right", Some(&caller.token("stranger").await?), 403).await?;
    let (scraper, never_seen) = (caller.token("scraper").await?, caller.token("scraper").await?);
    // The API server learns of the new permissions by its watch.
    eventually("the rights to take effect", OUTAGE, async || {
        caller.expect("with the right", Some(&scraper), 200).await
    })
    .await?;
    account_of_pickers_is_refused(&caller).await?;
    let stranger = Scraper { testbed: &testbed, install: &install, client: client([127, 0, 0, 2])? };
    stranger_locks_out_only_itself(&stranger, &caller).await?;
    every_https_endpoint_offers_http2(&install, &pem, &caller.token("scraper").await?).await?;

    testbed.stop(Component::Apiserver).await?;
    allowed_until_reviewed_again(&caller, &scraper).await?;
    caller.expect("after the first such review", Some(&scraper), 200).await?;
    caller.expect("with a token that was not reviewed", Some(&never_seen), 503).await?;
    testbed.start_again(Component::Apiserver).await?;
    eventually("the token to be reviewed", OUTAGE, async || {
        let status = caller.scrape(Some(&never_seen)).await?.status;
        ensure!(status == 200, "{status}");
        Ok(())
    })
    .await
}

/// Its token is in the hands of tenants. It may get `/metrics`, else no picker would accept it.
async fn account_of_pickers_is_refused(caller: &Scraper<'_>) -> anyhow::Result<()> {
    let testbed = caller.testbed;
    testbed.apply(&std::fs::read_to_string(repository_path("config/base/metrics-scraper.yaml"))?).await?;
    let may = format!("--as=system:serviceaccount:{SYSTEM}:{PICKER_READER}");
    eventually("the right of the account", OUTAGE, async || {
        testbed.kubectl(&["auth", "can-i", "get", "/metrics", &may]).await?.success().map(drop)
    })
    .await?;
    let token = testbed.service_account_token(SYSTEM, PICKER_READER).await?;
    let Scrape { status, body } = caller.scrape(Some(&token)).await?;
    ensure!(
        status == 403 && body.contains("endpoint pickers"),
        "the account of the pickers: {status} {body}"
    );
    let prometheus =
        testbed.service_account_token(SYSTEM, "workload-variant-autoscaler-metrics-reader").await?;
    caller.expect("the account for Prometheus", Some(&prometheus), 200).await
}

/// Invented tokens use up the limit of the address that they come from.
async fn stranger_locks_out_only_itself(stranger: &Scraper<'_>, caller: &Scraper<'_>) -> anyhow::Result<()> {
    let new = caller.token("scraper").await?;
    let mut refused = 0;
    for i in 0..100 {
        let status = stranger.scrape(Some(&format!("invented-{i}"))).await?.status;
        ensure!(status == 401 || status == 429, "{status}");
        refused += u32::from(status == 429);
    }
    ensure!(refused > 0, "no invented token was refused unseen");
    stranger.expect("a new token from the same address", Some(&new), 429).await?;
    caller.expect("a new token from another address", Some(&new), 200).await
}

/// An allowed caller is served while the API server is away, also when its review is due.
async fn allowed_until_reviewed_again(caller: &Scraper<'_>, token: &str) -> anyhow::Result<()> {
    eventually("a review that has no answer", OUTAGE, async || {
        let Scrape { status, body } = caller.scrape(Some(token)).await?;
        // This is a result, not a failure to retry.
        if status != 200 {
            return Ok(Err(format!("{status} {body}")));
        }
        let log = caller.install.process().log();
        ensure!(log.contains("The API server could not be asked for a review"), "not yet");
        Ok(Ok(()))
    })
    .await?
    .map_err(|answer| anyhow::anyhow!("while the API server is away: {answer}"))
}

fn port(install: &Install, what: &str) -> anyhow::Result<u16> {
    let port = install.address(what)?.rsplit_once(':').context("no port")?.1;
    Ok(port.parse()?)
}

async fn every_https_endpoint_offers_http2(install: &Install, ca: &[u8], token: &str) -> anyhow::Result<()> {
    for (what, path) in [("metrics", "/metrics"), ("external metrics", "/livez"), ("admission", "/")] {
        for (protocols, chosen) in [(&["h2", "http/1.1"][..], "h2"), (&["http/1.1"], "http/1.1")] {
            let stream = tls(port(install, what)?, "localhost", ca, protocols).await?;
            let agreed = stream.get_ref().1.alpn_protocol().map(String::from_utf8_lossy);
            ensure!(agreed.as_deref() == Some(chosen), "{what} agreed to {agreed:?} of {protocols:?}");
            if chosen == "h2" {
                let (mut sender, connection) =
                    http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
                let connection = tokio::spawn(connection);
                let request = hyper::Request::get(format!("https://localhost{path}"))
                    .header("authorization", format!("Bearer {token}"))
                    .body(String::new())?;
                let answer =
                    tokio::time::timeout(Duration::from_secs(20), sender.send_request(request)).await??;
                let known = answer.status() == 200 || what == "admission";
                ensure!(known && answer.version() == hyper::Version::HTTP_2, "{what}: {answer:?}");
                connection.abort();
            }
        }
    }
    Ok(())
}
