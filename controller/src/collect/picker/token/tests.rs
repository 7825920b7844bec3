//! Tests of the sources of the token, its renewal, and the refusal of the controller's own account.

use serde_json::json;
use wva_fakes::{FakeApi, Reply, Request};

use super::*;
use crate::fixture::Cluster;

/// A fake API server. The client is the controller's account, and token requests return this token.
fn api(token: &'static str) -> FakeApi {
    let fake = FakeApi::new();
    set_token(&fake, Some(token));
    fake
}

fn set_token(fake: &FakeApi, token: Option<&'static str>) {
    fake.set_rule(move |request| {
        if !is_token_request(request) {
            let user = json!({"username": "system:serviceaccount:ns:controller"});
            return Some(Reply::Json(201, json!({"metadata": {}, "status": {"userInfo": user}})));
        }
        let Some(token) = token else { return Some(Reply::Failure(403)) };
        let status = json!({"token": token, "expirationTimestamp": "2026-01-01T00:00:00Z"});
        Some(Reply::Json(201, json!({"spec": {"audiences": [], "expirationSeconds": 600}, "status": status})))
    });
}

fn is_token_request(request: &Request) -> bool {
    !request.path.ends_with("/selfsubjectreviews")
}

fn account(name: &str) -> PickerToken {
    PickerToken::Account { namespace: "ns".to_owned(), name: name.to_owned() }
}

/// The header, renewed in virtual time.
struct RenewedToken(watch::Receiver<Option<HeaderValue>>, tokio::task::JoinHandle<()>);

impl RenewedToken {
    async fn start(token: PickerToken, fake: &FakeApi) -> Self {
        let (sender, mut header) = watch::channel(None);
        let client = fake.client();
        let task = tokio::spawn(async move { token.keep_renewed(&client, &sender).await });
        header.changed().await.unwrap();
        Self(header, task)
    }

    fn header(&self) -> Option<String> {
        self.0.borrow().as_ref().map(|header| header.to_str().unwrap().to_owned())
    }
}

impl Drop for RenewedToken {
    fn drop(&mut self) {
        self.1.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn makes_no_requests_without_an_account() {
    let fake = api("requested");
    assert_eq!(RenewedToken::start(PickerToken::None, &fake).await.header(), None);
    let fixed = RenewedToken::start(PickerToken::Fixed("set".to_owned()), &fake).await;
    assert_eq!(fixed.header().as_deref(), Some("Bearer set"));
    assert_eq!(fake.count(is_token_request), 0);
}

#[tokio::test(start_paused = true)]
async fn renews_the_token_before_it_expires() {
    let fake = api("first");
    let renewed = RenewedToken::start(account("reader"), &fake).await;
    assert_eq!(renewed.header().as_deref(), Some("Bearer first"));
    assert_eq!(fake.requests().last().unwrap().path, "/api/v1/namespaces/ns/serviceaccounts/reader/token");
    set_token(&fake, Some("second"));
    tokio::time::sleep(Duration::from_secs(479)).await;
    assert_eq!(renewed.header().as_deref(), Some("Bearer first"));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(renewed.header().as_deref(), Some("Bearer second"));
    assert_eq!(fake.count(is_token_request), 2);
}

#[tokio::test(start_paused = true)]
async fn sends_no_expired_token_and_retries_with_backoff() {
    let fake = api("first");
    let renewed = RenewedToken::start(account("reader"), &fake).await;
    set_token(&fake, None);
    tokio::time::sleep(Duration::from_secs(590)).await;
    assert_eq!(renewed.header().as_deref(), Some("Bearer first"), "valid for 10 minutes");
    tokio::time::sleep(Duration::from_secs(90)).await;
    assert_eq!(renewed.header(), None);
    assert!(fake.count(is_token_request) < 12, "{} requests", fake.count(is_token_request));
    set_token(&fake, Some("second"));
    tokio::time::sleep(LONGEST_BACKOFF).await;
    assert_eq!(renewed.header().as_deref(), Some("Bearer second"));
}

#[tokio::test(start_paused = true)]
async fn never_sends_a_token_of_the_controllers_own_account() {
    let fake = api("own");
    let renewed = RenewedToken::start(account("controller"), &fake).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!((renewed.header(), fake.count(is_token_request)), (None, 0));
}

#[test]
fn only_labelled_namespaces_get_tokens_of_the_account() {
    let mut cluster = Cluster::new();
    cluster.namespace("labelled", json!({"labels": {"wva.llmd.ai/picker-token": "true"}}));
    cluster.namespace("other", json!({"labels": {"wva.llmd.ai/picker-token": "false"}}));
    let mut watches = cluster.watches();
    let gets = |token: &PickerToken, watches: &Watches| {
        ["labelled", "other", "unknown"].map(|namespace| token.is_for(watches, namespace))
    };
    assert_eq!(gets(&account("reader"), &watches), [true, false, false]);
    assert_eq!(gets(&PickerToken::Fixed("set".to_owned()), &watches), [true; 3]);
    assert_eq!(gets(&PickerToken::None, &watches), [false; 3]);
    watches.namespaces = None;
    assert_eq!(gets(&account("reader"), &watches), [true; 3], "the operator chose the only namespace");
}
