//! Concurrent creation and repair of the Secret, against a fake API server with real conflict semantics.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use serde_json::json;
use wva_fakes::{FakeApi, Reply};

use super::*;
use crate::ca::CaFault;
use crate::fixture::{NAME, NAMESPACE, SECRET, count, data, put_data};
use crate::rotation::Role;
use crate::set::{CA_CERT, CA_KEY, NEXT_CA_CERT, NEXT_CA_KEY};

const DAY: Duration = Duration::from_hours(24);

fn store(fake: &FakeApi) -> Store {
    Store::new(fake.client(), NAMESPACE, NAME, DAY, wva_runtime::system_clock())
}

async fn ensure(store: &Store, known: Option<&CaSet>) -> Result<EnsuredSecret, StoreError> {
    store
        .ensure(
            ReplicaView { known, trusted_ca_established: true, role: Role::Follower },
            &CancellationToken::new(),
        )
        .await
}

fn garbage() -> BTreeMap<String, ByteString> {
    BTreeMap::from([(CA_CERT.to_owned(), ByteString(b"garbage".to_vec()))])
}

/// Fifty replicas start at once; all must end on the CA in the Secret.
async fn race(fake: &FakeApi) -> Vec<Option<Change>> {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let store = store(fake);
        tasks.spawn(async move { ensure(&store, None).await.unwrap() });
    }
    let done = tasks.join_all().await;
    let bundles: BTreeSet<Vec<u8>> = done.iter().map(|done| done.set.bundle(Timestamp::now())).collect();
    assert_eq!(bundles.len(), 1, "all replicas use one CA");
    assert_eq!(bundles.first(), Some(&data(fake)[CA_CERT].0), "and it is the Secret's");
    done.into_iter().map(|done| done.change).collect()
}

#[tokio::test]
async fn fifty_replicas_end_on_one_ca() {
    let fake = FakeApi::new();
    let outcomes = race(&fake).await;
    assert_eq!(outcomes.iter().filter(|o| **o == Some(Change::Created)).count(), 1);
    assert_eq!(outcomes.iter().filter(|o| o.is_none()).count(), 49);
    assert!(count(&fake, "POST", 409) > 0, "no race happened");
}

#[tokio::test]
async fn fifty_replicas_repair_an_invalid_secret_once() {
    let fake = FakeApi::new();
    put_data(&fake, &garbage());
    let outcomes = race(&fake).await;
    let replaced = Change::Replaced(CaFault::NotACertificate { entry: CA_CERT });
    assert_eq!(outcomes.iter().filter(|o| o.as_ref() == Some(&replaced)).count(), 1);
    assert!(count(&fake, "PUT", 409) > 0, "no race happened");
}

#[tokio::test]
async fn does_not_change_a_valid_secret() {
    let fake = FakeApi::new();
    let first = ensure(&store(&fake), None).await.unwrap().set;
    let EnsuredSecret { set: second, change, .. } = ensure(&store(&fake), None).await.unwrap();
    assert_eq!(change, None);
    assert_eq!(first.current.cert(), second.current.cert());
    assert_eq!(count(&fake, "PUT", 200) + count(&fake, "POST", 201), 1);
}

#[tokio::test]
async fn repair_keeps_metadata_and_the_known_ca() {
    let fake = FakeApi::new();
    let known = ensure(&store(&fake), None).await.unwrap().set;
    let secrets: Api<Secret> = Api::namespaced(fake.client(), NAMESPACE);
    let mut secret = secrets.get(NAME).await.unwrap();
    secret.metadata.labels = Some(BTreeMap::from([("team".to_owned(), "a".to_owned())]));
    secret.data = Some(garbage());
    secrets.replace(NAME, &PostParams::default(), &secret).await.unwrap();

    let EnsuredSecret { set, change, .. } = ensure(&store(&fake), Some(&known)).await.unwrap();
    assert_eq!(change, Some(Change::Restored(CaFault::NotACertificate { entry: CA_CERT })));
    assert_eq!(set.current.cert(), known.current.cert());
    let data = data(&fake);
    assert_eq!(
        data.keys().map(String::as_str).collect::<Vec<_>>(),
        [CA_CERT, CA_KEY, NEXT_CA_CERT, NEXT_CA_KEY]
    );
    assert_eq!(fake.object(SECRET)["metadata"]["labels"], json!({"team": "a"}));
}

#[tokio::test]
async fn replaces_an_expired_ca() {
    let fake = FakeApi::new();
    let old = ensure(&store(&fake), None).await.unwrap().set;
    let tomorrow: Timestamp = old.current.cert().not_after();
    let late = Store::new(fake.client(), NAMESPACE, NAME, DAY, Arc::new(move || tomorrow));
    let EnsuredSecret { set, change, .. } = ensure(&late, Some(&old)).await.unwrap();
    let fault = CaFault::Expired { entry: CA_CERT, not_after: tomorrow };
    assert_eq!(change, Some(Change::Replaced(fault)));
    assert_eq!(set.previous, [old.current.cert().clone()], "for replicas with a slow clock");
    assert_eq!(set.bundle(tomorrow), set.current.cert().pem().as_bytes(), "it is no longer trusted");
}

#[tokio::test]
async fn writes_nothing_once_stopped() {
    let fake = FakeApi::new();
    let stop = CancellationToken::new();
    stop.cancel();
    let stopped = store(&fake)
        .ensure(ReplicaView { known: None, trusted_ca_established: false, role: Role::Follower }, &stop)
        .await
        .unwrap_err();
    assert!(matches!(stopped, StoreError::Stopped { .. }), "{stopped:?}");
    assert_eq!(count(&fake, "POST", 201), 0);
}

#[test]
fn recognises_a_secret_that_holds_the_set() {
    let set = CaSet::new(Ca::generate(DAY, Timestamp::now()).unwrap());
    let mut secret = Secret { data: Some(set.to_secret_data()), ..Secret::default() };
    assert!(holds(&secret, &set));
    assert!(!holds(&secret, &CaSet::new(Ca::generate(DAY, Timestamp::now()).unwrap())));
    secret.data.as_mut().unwrap().remove(CA_KEY);
    assert!(!holds(&secret, &set));
}

#[tokio::test(start_paused = true)]
async fn errors_name_the_call_and_the_secret() {
    let fake = FakeApi::new();
    fake.reply_to_all(Reply::Failure(500));
    let failed = ensure(&store(&fake), None).await.unwrap_err();
    assert!(matches!(failed, StoreError::Api { verb: "get", .. }), "{failed:?}");
    fake.reply_to_all(Reply::Hang);
    let started = tokio::time::Instant::now();
    let timed_out = ensure(&store(&fake), None).await.unwrap_err();
    assert!(matches!(timed_out, StoreError::TimedOut { verb: "get", .. }), "{timed_out:?}");
    assert!(timed_out.to_string().contains("wva-system/wva-ca"), "{timed_out}");
    let waited = started.elapsed();
    assert!(waited < 2 * CALL_TIMEOUT, "{waited:?}: a timeout is not retried");
}
