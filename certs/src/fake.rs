//! A fake API server for the tests of this crate: Secrets of one namespace in memory, with the semantics that races
//! depend on (create conflicts, resourceVersion preconditions, watches), and a log of what was asked. It is no
//! apiserver: no validation, no permissions.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use futures::{StreamExt, stream};
use http::{Method, Request, Response};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use serde_json::{Value, json};
use tokio::sync::watch;

pub(crate) const NAMESPACE: &str = "wva-system";

#[derive(Default)]
struct State {
    revision: u64,
    secrets: BTreeMap<String, Value>,
    /// (revision, event) of every change.
    history: Vec<(u64, Value)>,
    /// `METHOD path -> status` of every request.
    log: Vec<String>,
    events: Vec<Value>,
    failing: bool,
    hanging: bool,
    deaf: bool,
}

/// Handle on the fake; clones share it.
#[derive(Clone)]
pub(crate) struct FakeApi {
    state: Arc<Mutex<State>>,
    changed: Arc<watch::Sender<u64>>,
}

impl FakeApi {
    pub(crate) fn new() -> Self {
        Self { state: Arc::default(), changed: Arc::new(watch::channel(0).0) }
    }

    pub(crate) fn client(&self) -> kube::Client {
        let fake = self.clone();
        let service = tower::service_fn(move |request| {
            let fake = fake.clone();
            async move { Ok::<_, Infallible>(fake.answer(request).await) }
        });
        kube::Client::new(service, NAMESPACE)
    }

    pub(crate) fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client(), NAMESPACE)
    }

    /// Every request gets a 500 while set.
    pub(crate) fn failing(&self, failing: bool) {
        self.state.lock().unwrap().failing = failing;
    }

    /// No request is answered while set.
    pub(crate) fn hanging(&self, hanging: bool) {
        self.state.lock().unwrap().hanging = hanging;
    }

    /// Watches report nothing while set.
    pub(crate) fn deaf(&self, deaf: bool) {
        self.state.lock().unwrap().deaf = deaf;
    }

    pub(crate) fn exists(&self, name: &str) -> bool {
        self.state.lock().unwrap().secrets.contains_key(name)
    }

    /// Writes a Secret behind everybody's back.
    pub(crate) fn put(&self, name: &str, data: &BTreeMap<String, ByteString>) {
        let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data});
        self.write(name, object);
    }

    pub(crate) fn delete(&self, name: &str) {
        let mut state = self.state.lock().unwrap();
        let old = state.secrets.remove(name).unwrap();
        self.record(&mut state, "DELETED", &old);
    }

    pub(crate) fn data(&self, name: &str) -> BTreeMap<String, ByteString> {
        let state = self.state.lock().unwrap();
        serde_json::from_value(state.secrets[name]["data"].clone()).unwrap()
    }

    pub(crate) fn object(&self, name: &str) -> Value {
        self.state.lock().unwrap().secrets[name].clone()
    }

    /// How many requests of `method` were answered with `status`.
    pub(crate) fn count(&self, method: &str, status: u16) -> usize {
        let state = self.state.lock().unwrap();
        state.log.iter().filter(|l| l.starts_with(method) && l.ends_with(&status.to_string())).count()
    }

    pub(crate) fn notes(&self) -> Vec<String> {
        let state = self.state.lock().unwrap();
        state
            .events
            .iter()
            .map(|e| format!("{} {}", e["type"].as_str().unwrap(), e["note"].as_str().unwrap()))
            .collect()
    }

    fn write(&self, name: &str, mut object: Value) -> Value {
        let mut state = self.state.lock().unwrap();
        let kind = if state.secrets.contains_key(name) { "MODIFIED" } else { "ADDED" };
        object["metadata"]["resourceVersion"] = json!((state.revision + 1).to_string());
        object["metadata"]["namespace"] = json!(NAMESPACE);
        state.secrets.insert(name.to_owned(), object.clone());
        self.record(&mut state, kind, &object);
        object
    }

    fn record(&self, state: &mut State, kind: &str, object: &Value) {
        state.revision += 1;
        let revision = state.revision;
        state.history.push((revision, json!({"type": kind, "object": object})));
        self.changed.send_replace(revision);
    }

    async fn answer(&self, request: Request<kube::client::Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await.unwrap();
        // Gives every other task its turn between one task's read and its write: that is where races happen.
        tokio::task::yield_now().await;
        let (failing, hanging) = {
            let state = self.state.lock().unwrap();
            (state.failing, state.hanging)
        };
        if hanging {
            std::future::pending::<()>().await;
        }
        let query = parts.uri.query().unwrap_or_default();
        let response = if failing {
            refused(500, "InternalError")
        } else if query.contains("watch=true") {
            self.watch(query)
        } else if parts.uri.path().ends_with("/events") {
            self.state.lock().unwrap().events.push(serde_json::from_slice(&body).unwrap());
            Response::builder().status(201).body(Body::from(body)).unwrap()
        } else {
            let name = parts.uri.path().split("/secrets").nth(1).unwrap().trim_start_matches('/').to_owned();
            self.secret(&parts.method, &name, serde_json::from_slice(&body).unwrap_or_default())
        };
        let status = response.status().as_u16();
        self.state.lock().unwrap().log.push(format!("{} {} {status}", parts.method, parts.uri.path()));
        response
    }

    fn secret(&self, method: &Method, name: &str, body: Value) -> Response<Body> {
        let (found, revision) = {
            let state = self.state.lock().unwrap();
            (state.secrets.get(name).cloned(), state.revision)
        };
        match (method, found) {
            (&Method::GET, _) if name.is_empty() => {
                let items: Vec<Value> = self.state.lock().unwrap().secrets.values().cloned().collect();
                let metadata = json!({"resourceVersion": revision.to_string()});
                json_body(
                    200,
                    &json!({"apiVersion": "v1", "kind": "SecretList", "metadata": metadata, "items": items}),
                )
            }
            (&Method::GET, Some(object)) => json_body(200, &object),
            (&Method::POST, _) => {
                let name = body["metadata"]["name"].as_str().unwrap().to_owned();
                if self.state.lock().unwrap().secrets.contains_key(&name) {
                    return refused(409, "AlreadyExists");
                }
                json_body(201, &self.write(&name, body))
            }
            (&Method::PUT, Some(object)) => {
                if object["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"] {
                    return refused(409, "Conflict");
                }
                json_body(200, &self.write(name, body))
            }
            (_, None) => refused(404, "NotFound"),
            other => panic!("the fake does not know {other:?}"),
        }
    }

    fn watch(&self, query: &str) -> Response<Body> {
        let from =
            query.split('&').find_map(|p| p.strip_prefix("resourceVersion=")).unwrap().parse().unwrap();
        let changes = stream::unfold(
            (self.clone(), self.changed.subscribe(), from),
            |(fake, mut seen, from)| async move {
                loop {
                    seen.borrow_and_update();
                    let next = {
                        let state = fake.state.lock().unwrap();
                        state.history.iter().find(|(revision, _)| *revision > from && !state.deaf).cloned()
                    };
                    if let Some((revision, event)) = next {
                        return Some((format!("{event}\n"), (fake, seen, revision)));
                    }
                    seen.changed().await.ok()?;
                }
            },
        );
        Response::new(Body::from_stream(changes.map(Ok::<_, Infallible>)))
    }
}

fn json_body(status: u16, value: &Value) -> Response<Body> {
    Response::builder().status(status).body(Body::from(value.to_string())).unwrap()
}

fn refused(code: u16, reason: &str) -> Response<Body> {
    let status = json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "message": reason, "reason": reason, "code": code});
    json_body(code, &status)
}
