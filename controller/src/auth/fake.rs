//! A fake API server for tests of this module and of the external metrics API: answers token and access reviews from
//! a list, and keeps single objects that can be listed, watched and patched. It is no apiserver: it checks nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::http::{Method, Request, Response};
use futures::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::sync::watch;

#[derive(Default)]
struct State {
    revision: u64,
    /// By path of the object.
    objects: BTreeMap<String, Value>,
    /// (revision, path, event) of every change.
    history: Vec<(u64, String, Value)>,
    /// Users whose every access review is answered with yes.
    allowed: BTreeSet<String>,
    /// `spec` of every access review.
    access_reviews: Vec<Value>,
    token_reviews: usize,
    /// Users whose token is not accepted any more.
    revoked: BTreeSet<String>,
    patches: Vec<(String, Value)>,
    tokens_hang: bool,
    /// Status that every review gets instead of an answer.
    reviews_fail: Option<u16>,
    forbidden: bool,
}

/// Handle on the fake; clones share it.
#[derive(Clone)]
pub(crate) struct FakeApi {
    state: Arc<Mutex<State>>,
    changed: Arc<watch::Sender<u64>>,
}

impl FakeApi {
    /// Access reviews of `allowed` are answered with yes. The token `token-of-X` is that of user X.
    pub(crate) fn new(allowed: &[&str]) -> Self {
        let allowed = allowed.iter().map(ToString::to_string).collect();
        let state = State { allowed, ..State::default() };
        Self { state: Arc::new(Mutex::new(state)), changed: Arc::new(watch::channel(0).0) }
    }

    pub(crate) fn client(&self) -> kube::Client {
        let fake = self.clone();
        let service = tower::service_fn(move |request| {
            let fake = fake.clone();
            async move { Ok::<_, Infallible>(fake.answer(request).await) }
        });
        kube::Client::new(service, "default")
    }

    /// Reviews get a 500 while set.
    pub(crate) fn down(&self, down: bool) {
        self.state.lock().unwrap().reviews_fail = down.then_some(500);
    }

    /// Reviews get a 403 from now on.
    pub(crate) fn forbid_reviews(&self) {
        self.state.lock().unwrap().reviews_fail = Some(403);
    }

    /// Token reviews are counted and never answered.
    pub(crate) fn tokens_hang(&self) {
        self.state.lock().unwrap().tokens_hang = true;
    }

    /// Objects get a 403 while set.
    pub(crate) fn forbidden(&self, forbidden: bool) {
        self.state.lock().unwrap().forbidden = forbidden;
    }

    pub(crate) fn disallow(&self, user: &str) {
        self.state.lock().unwrap().allowed.remove(user);
    }

    pub(crate) fn revoke(&self, user: &str) {
        self.state.lock().unwrap().revoked.insert(user.to_owned());
    }

    pub(crate) fn put(&self, path: &str, mut object: Value) {
        let mut state = self.state.lock().unwrap();
        let kind = if state.objects.contains_key(path) { "MODIFIED" } else { "ADDED" };
        object["metadata"]["resourceVersion"] = json!((state.revision + 1).to_string());
        state.objects.insert(path.to_owned(), object.clone());
        self.record(&mut state, path, &json!({"type": kind, "object": object}));
    }

    pub(crate) fn delete(&self, path: &str) {
        let mut state = self.state.lock().unwrap();
        let object = state.objects.remove(path).unwrap();
        self.record(&mut state, path, &json!({"type": "DELETED", "object": object}));
    }

    fn record(&self, state: &mut State, path: &str, event: &Value) {
        state.revision += 1;
        state.history.push((state.revision, path.to_owned(), event.clone()));
        self.changed.send_replace(state.revision);
    }

    pub(crate) fn object(&self, path: &str) -> Value {
        self.state.lock().unwrap().objects[path].clone()
    }

    pub(crate) fn access_reviews(&self) -> Vec<Value> {
        self.state.lock().unwrap().access_reviews.clone()
    }

    pub(crate) fn token_reviews(&self) -> usize {
        self.state.lock().unwrap().token_reviews
    }

    /// Query and body of every patch.
    pub(crate) fn patches(&self) -> Vec<(String, Value)> {
        self.state.lock().unwrap().patches.clone()
    }

