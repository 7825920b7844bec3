//! The program is frozen, so that every review times out. Exempt requests do not wait for it, and requests that must be
//! judged are denied.

use anyhow::ensure;
use futures::future::try_join_all;
use serde_json::{Value, json};
use wva_testbed::{Process, Signal, Testbed, eventually};

use super::{SOON, WEBHOOKS_LOCK, create, patch, shared, wait_until_judging};
use crate::support::{patch_status, valid_spec, variant};

/// A frozen process, which continues when this is dropped: other tests need it.
pub(crate) struct FrozenProcess<'a>(&'a Process);

impl<'a> FrozenProcess<'a> {
    pub(crate) fn freeze(process: &'a Process) -> anyhow::Result<Self> {
        process.signal(Signal::Stop)?;
        Ok(Self(process))
    }
}

impl Drop for FrozenProcess<'_> {
    fn drop(&mut self) {
        // A frozen process cannot have ended; if it has, the next test reports it.
        let _ = self.0.signal(Signal::Cont);
    }
}

const ONE: &str = "example.com/one";
const TWO: &str = "example.com/two";

/// A patch that leaves these finalizers.
fn finalizers(left: &[&str]) -> Value {
    let left = Some(left).filter(|left| !left.is_empty());
    json!({"metadata": {"finalizers": left}})
}

/// A variant with these finalizers.
fn variant_with_finalizers(name: &str, finalizers: &[&str]) -> Value {
    let mut object = variant(name, &valid_spec(name));
    object["metadata"]["finalizers"] = json!(finalizers);
    object
}

#[tokio::test(flavor = "multi_thread")]
async fn exempt_requests_do_not_wait_for_a_frozen_program() -> anyhow::Result<()> {
    let shared = shared().await?;
    let testbed = &shared.testbed;
    let _alone = WEBHOOKS_LOCK.write().await;
    wait_until_judging(testbed).await?;
    let namespace = testbed.namespace("frozen").await?;
    for object in [
        variant_with_finalizers("both", &[ONE, TWO]),
        variant_with_finalizers("deleting", &[ONE, TWO]),
        variant_with_finalizers("alive", &[ONE]),
        variant_with_finalizers("plain", &[]),
    ] {
        create(testbed, &namespace, &object).await?.success()?;
    }
    for name in ["both", "deleting"] {
        testbed.kubectl(&["delete", "va", name, "-n", &namespace, "--wait=false"]).await?.success()?;
    }

    let frozen = FrozenProcess::freeze(shared.install.process())?;
    // A call of a frozen webhook fails after its time-out, so each success shows that no webhook was called.
    patch(testbed, &namespace, "both", &finalizers(&[TWO])).await?.success()?;
    patch(testbed, &namespace, "both", &finalizers(&[])).await?.success()?;
    patch_status(testbed, &namespace, "plain", &json!({"currentReplicas": 5})).await?;
    testbed.kubectl(&["delete", "va", "plain", "-n", &namespace]).await?.success()?;
    let mut theirs = variant("theirs", &valid_spec("theirs"));
    theirs["metadata"]["labels"] = json!({"wva.llmd.ai/controller-instance": "other"});
    create(testbed, &namespace, &theirs).await?.success()?;
    let left = testbed.kubectl(&["get", "va", "-n", &namespace, "-o", "name"]).await?.success()?;
    let left: Vec<_> = left.lines().filter_map(|l| l.rsplit('/').next()).collect();
    assert_eq!(left, ["alive", "deleting", "theirs"]);

    denies_everything_else(testbed, &namespace).await?;
    drop(frozen);
    wait_until_judging(testbed).await?;
    patch(testbed, &namespace, "deleting", &finalizers(&[])).await?.success()?;
    eventually("the object to be gone", SOON, async || {
        let ran = testbed.kubectl(&["get", "va", "deleting", "-n", &namespace]).await?;
        ensure!(!ran.ok, "it is still there");
        Ok(())
    })
    .await
}

/// The webhook judges everything else: a finalizer removed from a live object, or added to or exchanged on one under
/// deletion, a spec change together with a finalizer change, and a new object.
async fn denies_everything_else(testbed: &Testbed, namespace: &str) -> anyhow::Result<()> {
    let mut combined = finalizers(&[ONE]);
    combined["spec"] = json!({"variantCost": "40"});
    let fresh = variant("new", &valid_spec("new"));
    let changes = [
        ("alive", finalizers(&[])),
        ("alive", json!({"spec": {"variantCost": "40"}})),
        ("deleting", finalizers(&[ONE, "example.com/three"])),
        ("deleting", combined),
    ];
    // Concurrent, since each times out.
    let patched = changes.iter().map(|(name, change)| patch(testbed, namespace, name, change));
    let (created, patched) = tokio::try_join!(create(testbed, namespace, &fresh), try_join_all(patched))?;
    for ran in patched.iter().chain([&created]) {
        ensure!(!ran.ok && ran.stderr.contains("failed calling webhook"), "{ran:?}");
    }
    Ok(())
}
