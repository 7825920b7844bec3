//! The external metrics API of a leader, of a follower, and of a replica without a leader: an HPA may reach any of them
//! and must read the same.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::{BOTH, pair};
use crate::support::Outcome;
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::install::InstallOptions;
use wva_testbed::replicas::Replicas;
use wva_testbed::{Testbed, eventually};

const NAME: &str = "served";
/// A fixed target, so that every answer is known.
const TARGET: &str = "3";
/// Longest wait for a decision.
const DECIDED: Duration = Duration::from_mins(3);
/// Least number of answers without a leader: a lease lasts longer than so many requests.
const LEADERLESS: usize = 10;

/// Queries both of two replicas, kills the leader, and queries the other one until it leads.
pub(crate) async fn metrics_api(testbed: &Testbed, wva: &Path) -> anyhow::Result<Outcome> {
    let mut replicas = pair(testbed, InstallOptions::quick(wva), "metrics-api").await?;
    let fixture = VariantFixture::new(replicas.namespace(), NAME);
    let fixed = format!("  annotations: {{wva.llmd.ai/mode: \"fixed={TARGET}\"}}\nspec:");
    let variant = fixture.variant().replacen("spec:", &fixed, 1);
    testbed.apply(&[fixture.deployment(), variant].join("---\n")).await?;
    for index in BOTH {
        let what = format!("wva-{index} to serve the target");
        eventually(&what, DECIDED, async || {
            let items = items(&replicas, index).await?;
            ensure!(items[0]["value"] == TARGET, "it serves {items}");
            Ok(())
        })
        .await
        .with_context(|| replicas.evidence())?;
    }
    let (leader, follower) = roles(&replicas).await?;
    let expected = items(&replicas, leader).await?;
    let mut faults = Vec::new();
    let mut note = |replica: &str, answer: &Value| {
        if *answer != expected {
            faults.push(format!("{replica} answers {answer}, and the leader {expected}"));
        }
    };
    note("a follower", &items(&replicas, follower).await?);
    replicas.kill(leader)?;
    let mut leaderless = 0;
    // The answers of a new leader are the same: it is queried a few times more.
    let mut led = 0;
    while led < LEADERLESS {
        let answer = items(&replicas, follower).await?;
        if replicas.leads(follower).await? == Some(true) {
            led += 1;
            note("the new leader", &answer);
        } else {
            leaderless += 1;
            note("a replica without a leader", &answer);
        }
    }
    if leaderless < LEADERLESS {
        faults.push(format!("only {leaderless} answers came without a leader"));
    }
    let figures = format!(
        "a follower, {leaderless} answers without a leader and {led} of the new leader: {} differ",
        faults.len()
    );
    Ok(Outcome { figures, faults })
}

/// Leader and follower.
async fn roles(replicas: &Replicas<'_>) -> anyhow::Result<(usize, usize)> {
    eventually("one leader", DECIDED, async || match [replicas.leads(0).await?, replicas.leads(1).await?] {
        [Some(true), Some(false)] => Ok((0, 1)),
        [Some(false), Some(true)] => Ok((1, 0)),
        other => anyhow::bail!("{other:?}"),
    })
    .await
}

/// Answer of a replica itself, without the time.
async fn items(replicas: &Replicas<'_>, index: usize) -> anyhow::Result<Value> {
    let (port, namespace) = (replicas.port(index, "external metrics")?, replicas.namespace());
    let url = format!(
        "https://127.0.0.1:{port}/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/wva_desired_replicas?labelSelector=variant_name%3D{NAME}"
    );
    // Its certificate is for the name of the Service.
    let http = reqwest::Client::builder()
        .no_proxy()
        .timeout(DECIDED)
        .tls_danger_accept_invalid_certs(true)
        .build()?;
    let answer = http.get(url).bearer_auth(replicas.testbed().admin_token()).send().await?;
    let status = answer.status();
    let mut list: Value = answer.json().await.with_context(|| format!("{status} without JSON"))?;
    ensure!(status.is_success(), "{status}: {list}");
    for item in list["items"].as_array_mut().context("no items")? {
        item["timestamp"].take();
    }
    Ok(list["items"].take())
}
