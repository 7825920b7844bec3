//! Where the token comes from, how long it is kept, and that the controller's own account is refused.

use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::http::Response;
use serde_json::json;

use super::*;
use crate::fixture::{client, failure, response};

/// A fake API server: the user that it takes the client for, its next answer to a request for a token, and the paths
/// that were asked for.
#[derive(Clone)]
struct FakeApi {
    user: &'static str,
    token: Arc<Mutex<Option<&'static str>>>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl FakeApi {
    fn new(token: Option<&'static str>) -> Self {
        let user = "system:serviceaccount:ns:controller";
        Self { user, token: Arc::new(Mutex::new(token)), requests: Arc::default() }
    }

    fn answer(&self, path: &str) -> Response<Body> {
        if path.ends_with("/selfsubjectreviews") {
            let user = json!({"username": self.user});
            return response(201, &json!({"metadata": {}, "status": {"userInfo": user}}));
        }
        self.requests.lock().unwrap().push(path.to_owned());
        let Some(token) = *self.token.lock().unwrap() else { return failure(403, "Forbidden") };
        let status = json!({"token": token, "expirationTimestamp": "2026-01-01T00:00:00Z"});
        response(201, &json!({"spec": {"audiences": [], "expirationSeconds": 600}, "status": status}))
    }

    fn client(&self) -> Client {
        let fake = self.clone();
        client(move |request| fake.answer(request.uri().path()))
    }

    fn count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
}

fn account(name: &str) -> PickerToken {
    PickerToken::Account { namespace: "ns".to_owned(), name: name.to_owned() }
}

/// The header after so much time, which is virtual.
struct RenewedToken(watch::Receiver<Option<HeaderValue>>, tokio::task::JoinHandle<()>);

impl RenewedToken {
    async fn by(token: PickerToken, fake: &FakeApi) -> Self {
        let (sender, mut header) = watch::channel(None);
        let client = fake.client();
        let task = tokio::spawn(async move { token.keep(&client, &sender).await });
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
async fn asks_nothing_without_an_account() {
    let fake = FakeApi::new(Some("requested"));
    assert_eq!(RenewedToken::by(PickerToken::None, &fake).await.header(), None);
    let fixed = RenewedToken::by(PickerToken::Fixed("set".to_owned()), &fake).await;
    assert_eq!(fixed.header().as_deref(), Some("Bearer set"));
    assert_eq!(fake.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn renews_the_token_before_it_expires() {
    let fake = FakeApi::new(Some("first"));
    let kept = RenewedToken::by(account("reader"), &fake).await;
    assert_eq!(kept.header().as_deref(), Some("Bearer first"));
    assert_eq!(*fake.requests.lock().unwrap(), ["/api/v1/namespaces/ns/serviceaccounts/reader/token"]);
    *fake.token.lock().unwrap() = Some("second");
    tokio::time::sleep(Duration::from_secs(479)).await;
    assert_eq!(kept.header().as_deref(), Some("Bearer first"));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(kept.header().as_deref(), Some("Bearer second"));
    assert_eq!(fake.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn sends_no_expired_token_and_retries_with_backoff() {
    let fake = FakeApi::new(Some("first"));
    let kept = RenewedToken::by(account("reader"), &fake).await;
    *fake.token.lock().unwrap() = None;
    tokio::time::sleep(Duration::from_secs(590)).await;
    assert_eq!(kept.header().as_deref(), Some("Bearer first"), "valid for 10 minutes");
    tokio::time::sleep(Duration::from_secs(90)).await;
    assert_eq!(kept.header(), None);
    assert!(fake.count() < 12, "{} requests", fake.count());
    *fake.token.lock().unwrap() = Some("second");
    tokio::time::sleep(BACKOFF.1).await;
    assert_eq!(kept.header().as_deref(), Some("Bearer second"));
}

#[tokio::test(start_paused = true)]
async fn never_sends_a_token_of_the_controllers_own_account() {
    let fake = FakeApi::new(Some("own"));
    let kept = RenewedToken::by(account("controller"), &fake).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!((kept.header(), fake.count()), (None, 0));
}
