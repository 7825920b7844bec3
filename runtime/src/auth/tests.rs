//! Authentication, authorization, and the number of reviews they need.

use axum::http::{HeaderName, HeaderValue};
use rustls::pki_types::CertificateDer;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wva_fakes::reviews::{ClientCa, access_reviews, is_token_review, review, reviewer};
use wva_fakes::{FakeApi, Reply};

use super::reviewer::{KNOWN_REVIEW_TIMEOUT, MAX_REVIEWS};
use super::*;

const MAP: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(HeaderName::try_from(*name).unwrap(), HeaderValue::try_from(*value).unwrap());
    }
    headers
}

fn peer(cert: &rcgen::Certificate) -> Peer {
    let chain: [CertificateDer<'static>; 1] = [cert.der().clone()];
    Peer::new(Some(&chain))
}

fn auth(allowed: &'static [&'static str]) -> (FakeApi, DelegatedAuth) {
    let fake = reviewer(allowed);
    let auth = DelegatedAuth::new(fake.client());
    (fake, auth)
}

/// Name of the authenticated user.
async fn authenticate(auth: &DelegatedAuth, authorization: &str) -> Result<String, AuthError> {
    let headers = headers(&[("authorization", authorization)]);
    auth.authenticate(&Peer::default(), &headers).await.map(|user| user.name)
}

/// Name of the user if it may read the metrics.
async fn check_request(auth: &DelegatedAuth, user: &str) -> Result<String, AuthError> {
    let bearer = headers(&[("authorization", &format!("Bearer token-of-{user}"))]);
    auth.check_request(&Peer::default(), &bearer, metrics()).await.map(|user| user.name)
}

fn metrics() -> Action {
    Action::Path { verb: "get", path: "/metrics".to_owned() }
}

fn config(
    ca: &ClientCa,
    change: impl FnOnce(&mut BTreeMap<String, String>),
) -> Result<RequestHeader, RequestHeaderError> {
    let mut data = ca.config_map();
    change(&mut data);
    RequestHeader::parse(&data)
}

#[test]
fn reads_user_from_aggregator_headers() {
    let ca = ClientCa::generate();
    let config = config(&ca, |_| {}).unwrap();
    let (cert, _) = ca.issue("front-proxy-client");
    let sent = headers(&[
        ("X-Remote-User", "system:serviceaccount:kube-system:horizontal-pod-autoscaler"),
        ("X-Remote-Uid", "u-1"),
        ("X-Remote-Group", "system:serviceaccounts"),
        ("X-Remote-Group", "b"),
        ("X-Remote-Extra-Example.com%2fpod", "p"),
        ("X-Remote-Extra-Bad%zz", "q"),
    ]);
    let want = User {
        name: "system:serviceaccount:kube-system:horizontal-pod-autoscaler".to_owned(),
        uid: Some("u-1".to_owned()),
        groups: ["system:serviceaccounts", "b", "system:authenticated"].map(str::to_owned).into(),
        extra: [("example.com/pod", "p"), ("bad%zz", "q")]
            .map(|(k, v)| (k.to_owned(), vec![v.to_owned()]))
            .into(),
    };
    assert_eq!(config.user(&peer(&cert), &sent), Some(want));
}

#[test]
fn headers_count_only_with_an_allowed_certificate() {
    let (ca, other) = (ClientCa::generate(), ClientCa::generate());
    let (good, wrong_name) = (ca.issue("front-proxy-client").0, ca.issue("other-client").0);
    let other_ca = other.issue("front-proxy-client").0;
    let parsed = config(&ca, |_| {}).unwrap();
    let any_name =
        config(&ca, |d| drop(d.insert("requestheader-allowed-names".into(), "[]".into()))).unwrap();
    let named = headers(&[("X-Remote-User", "alice")]);
    let rows = [
        ("good", &parsed, peer(&good), &named, true),
        ("no certificate", &parsed, Peer::default(), &named, false),
        ("wrong name", &parsed, peer(&wrong_name), &named, false),
        ("any name", &any_name, peer(&wrong_name), &named, true),
        ("another CA", &parsed, peer(&other_ca), &named, false),
        ("another CA, any name", &any_name, peer(&other_ca), &named, false),
        ("no user", &parsed, peer(&good), &headers(&[]), false),
        ("empty user", &parsed, peer(&good), &headers(&[("X-Remote-User", "")]), false),
        ("user and other header", &parsed, peer(&good), &headers(&[("X-User", "alice")]), false),
    ];
    for (what, config, peer, headers, want) in rows {
        assert_eq!(config.user(&peer, headers).is_some(), want, "{what}");
    }
    let mut garbled = named.clone();
    garbled.insert("X-Remote-Group", HeaderValue::from_bytes(b"\xff").unwrap());
    assert_eq!(parsed.user(&peer(&good), &garbled), None, "half a set of groups is another user");
}

