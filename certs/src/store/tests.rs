//! Races for one Secret and repairs of it, against a fake API server with real conflict semantics.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use serde_json::json;

use super::*;
use crate::ca::{CA_CERT, CA_KEY, PREVIOUS_CA_CERT};
use crate::fake::{FakeApi, NAMESPACE};

const NAME: &str = "wva-ca";
const DAY: Duration = Duration::from_hours(24);

fn store(fake: &FakeApi) -> Store {
    Store::new(fake.client(), NAMESPACE, NAME, DAY, crate::system_clock())
}

fn garbage() -> BTreeMap<String, ByteString> {
    BTreeMap::from([(CA_CERT.to_owned(), ByteString(b"garbage".to_vec()))])
}

/// Fifty authorities start at once; all have to end on what the Secret holds.
async fn race(fake: &FakeApi) -> Vec<Outcome> {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let store = store(fake);
        tasks.spawn(async move { store.ensure(None).await.unwrap() });
    }
    let done = tasks.join_all().await;
    let bundles: BTreeSet<Vec<u8>> = done.iter().map(|(set, ..)| set.bundle()).collect();
    assert_eq!(bundles.len(), 1, "all authorities use one CA");
    assert_eq!(bundles.first(), Some(&fake.data(NAME)[CA_CERT].0), "and it is the Secret's");
    done.into_iter().map(|(.., outcome)| outcome).collect()
}

#[tokio::test]
async fn fifty_authorities_end_on_one_ca() {
    let fake = FakeApi::new();
    let outcomes = race(&fake).await;
    assert_eq!(outcomes.iter().filter(|o| **o == Outcome::Created).count(), 1);
    assert_eq!(outcomes.iter().filter(|o| **o == Outcome::Found).count(), 49);
    assert!(fake.count("POST", 409) > 0, "nobody raced: the test proves nothing");
}

#[tokio::test]
async fn fifty_authorities_repair_one_bad_secret_once() {
    let fake = FakeApi::new();
    fake.put(NAME, &garbage());
    let outcomes = race(&fake).await;
    let why = Why::NotACertificate { entry: CA_CERT };
    assert_eq!(outcomes.iter().filter(|o| **o == Outcome::Replaced(why.clone())).count(), 1);
    assert!(fake.count("PUT", 409) > 0, "nobody raced: the test proves nothing");
}

#[tokio::test]
async fn a_good_secret_is_left_alone() {
    let fake = FakeApi::new();
    let (first, ..) = store(&fake).ensure(None).await.unwrap();
    let (second, _, outcome) = store(&fake).ensure(None).await.unwrap();
    assert_eq!(outcome, Outcome::Found);
    assert_eq!(first.bundle(), second.bundle());
    assert_eq!(fake.count("PUT", 200) + fake.count("POST", 201), 1);
}

#[tokio::test]
async fn a_repair_keeps_metadata_and_the_known_ca_as_previous() {
    let fake = FakeApi::new();
    let (known, ..) = store(&fake).ensure(None).await.unwrap();
    let mut secret = fake.secrets().get(NAME).await.unwrap();
    secret.metadata.labels = Some(BTreeMap::from([("team".to_owned(), "a".to_owned())]));
    secret.data = Some(garbage());
    fake.secrets().replace(NAME, &PostParams::default(), &secret).await.unwrap();

    let (set, _, outcome) = store(&fake).ensure(Some(&known)).await.unwrap();
    assert!(matches!(outcome, Outcome::Replaced(_)), "{outcome:?}");
    assert_ne!(set.current.cert(), known.current.cert());
    assert_eq!(set.previous.as_ref(), Some(known.current.cert()));
    let data = fake.data(NAME);
    assert_eq!(data.keys().map(String::as_str).collect::<Vec<_>>(), [CA_CERT, CA_KEY, PREVIOUS_CA_CERT]);
    assert_eq!(fake.object(NAME)["metadata"]["labels"], json!({"team": "a"}));
}

#[tokio::test]
async fn an_expired_ca_is_replaced() {
    let fake = FakeApi::new();
    let (old, ..) = store(&fake).ensure(None).await.unwrap();
    let tomorrow: Timestamp = old.current.cert().not_after();
    let late = Store::new(fake.client(), NAMESPACE, NAME, DAY, Arc::new(move || tomorrow));
    let (set, _, outcome) = late.ensure(Some(&old)).await.unwrap();
    assert_eq!(outcome, Outcome::Replaced(Why::Expired { entry: CA_CERT, not_after: tomorrow }));
    assert_eq!(set.previous, None, "an expired CA is of no use to anybody");
}

#[tokio::test(start_paused = true)]
async fn errors_say_what_was_tried() {
    let fake = FakeApi::new();
    fake.failing(true);
    let refused = store(&fake).ensure(None).await.unwrap_err();
    assert!(matches!(refused, StoreError::Api { verb: "get", .. }), "{refused:?}");
    fake.failing(false);
    fake.hanging(true);
    let silent = store(&fake).ensure(None).await.unwrap_err();
    assert!(matches!(silent, StoreError::TimedOut { verb: "get", .. }), "{silent:?}");
    assert!(silent.to_string().contains("wva-system/wva-ca"), "{silent}");
}
