//! Secure metrics on a real API server: `/metrics` over HTTPS with the certificate the program made itself, for those
//! alone that the API server knows and allows. A control plane of its own: its API server stops.

use std::time::Duration;

use crate::support::{ca_of, options};
use anyhow::{Context as _, ensure};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use wva_testbed::handshake::tls;
use wva_testbed::install::Install;
use wva_testbed::{Component, Options, Testbed, eventually};

/// For an API server that starts again, or a review that is due.
const OUTAGE: Duration = Duration::from_mins(1);
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

#[tokio::test(flavor = "multi_thread")]
async fn only_those_the_api_server_allows_read_metrics() -> anyhow::Result<()> {
    let testbed = Testbed::start(Options { name: "secure-metrics".to_owned(), ..Options::default() }).await?;
    let mut options = options();
    options.env.push(("METRICS_SECURE".to_owned(), "true".to_owned()));
    options.env.push(("ENABLE_HTTP2".to_owned(), "true".to_owned()));
    // The debug build asks again after a second, not after a minute.
    options.env.push(("WVA_FAULT".to_owned(), "forget-reviews".to_owned()));
    let install = Install::start(&testbed, &options).await?;
    testbed.apply(READER).await?;

    let pem = ca_of(&testbed, &options).await?;
    let client = reqwest::Client::builder()
        .no_proxy()
        .timeout(Duration::from_secs(20))
        .tls_certs_only([reqwest::Certificate::from_pem(&pem)?])
        .build()?;
    let port = port(&install, "metrics")?;
    let ask = async |token: Option<&str>| {
        let request = client.get(format!("https://localhost:{port}/metrics"));
        let answer = token.iter().fold(request, reqwest::RequestBuilder::bearer_auth).send().await?;
        anyhow::Ok((answer.status().as_u16(), answer.text().await?))
    };
    let token = async |name: &str| testbed.kubectl(&["create", "token", name]).await?.success();

    let (status, text) = ask(None).await?;
    ensure!(status == 401 && !text.contains("wva_build_info"), "without a token: {status} {text}");
    let (status, _) = ask(Some("made-up")).await?;
    ensure!(status == 401, "with a token nobody issued: {status}");
    let (status, text) = ask(Some(token("stranger").await?.trim())).await?;
    ensure!(status == 403 && !text.contains("wva_build_info"), "without the right: {status} {text}");
    let (scraper, never_seen) = (token("scraper").await?, token("scraper").await?);
    let (status, text) = ask(Some(scraper.trim())).await?;
    ensure!(status == 200 && text.contains("wva_build_info"), "with the right: {status} {text}");
    every_https_endpoint_offers_http2(&install, &pem, token("scraper").await?.trim()).await?;

    // A caller that was allowed is served while the API server is away, also once its answer would be asked for again.
    testbed.stop(Component::Apiserver).await?;
    eventually("a review that has no answer", OUTAGE, async || {
        let (status, text) = ask(Some(scraper.trim())).await?;
        // Not a failure to be tried again.
        if status != 200 {
            return Ok(Err(format!("{status} {text}")));
        }
        ensure!(
            install.process().log().contains("The API server could not be asked for a review"),
            "not yet"
        );
        Ok(Ok(()))
    })
    .await?
    .map_err(|answer| anyhow::anyhow!("while the API server is away: {answer}"))?;
    let (status, text) = ask(Some(scraper.trim())).await?;
    ensure!(status == 200 && text.contains("wva_build_info"), "after the first such review: {status} {text}");
    let (status, text) = ask(Some(never_seen.trim())).await?;
    ensure!(
        status == 503 && !text.contains("wva_build_info"),
        "a token that was never seen: {status} {text}"
    );
    testbed.start_again(Component::Apiserver).await?;
    eventually("the token to be reviewed", OUTAGE, async || {
        let (status, _) = ask(Some(never_seen.trim())).await?;
        ensure!(status == 200, "{status}");
        Ok(())
    })
    .await
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