#[test]
fn refuses_config_map_without_ca() {
    let ca = ClientCa::generate();
    let file = "requestheader-client-ca-file";
    let (names, users) = ("requestheader-allowed-names", "requestheader-username-headers");
    assert!(config(&ca, |_| {}).is_ok());
    let absent = config(&ca, |data| drop(data.remove(file)));
    assert_eq!(absent.err(), Some(RequestHeaderError::Absent(file)));
    for (key, value, want) in [
        (file, "garbage", RequestHeaderError::NoCa),
        (names, "front", RequestHeaderError::BadList(names)),
        (users, r#"["a b"]"#, RequestHeaderError::BadList(users)),
    ] {
        let refused = config(&ca, |data| drop(data.insert(key.into(), value.into())));
        assert_eq!(refused.err(), Some(want));
    }
}

#[tokio::test]
async fn reviews_each_token_once_a_minute() {
    tokio::time::pause();
    let (fake, auth) = auth(&[]);
    let ask = async |authorization: &str| authenticate(&auth, authorization).await;
    for _ in 0..3 {
        assert_eq!(ask("Bearer token-of-alice").await, Ok("alice".to_owned()));
        assert_eq!(ask("bearer nonsense").await, Err(AuthError::Unauthenticated));
    }
    assert_eq!(fake.count(is_token_review), 2);
    for bad in ["", "Bearer", "Bearer ", "Basic token-of-alice", "token-of-alice"] {
        assert_eq!(ask(bad).await, Err(AuthError::Unauthenticated), "{bad:?}");
    }
    assert_eq!(
        ask(&format!("Bearer {}", "x".repeat(MAX_TOKEN_BYTES + 1))).await,
        Err(AuthError::Unauthenticated)
    );
    assert_eq!(fake.count(is_token_review), 2, "malformed headers need no review");
    tokio::time::advance(CACHE_LIFETIME).await;
    assert_eq!(ask("Bearer token-of-alice").await, Ok("alice".to_owned()));
    assert_eq!(fake.count(is_token_review), 3);
}

#[tokio::test(start_paused = true)]
async fn invented_tokens_do_not_evict_users() {
    let (fake, auth) = auth(&[]);
    let ask = async |token: &str| authenticate(&auth, &format!("Bearer {token}")).await;
    assert_eq!(ask("token-of-alice").await, Ok("alice".to_owned()));
    for i in 0..=CACHE_SIZE {
        auth.rejected_tokens.insert(format!("invented-{i}"), ());
    }
    assert_eq!(ask("token-of-alice").await, Ok("alice".to_owned()));
    assert_eq!(fake.count(is_token_review), 1);
}

#[tokio::test(start_paused = true)]
async fn reviews_of_invented_tokens_are_rate_limited() {
    let (fake, auth) = auth(&[]);
    let ask = async |token: &str| authenticate(&auth, &format!("Bearer {token}")).await;
    assert_eq!(ask("token-of-alice").await, Ok("alice".to_owned()));
    let flood = async |wave: u32| {
        let mut answers = Vec::new();
        for i in 0..10 * UNKNOWN_TOKEN_BURST {
            answers.push(ask(&format!("invented-{wave}-{i}")).await);
        }
        let count = |error: &AuthError| answers.iter().filter(|a| a.as_ref().err() == Some(error)).count();
        assert_eq!(count(&AuthError::Unauthenticated) + count(&AuthError::TooManyRequests), answers.len());
    };
    flood(0).await;
    let burst = usize::try_from(UNKNOWN_TOKEN_BURST).unwrap();
    assert_eq!(fake.count(is_token_review), burst, "alice and the rest of the burst");
    tokio::time::advance(Duration::from_secs(5)).await;
    flood(1).await;
    assert_eq!(fake.count(is_token_review), burst + 10, "two a second");
    assert_eq!(ask("token-of-bob").await, Err(AuthError::TooManyRequests));
    // Another client is not locked out.
    let elsewhere = Peer::default().at(Some(std::net::Ipv4Addr::new(10, 0, 0, 2).into()));
    let bob = auth.authenticate(&elsewhere, &headers(&[("authorization", "Bearer token-of-bob")])).await;
    assert_eq!(bob.map(|user| user.name), Ok("bob".to_owned()));
    // A token that was valid before is reviewed again, whatever other clients send.
    tokio::time::advance(CACHE_LIFETIME).await;
    flood(2).await;
    let reviews = fake.count(is_token_review);
    assert_eq!(ask("token-of-alice").await, Ok("alice".to_owned()));
    assert_eq!(fake.count(is_token_review), reviews + 1);
}

#[tokio::test(start_paused = true)]
async fn concurrent_invented_tokens_do_not_delay_known_users() {
    let (fake, auth) = auth(&["alice"]);
    fake.set_rule(|r| if is_token_review(r) { Some(Reply::Hang) } else { review(r, &["alice"], &[]) });
    let peer = Peer::default();
    let invented: Vec<_> = (0..2 * MAX_REVIEWS)
        .map(|i| headers(&[("authorization", &format!("Bearer invented-{i}"))]))
        .collect();
    let flood = futures::future::join_all(invented.iter().map(|headers| auth.authenticate(&peer, headers)));
    let mut flood = std::pin::pin!(flood);
    let alice = User { name: "alice".into(), ..User::default() };
    let allowed = async {
        let allowed = auth.authorize(&alice, metrics()).await;
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        allowed
    };
    tokio::select! {
        biased;
        answers = &mut flood => panic!("{answers:?}"),
        allowed = allowed => assert_eq!(allowed, Ok(())),
    }
    assert_eq!(fake.count(is_token_review), MAX_REVIEWS);
    let answers = flood.await;
    assert!(answers.iter().all(|answer| *answer == Err(AuthError::Unavailable)), "{answers:?}");
}

#[tokio::test]
async fn reviews_access_and_caches_it_for_a_minute() {
    tokio::time::pause();
    let (fake, auth) = auth(&["alice"]);
    let alice = User { name: "alice".into(), groups: vec!["g".into()], ..User::default() };
    let metric = Action::Resource {
        verb: "list",
        group: "external.metrics.k8s.io",
        version: "v1beta1",
        resource: "wva_desired_replicas".into(),
        namespace: "prod".into(),
    };
    for _ in 0..2 {
        auth.authorize(&alice, metric.clone()).await.unwrap();
        auth.authorize(&alice, metrics()).await.unwrap();
    }
    let reviews = access_reviews(&fake);
    assert_eq!(reviews.len(), 2, "{reviews:?}");
    let wanted = json!({"verb": "list", "group": "external.metrics.k8s.io", "version": "v1beta1",
        "resource": "wva_desired_replicas", "namespace": "prod"});
    assert_eq!(reviews[0]["resourceAttributes"], wanted);
    assert_eq!(reviews[0]["groups"], json!(["g"]));
    assert_eq!(reviews[1]["nonResourceAttributes"], json!({"verb": "get", "path": "/metrics"}));

    fake.set_rule(|request| review(request, &[], &[]));
    auth.authorize(&alice, metric.clone()).await.unwrap();
    // The same name with other groups is another user to RBAC.
    let other = User { groups: vec![], ..alice.clone() };
    let denied = auth.authorize(&other, metric.clone()).await.unwrap_err();
    let text = "user \"alice\" may not list wva_desired_replicas.external.metrics.k8s.io in namespace \"prod\": RBAC says no";
    assert_eq!(denied.to_string(), text);
    tokio::time::advance(CACHE_LIFETIME).await;
    assert!(matches!(auth.authorize(&alice, metric).await, Err(AuthError::Forbidden { .. })));
}

#[tokio::test]
async fn masters_need_no_review() {
    let (fake, auth) = auth(&[]);
    let master =
        User { name: "system:kube-aggregator".into(), groups: vec![MASTERS.into()], ..User::default() };
    auth.authorize(&master, metrics()).await.unwrap();
    assert_eq!(access_reviews(&fake).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn failure_of_api_server_is_not_cached() {
    let (fake, auth) = auth(&["alice"]);
    for code in [500, 429, 408] {
        fake.reply_to_all(Reply::Failure(code));
        assert_eq!(check_request(&auth, "alice").await, Err(AuthError::Unavailable), "{code}");
    }
    fake.set_rule(|request| review(request, &["alice"], &[]));
    assert_eq!(check_request(&auth, "alice").await, Ok("alice".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn allowed_caller_is_served_while_the_api_server_is_down() {
    let (fake, auth) = auth(&["alice", "bob"]);
    assert_eq!(check_request(&auth, "alice").await, Ok("alice".to_owned()));
    fake.reply_to_all(Reply::Failure(500));
    tokio::time::advance(OUTAGE_GRACE.saturating_sub(Duration::from_secs(1))).await;
    assert_eq!(check_request(&auth, "alice").await, Ok("alice".to_owned()));
    assert_eq!(check_request(&auth, "bob").await, Err(AuthError::Unavailable), "it was never allowed");
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(check_request(&auth, "alice").await, Err(AuthError::Unavailable), "10 minutes are over");
}

#[tokio::test(start_paused = true)]
async fn hanging_api_server_keeps_an_allowed_caller_waiting_briefly() {
    let (fake, auth) = auth(&["alice"]);
    check_request(&auth, "alice").await.unwrap();
    fake.set_rule(|request| is_token_review(request).then_some(Reply::Hang));
    tokio::time::advance(CACHE_LIFETIME).await;
    let start = Instant::now();
    assert_eq!(authenticate(&auth, "Bearer token-of-alice").await, Ok("alice".to_owned()));
    assert_eq!(start.elapsed(), KNOWN_REVIEW_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn denied_caller_is_not_served_while_the_api_server_is_down() {
    let (fake, auth) = auth(&["alice", "bob"]);
    for user in ["alice", "bob"] {
        check_request(&auth, user).await.unwrap();
    }
    // Alice's token is revoked, Bob's permission is removed, and both send a request.
    fake.set_rule(|request| review(request, &["alice"], &["alice"]));
    tokio::time::advance(CACHE_LIFETIME).await;
    assert_eq!(check_request(&auth, "alice").await, Err(AuthError::Unauthenticated));
    let denied = check_request(&auth, "bob").await;
    assert!(matches!(denied, Err(AuthError::Forbidden { .. })), "{denied:?}");
    fake.reply_to_all(Reply::Failure(500));
    tokio::time::advance(CACHE_LIFETIME).await;
    for user in ["alice", "bob"] {
        assert_eq!(check_request(&auth, user).await, Err(AuthError::Unavailable));
    }
}

#[tokio::test(start_paused = true)]
async fn api_server_that_forbids_reviews_is_not_an_outage() {
    let (fake, auth) = auth(&["alice"]);
    check_request(&auth, "alice").await.unwrap();
    fake.reply_to_all(Reply::Failure(403));
    tokio::time::advance(CACHE_LIFETIME).await;
    assert_eq!(check_request(&auth, "alice").await, Err(AuthError::Unavailable));
}

#[tokio::test(start_paused = true)]
async fn watches_the_request_header_config_map() {
    let fake = FakeApi::new();
    let auth = Arc::new(DelegatedAuth::new(fake.client()));
    let shutdown = CancellationToken::new();
    let task = tokio::spawn({
        let (auth, shutdown) = (auth.clone(), shutdown.clone());
        async move { auth.watch_request_header(shutdown).await }
    });
    let named = headers(&[("X-Remote-User", "alice")]);
    let await_accepted = async |cert: &rcgen::Certificate, wanted: bool| {
        let deadline = Instant::now() + Duration::from_hours(1);
        while auth.authenticate(&peer(cert), &named).await.is_ok() != wanted {
            assert!(Instant::now() < deadline, "the certificate is not accepted: {wanted}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let publish = |ca: &ClientCa| {
        let metadata = json!({"name": "extension-apiserver-authentication", "namespace": "kube-system"});
        fake.put(MAP, json!({"metadata": metadata, "data": ca.config_map()}));
    };
    let (first, second) = (ClientCa::generate(), ClientCa::generate());
    let (cert, next) = (first.issue("front-proxy-client").0, second.issue("front-proxy-client").0);
    fake.reply_to_all(Reply::Failure(403));
    await_accepted(&cert, false).await;
    publish(&first);
    fake.clear_rule();
    await_accepted(&cert, true).await;
    await_accepted(&next, false).await;
    publish(&second);
    await_accepted(&next, true).await;
    await_accepted(&cert, false).await;
    fake.delete(MAP);
    await_accepted(&next, false).await;
    shutdown.cancel();
    task.await.unwrap();
}
