//! Who is believed, who may, and how often the API server is asked.

use axum::http::{HeaderName, HeaderValue};
use rustls::pki_types::CertificateDer;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wva_fakes::reviews::{ClientCa, access_reviews, asks_about_token, review, reviewer};
use wva_fakes::{FakeApi, Reply};

use super::reviewer::{KNOWN_CALL, REVIEWS};
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

fn gate(allowed: &'static [&'static str]) -> (FakeApi, Gate) {
    let fake = reviewer(allowed);
    let gate = Gate::new(fake.client());
    (fake, gate)
}

/// Name of the user whose header this is.
async fn authenticate(gate: &Gate, authorization: &str) -> Result<String, Refusal> {
    let headers = headers(&[("authorization", authorization)]);
    gate.authenticate(&Peer::default(), &headers).await.map(|user| user.name)
}

/// Name of this user, where it may read the metrics.
async fn admit(gate: &Gate, user: &str) -> Result<String, Refusal> {
    let bearer = headers(&[("authorization", &format!("Bearer token-of-{user}"))]);
    gate.admit(&Peer::default(), &bearer, metrics()).await.map(|user| user.name)
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
fn the_aggregators_headers_make_a_user() {
    let ca = ClientCa::generate();
    let config = config(&ca, |_| {}).unwrap();
    let (cert, _) = ca.issue("front-proxy-client");
    let asked = headers(&[
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
    assert_eq!(config.user(&peer(&cert), &asked), Some(want));
}

#[test]
fn headers_count_behind_an_allowed_certificate_alone() {
    let (ca, other) = (ClientCa::generate(), ClientCa::generate());
    let (good, wrong_name) = (ca.issue("front-proxy-client").0, ca.issue("somebody").0);
    let stranger = other.issue("front-proxy-client").0;
    let parsed = config(&ca, |_| {}).unwrap();
    let any_name =
        config(&ca, |d| drop(d.insert("requestheader-allowed-names".into(), "[]".into()))).unwrap();
    let named = headers(&[("X-Remote-User", "alice")]);
    let rows = [
        ("good", &parsed, peer(&good), &named, true),
        ("no certificate", &parsed, Peer::default(), &named, false),
        ("wrong name", &parsed, peer(&wrong_name), &named, false),
        ("any name", &any_name, peer(&wrong_name), &named, true),
        ("another CA", &parsed, peer(&stranger), &named, false),
        ("another CA, any name", &any_name, peer(&stranger), &named, false),
        ("no user", &parsed, peer(&good), &headers(&[]), false),
        ("empty user", &parsed, peer(&good), &headers(&[("X-Remote-User", "")]), false),
        ("user and other header", &parsed, peer(&good), &headers(&[("X-User", "alice")]), false),
    ];
    for (what, config, peer, headers, believed) in rows {
        assert_eq!(config.user(&peer, headers).is_some(), believed, "{what}");
    }
    let mut garbled = named.clone();
    garbled.insert("X-Remote-Group", HeaderValue::from_bytes(b"\xff").unwrap());
    assert_eq!(parsed.user(&peer(&good), &garbled), None, "half a set of groups is another user");
}

#[test]
fn a_config_map_that_gives_no_ca_is_refused() {
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
async fn tokens_are_reviewed_once_a_minute_and_refusals_too() {
    tokio::time::pause();
    let (fake, gate) = gate(&[]);
    let ask = async |authorization: &str| authenticate(&gate, authorization).await;
    for _ in 0..3 {
        assert_eq!(ask("Bearer token-of-alice").await, Ok("alice".to_owned()));
        assert_eq!(ask("bearer nonsense").await, Err(Refusal::Unauthenticated));
    }
    assert_eq!(fake.count(asks_about_token), 2);
    for bad in ["", "Bearer", "Bearer ", "Basic token-of-alice", "token-of-alice"] {
        assert_eq!(ask(bad).await, Err(Refusal::Unauthenticated), "{bad:?}");
    }
    assert_eq!(
        ask(&format!("Bearer {}", "x".repeat(LONGEST_TOKEN + 1))).await,
        Err(Refusal::Unauthenticated)
    );
    assert_eq!(fake.count(asks_about_token), 2, "nothing of that is worth asking");
    tokio::time::advance(CACHE_LIFETIME).await;
    assert_eq!(ask("Bearer token-of-alice").await, Ok("alice".to_owned()));
    assert_eq!(fake.count(asks_about_token), 3);
}

#[tokio::test(start_paused = true)]
async fn made_up_tokens_push_no_users_out() {
    let (fake, gate) = gate(&[]);
    let ask = async |token: &str| authenticate(&gate, &format!("Bearer {token}")).await;
    assert_eq!(ask("token-of-alice").await, Ok("alice".to_owned()));
    for i in 0..=KEPT {
        gate.made_up.insert(format!("made-up-{i}"), ());
    }
    assert_eq!(ask("token-of-alice").await, Ok("alice".to_owned()));
    assert_eq!(fake.count(asks_about_token), 1);
}

#[tokio::test(start_paused = true)]
async fn reviews_of_made_up_tokens_are_rate_limited() {
    let (fake, gate) = gate(&[]);
    let ask = async |token: &str| authenticate(&gate, &format!("Bearer {token}")).await;
    assert_eq!(ask("token-of-alice").await, Ok("alice".to_owned()));
    let flood = async |wave: u32| {
        let mut answers = Vec::new();
        for i in 0..10 * UNKNOWN_TOKENS {
            answers.push(ask(&format!("made-up-{wave}-{i}")).await);
        }
        let of = |refusal: &Refusal| answers.iter().filter(|a| a.as_ref().err() == Some(refusal)).count();
        assert_eq!(of(&Refusal::Unauthenticated) + of(&Refusal::TooMany), answers.len());
    };
    flood(0).await;
    let burst = usize::try_from(UNKNOWN_TOKENS).unwrap();
    assert_eq!(fake.count(asks_about_token), burst, "alice and the rest of the burst");
    tokio::time::advance(Duration::from_secs(5)).await;
    flood(1).await;
    assert_eq!(fake.count(asks_about_token), burst + 10, "two a second");
    assert_eq!(ask("token-of-bob").await, Err(Refusal::TooMany));
    // A token that was seen valid before is reviewed again, whatever strangers do.
    tokio::time::advance(CACHE_LIFETIME).await;
    flood(2).await;
    let reviews = fake.count(asks_about_token);
    assert_eq!(ask("token-of-alice").await, Ok("alice".to_owned()));
    assert_eq!(fake.count(asks_about_token), reviews + 1);
}

#[tokio::test(start_paused = true)]
async fn made_up_tokens_are_asked_about_a_few_at_a_time_and_hold_up_nobody_who_is_known() {
    let (fake, gate) = gate(&["alice"]);
    fake.set_rule(|r| if asks_about_token(r) { Some(Reply::Hang) } else { review(r, &["alice"], &[]) });
    let peer = Peer::default();
    let made_up: Vec<_> =
        (0..2 * REVIEWS).map(|i| headers(&[("authorization", &format!("Bearer made-up-{i}"))])).collect();
    let asking = futures::future::join_all(made_up.iter().map(|headers| gate.authenticate(&peer, headers)));
    let mut asking = std::pin::pin!(asking);
    let alice = User { name: "alice".into(), ..User::default() };
    let allowed = async {
        let allowed = gate.authorize(&alice, metrics()).await;
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        allowed
    };
    tokio::select! {
        biased;
        answers = &mut asking => panic!("{answers:?}"),
        allowed = allowed => assert_eq!(allowed, Ok(())),
    }
    assert_eq!(fake.count(asks_about_token), REVIEWS);
    let answers = asking.await;
    assert!(answers.iter().all(|answer| *answer == Err(Refusal::Undecided)), "{answers:?}");
}

#[tokio::test]
async fn access_is_reviewed_in_the_api_servers_terms_and_believed_for_a_minute() {
    tokio::time::pause();
    let (fake, gate) = gate(&["alice"]);
    let alice = User { name: "alice".into(), groups: vec!["g".into()], ..User::default() };
    let metric = Action::Resource {
        verb: "list",
        group: "external.metrics.k8s.io",
        version: "v1beta1",
        resource: "wva_desired_replicas".into(),
        namespace: "prod".into(),
    };
    for _ in 0..2 {
        gate.authorize(&alice, metric.clone()).await.unwrap();
        gate.authorize(&alice, metrics()).await.unwrap();
    }
    let reviews = access_reviews(&fake);
    assert_eq!(reviews.len(), 2, "{reviews:?}");
    let wanted = json!({"verb": "list", "group": "external.metrics.k8s.io", "version": "v1beta1",
        "resource": "wva_desired_replicas", "namespace": "prod"});
    assert_eq!(reviews[0]["resourceAttributes"], wanted);
    assert_eq!(reviews[0]["groups"], json!(["g"]));
    assert_eq!(reviews[1]["nonResourceAttributes"], json!({"verb": "get", "path": "/metrics"}));

    fake.set_rule(|request| review(request, &[], &[]));
    gate.authorize(&alice, metric.clone()).await.unwrap();
    // The same name in other groups is somebody else to RBAC.
    let other = User { groups: vec![], ..alice.clone() };
    let refused = gate.authorize(&other, metric.clone()).await.unwrap_err();
    let text = "user \"alice\" may not list wva_desired_replicas.external.metrics.k8s.io in namespace \"prod\": RBAC says no";
    assert_eq!(refused.to_string(), text);
    tokio::time::advance(CACHE_LIFETIME).await;
    assert!(matches!(gate.authorize(&alice, metric).await, Err(Refusal::Forbidden { .. })));
}

#[tokio::test]
async fn masters_need_no_review() {
    let (fake, gate) = gate(&[]);
    let master =
        User { name: "system:kube-aggregator".into(), groups: vec![MASTERS.into()], ..User::default() };
    gate.authorize(&master, metrics()).await.unwrap();
    assert_eq!(access_reviews(&fake).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_down_decides_nothing_and_is_not_remembered() {
    let (fake, gate) = gate(&["alice"]);
    fake.reply_to_all(Reply::Failure(500));
    assert_eq!(admit(&gate, "alice").await, Err(Refusal::Undecided));
    fake.set_rule(|request| review(request, &["alice"], &[]));
    assert_eq!(admit(&gate, "alice").await, Ok("alice".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn allowed_caller_is_served_while_the_api_server_is_down() {
    let (fake, gate) = gate(&["alice", "bob"]);
    assert_eq!(admit(&gate, "alice").await, Ok("alice".to_owned()));
    fake.reply_to_all(Reply::Failure(500));
    tokio::time::advance(OUTAGE.saturating_sub(Duration::from_secs(1))).await;
    assert_eq!(admit(&gate, "alice").await, Ok("alice".to_owned()));
    assert_eq!(admit(&gate, "bob").await, Err(Refusal::Undecided), "it was never allowed");
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(admit(&gate, "alice").await, Err(Refusal::Undecided), "10 minutes are over");
}

#[tokio::test(start_paused = true)]
async fn hanging_api_server_keeps_an_allowed_caller_waiting_briefly() {
    let (fake, gate) = gate(&["alice"]);
    admit(&gate, "alice").await.unwrap();
    fake.set_rule(|request| asks_about_token(request).then_some(Reply::Hang));
    tokio::time::advance(CACHE_LIFETIME).await;
    let start = Instant::now();
    assert_eq!(authenticate(&gate, "Bearer token-of-alice").await, Ok("alice".to_owned()));
    assert_eq!(start.elapsed(), KNOWN_CALL);
}

#[tokio::test(start_paused = true)]
async fn denied_caller_is_not_served_while_the_api_server_is_down() {
    let (fake, gate) = gate(&["alice", "bob"]);
    for user in ["alice", "bob"] {
        admit(&gate, user).await.unwrap();
    }
    // The token of one is revoked, the right of the other is taken away, and both have asked since.
    fake.set_rule(|request| review(request, &["alice"], &["alice"]));
    tokio::time::advance(CACHE_LIFETIME).await;
    assert_eq!(admit(&gate, "alice").await, Err(Refusal::Unauthenticated));
    let refused = admit(&gate, "bob").await;
    assert!(matches!(refused, Err(Refusal::Forbidden { .. })), "{refused:?}");
    fake.reply_to_all(Reply::Failure(500));
    tokio::time::advance(CACHE_LIFETIME).await;
    for user in ["alice", "bob"] {
        assert_eq!(admit(&gate, user).await, Err(Refusal::Undecided));
    }
}

#[tokio::test(start_paused = true)]
async fn api_server_that_forbids_reviews_is_not_an_outage() {
    let (fake, gate) = gate(&["alice"]);
    admit(&gate, "alice").await.unwrap();
    fake.reply_to_all(Reply::Failure(403));
    tokio::time::advance(CACHE_LIFETIME).await;
    assert_eq!(admit(&gate, "alice").await, Err(Refusal::Undecided));
}

#[tokio::test(start_paused = true)]
async fn the_config_map_is_followed() {
    let fake = FakeApi::new();
    let gate = Arc::new(Gate::new(fake.client()));
    let shutdown = CancellationToken::new();
    let task = tokio::spawn({
        let (gate, shutdown) = (gate.clone(), shutdown.clone());
        async move { gate.watch_request_header(shutdown).await }
    });
    let named = headers(&[("X-Remote-User", "alice")]);
    let believes = async |cert: &rcgen::Certificate, wanted: bool| {
        let deadline = Instant::now() + Duration::from_hours(1);
        while gate.authenticate(&peer(cert), &named).await.is_ok() != wanted {
            assert!(Instant::now() < deadline, "believed is not {wanted}");
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
    believes(&cert, false).await;
    publish(&first);
    fake.clear_rule();
    believes(&cert, true).await;
    believes(&next, false).await;
    publish(&second);
    believes(&next, true).await;
    believes(&cert, false).await;
    fake.delete(MAP);
    believes(&next, false).await;
    shutdown.cancel();
    task.await.unwrap();
}
