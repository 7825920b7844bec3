//! Races for one Secret and repairs of it, against a fake API server with real conflict semantics.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use serde_json::json;
use wva_fakes::{FakeApi, Reply};

use super::*;
use crate::ca::Why;
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

/// Fifty authorities start at once; all have to end on what the Secret holds.
async fn race(fake: &FakeApi) -> Vec<Option<Change>> {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let store = store(fake);
        tasks.spawn(async move { ensure(&store, None).await.unwrap() });
    }
    let done = tasks.join_all().await;
    let bundles: BTreeSet<Vec<u8>> = done.iter().map(|done| done.set.bundle(Timestamp::now())).collect();
    assert_eq!(bundles.len(), 1, "all authorities use one CA");
    assert_eq!(bundles.first(), Some(&data(fake)[CA_CERT].0), "and it is the Secret's");
    done.into_iter().map(|done| done.change).collect()
}

#[tokio::test]
async fn fifty_authorities_end_on_one_ca() {
    let fake = FakeApi::new();
    let outcomes = race(&fake).await;
    assert_eq!(outcomes.iter().filter(|o| **o == Some(Change::Created)).count(), 1);
    assert_eq!(outcomes.iter().filter(|o| o.is_none()).count(), 49);
    assert!(count(&fake, "POST", 409) > 0, "nobody raced: the test proves nothing");
}

#[tokio::test]
async fn fifty_authorities_repair_one_bad_secret_once() {
    let fake = FakeApi::new();
    put_data(&fake, &garbage());
    let outcomes = race(&fake).await;
    let why = Why::NotACertificate { entry: CA_CERT };
    assert_eq!(outcomes.iter().filter(|o| **o == Some(Change::Replaced(why.clone()))).count(), 1);
    assert!(count(&fake, "PUT", 409) > 0, "nobody raced: the test proves nothing");
}

#[tokio::test]
async fn a_good_secret_is_left_alone() {
    let fake = FakeApi::new();
    let first = ensure(&store(&fake), None).await.unwrap().set;
    let EnsuredSecret { set: second, change, .. } = ensure(&store(&fake), None).await.unwrap();
    assert_eq!(change, None);
    assert_eq!(first.current.cert(), second.current.cert());
    assert_eq!(count(&fake, "PUT", 200) + count(&fake, "POST", 201), 1);
}

#[tokio::test]
async fn a_repair_keeps_metadata_and_the_known_ca() {
    let fake = FakeApi::new();
    let known = ensure(&store(&fake), None).await.unwrap().set;
    let secrets: Api<Secret> = Api::namespaced(fake.client(), NAMESPACE);
    let mut secret = secrets.get(NAME).await.unwrap();
    secret.metadata.labels = Some(BTreeMap::from([("team".to_owned(), "a".to_owned())]));
    secret.data = Some(garbage());
    secrets.replace(NAME, &PostParams::default(), &secret).await.unwrap();

    let EnsuredSecret { set, change, .. } = ensure(&store(&fake), Some(&known)).await.unwrap();
    assert_eq!(change, Some(Change::Restored(Why::NotACertificate { entry: CA_CERT })));
    assert_eq!(set.current.cert(), known.current.cert());
    let data = data(&fake);
    assert_eq!(
        data.keys().map(String::as_str).collect::<Vec<_>>(),
        [CA_CERT, CA_KEY, NEXT_CA_CERT, NEXT_CA_KEY]
    );
    assert_eq!(fake.object(SECRET)["metadata"]["labels"], json!({"team": "a"}));
}

#[tokio::test]
async fn an_expired_ca_is_replaced() {
    let fake = FakeApi::new();
    let old = ensure(&store(&fake), None).await.unwrap().set;
    let tomorrow: Timestamp = old.current.cert().not_after();
    let late = Store::new(fake.client(), NAMESPACE, NAME, DAY, Arc::new(move || tomorrow));
    let EnsuredSecret { set, change, .. } = ensure(&late, Some(&old)).await.unwrap();
    let why = Why::Expired { entry: CA_CERT, not_after: tomorrow };
    assert_eq!(change, Some(Change::Replaced(why)));
    assert_eq!(set.previous, [old.current.cert().clone()], "for those whose clock is a little slow");
    assert_eq!(set.bundle(tomorrow), set.current.cert().pem().as_bytes(), "and nobody trusts it any more");
}

#[tokio::test]
async fn nothing_is_written_once_told_to_stop() {
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
fn what_is_there_is_not_written_again() {
    let set = CaSet::of(Ca::generate(DAY, Timestamp::now()).unwrap());
    let mut secret = Secret { data: Some(set.to_secret_data()), ..Secret::default() };
    assert!(holds(&secret, &set));
    assert!(!holds(&secret, &CaSet::of(Ca::generate(DAY, Timestamp::now()).unwrap())));
    secret.data.as_mut().unwrap().remove(CA_KEY);
    assert!(!holds(&secret, &set));
}

#[tokio::test(start_paused = true)]
async fn errors_say_what_was_tried() {
    let fake = FakeApi::new();
    fake.reply_to_all(Reply::Failure(500));
    let refused = ensure(&store(&fake), None).await.unwrap_err();
    assert!(matches!(refused, StoreError::Api { verb: "get", .. }), "{refused:?}");
    fake.reply_to_all(Reply::Hang);
    let began = tokio::time::Instant::now();
    let silent = ensure(&store(&fake), None).await.unwrap_err();
    assert!(matches!(silent, StoreError::TimedOut { verb: "get", .. }), "{silent:?}");
    assert!(silent.to_string().contains("wva-system/wva-ca"), "{silent}");
    let waited = began.elapsed();
    assert!(waited < 2 * CALL, "{waited:?}: whoever calls has other things to look after");
}