    async fn answer(&self, request: Request<kube::client::Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await.unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let (path, query) = (parts.uri.path(), parts.uri.query().unwrap_or_default());
        tokio::task::yield_now().await;
        if path.ends_with("reviews") {
            let answer = self.review(path, body);
            if path.ends_with("/tokenreviews") && self.state.lock().unwrap().tokens_hang {
                std::future::pending::<()>().await;
            }
            return answer;
        }
        if self.state.lock().unwrap().forbidden {
            return refused(403, "Forbidden");
        }
        if query.contains("watch=true") {
            return self.watch(path, query);
        }
        if parts.method == Method::PATCH {
            self.state.lock().unwrap().patches.push((query.to_owned(), body.clone()));
            let Some(mut object) = self.state.lock().unwrap().objects.get(path).cloned() else {
                return refused(404, "NotFound");
            };
            for (key, value) in body["spec"].as_object().unwrap() {
                object["spec"][key] = value.clone();
            }
            self.put(path, object);
            return answered(&self.object(path));
        }
        let state = self.state.lock().unwrap();
        // Lists have a query; one object is asked for by its path alone.
        if query.is_empty() {
            return state.objects.get(path).map_or_else(|| refused(404, "NotFound"), answered);
        }
        let items: Vec<&Value> =
            state.objects.iter().filter(|(p, _)| p.starts_with(path)).map(|(_, o)| o).collect();
        answered(&json!({"metadata": {"resourceVersion": state.revision.to_string()}, "items": items}))
    }

    fn review(&self, path: &str, mut review: Value) -> Response<Body> {
        let mut state = self.state.lock().unwrap();
        if let Some(status) = state.reviews_fail {
            return refused(status, "InternalError");
        }
        if path.ends_with("/tokenreviews") {
            state.token_reviews += 1;
            let user = review["spec"]["token"].as_str().unwrap().strip_prefix("token-of-");
            let user = user.filter(|user| !state.revoked.contains(*user));
            review["status"] = match user {
                Some(user) => {
                    json!({"authenticated": true, "user": {"username": user, "groups": ["system:authenticated"]}})
                }
                None => json!({"authenticated": false, "error": "unknown token"}),
            };
        } else {
            state.access_reviews.push(review["spec"].clone());
            let allowed = state.allowed.contains(review["spec"]["user"].as_str().unwrap());
            review["status"] =
                json!({"allowed": allowed, "reason": if allowed { "" } else { "RBAC says no" }});
        }
        answered(&review)
    }

    fn watch(&self, path: &str, query: &str) -> Response<Body> {
        let from: u64 =
            query.split('&').find_map(|p| p.strip_prefix("resourceVersion=")).unwrap().parse().unwrap();
        let start = (self.clone(), self.changed.subscribe(), path.to_owned(), from);
        let changes = stream::unfold(start, |(fake, mut seen, path, from)| async move {
            loop {
                seen.borrow_and_update();
                let next = {
                    let state = fake.state.lock().unwrap();
                    state.history.iter().find(|(at, p, _)| *at > from && p.starts_with(&path)).cloned()
                };
                if let Some((at, _, event)) = next {
                    return Some((format!("{event}\n"), (fake, seen, path, at)));
                }
                seen.changed().await.ok()?;
            }
        });
        Response::new(Body::from_stream(changes.map(Ok::<_, Infallible>)))
    }
}

fn answered(value: &Value) -> Response<Body> {
    Response::new(Body::from(value.to_string()))
}

fn refused(code: u16, reason: &str) -> Response<Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": reason, "reason": reason, "code": code});
    Response::builder().status(code).body(Body::from(status.to_string())).unwrap()
}

/// A certificate authority for client certificates, as the aggregator has one.
pub(crate) struct ClientCa {
    issuer: rcgen::CertifiedIssuer<'static, rcgen::KeyPair>,
}

impl ClientCa {
    pub(crate) fn new() -> Self {
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, "request-header-ca");
        let key = rcgen::KeyPair::generate().unwrap();
        Self { issuer: rcgen::CertifiedIssuer::self_signed(params, key).unwrap() }
    }

    pub(crate) fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// A client certificate for `name`, with its key.
    pub(crate) fn issue(&self, name: &str) -> (rcgen::Certificate, rcgen::KeyPair) {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    /// What an API server publishes about it.
    pub(crate) fn config_map(&self) -> BTreeMap<String, String> {
        let entries = [
            ("client-ca-file", "not used"),
            ("requestheader-client-ca-file", &self.pem()),
            ("requestheader-allowed-names", r#"["front-proxy-client"]"#),
            ("requestheader-username-headers", r#"["X-Remote-User"]"#),
            ("requestheader-uid-headers", r#"["X-Remote-Uid"]"#),
            ("requestheader-group-headers", r#"["X-Remote-Group"]"#),
            ("requestheader-extra-headers-prefix", r#"["X-Remote-Extra-"]"#),
        ];
        entries.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }
}
