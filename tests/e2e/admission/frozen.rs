//! The worst hour: the program is frozen, so that every review runs into its time-out. What must never wait for it
//! does not, and what must be judged is refused rather than let through.

use anyhow::ensure;
use futures::future::try_join_all;
use serde_json::{Value, json};
use wva_testbed::{Process, Signal, Testbed, eventually};

use super::{DOORS, SOON, create, judged_again, patch, shared};
use crate::support::{patch_status, valid_spec, variant};

/// Goes on with the program when the test ends, however it ends: the others need it.
pub(crate) struct Frozen<'a>(&'a Process);

impl<'a> Frozen<'a> {
    pub(crate) fn freeze(process: &'a Process) -> anyhow::Result<Self> {
        process.signal(Signal::Stop)?;
        Ok(Self(process))
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        // It cannot have ended: it was frozen. If it did, the next test says so.
        let _ = self.0.signal(Signal::Cont);
    }
}

const ONE: &str = "example.com/one";
const TWO: &str = "example.com/two";

/// A change that leaves these finalizers.
fn finalizers(left: &[&str]) -> Value {
    let left = Some(left).filter(|left| !left.is_empty());
    json!({"metadata": {"finalizers": left}})
}

/// A variant with these finalizers.
fn held(name: &str, finalizers: &[&str]) -> Value {
    let mut object = variant(name, &valid_spec(name));
    object["metadata"]["finalizers"] = json!(finalizers);
    object
}

#[tokio::test(flavor = "multi_thread")]
async fn exempt_requests_do_not_wait_for_a_frozen_program() -> anyhow::Result<()> {
    let shared = shared().await?;
    let testbed = &shared.testbed;
    let _alone = DOORS.write().await;
    judged_again(testbed).await?;
    let namespace = testbed.namespace("frozen").await?;
    for object in
        [held("both", &[ONE, TWO]), held("sly", &[ONE, TWO]), held("alive", &[ONE]), held("plain", &[])]
    {
        create(testbed, &namespace, &object).await?.success()?;
    }
    for name in ["both", "sly"] {
        testbed.kubectl(&["delete", "va", name, "-n", &namespace, "--wait=false"]).await?.success()?;
    }

    let frozen = Frozen::freeze(shared.install.process())?;
    // A call of a frozen webhook fails after its time-out, so each success says that none was called.
    patch(testbed, &namespace, "both", &finalizers(&[TWO])).await?.success()?;
    patch(testbed, &namespace, "both", &finalizers(&[])).await?.success()?;
    patch_status(testbed, &namespace, "plain", &json!({"currentReplicas": 5})).await?;
    testbed.kubectl(&["delete", "va", "plain", "-n", &namespace]).await?.success()?;
    let mut theirs = variant("theirs", &valid_spec("theirs"));
    theirs["metadata"]["labels"] = json!({"wva.llmd.ai/controller-instance": "other"});
    create(testbed, &namespace, &theirs).await?.success()?;
    let left = testbed.kubectl(&["get", "va", "-n", &namespace, "-o", "name"]).await?.success()?;
    let left: Vec<_> = left.lines().filter_map(|l| l.rsplit('/').next()).collect();
    assert_eq!(left, ["alive", "sly", "theirs"]);

    refuses_everything_else(testbed, &namespace).await?;
    drop(frozen);
    judged_again(testbed).await?;
    patch(testbed, &namespace, "sly", &finalizers(&[])).await?.success()?;
    eventually("the object to be gone", SOON, async || {
        let ran = testbed.kubectl(&["get", "va", "sly", "-n", &namespace]).await?;
        ensure!(!ran.ok, "it is still there");
        Ok(())
    })
    .await
}

/// The webhook judges everything else: a finalizer taken from an object that lives, added to one under deletion or
/// exchanged, a change of its spec together with one, and a new object.
async fn refuses_everything_else(testbed: &Testbed, namespace: &str) -> anyhow::Result<()> {
    let mut cover = finalizers(&[ONE]);
    cover["spec"] = json!({"variantCost": "40"});
    let fresh = variant("new", &valid_spec("new"));
    let changes = [
        ("alive", finalizers(&[])),
        ("alive", json!({"spec": {"variantCost": "40"}})),
        ("sly", finalizers(&[ONE, "example.com/three"])),
        ("sly", cover),
    ];
    // All at once, since each runs into its time-out.
    let patched = changes.iter().map(|(name, change)| patch(testbed, namespace, name, change));
    let (created, patched) = tokio::try_join!(create(testbed, namespace, &fresh), try_join_all(patched))?;
    for ran in patched.iter().chain([&created]) {
        ensure!(!ran.ok && ran.stderr.contains("failed calling webhook"), "{ran:?}");
    }
    Ok(())
}
