//! A fake API server: one Lease in memory, and what to do to requests.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::http::{Method, Request, Response};
use serde_json::{Value, json};

/// One Lease, and what to do to requests.
#[derive(Clone, Default)]
pub(super) struct FakeApi(Arc<Mutex<Stored>>);

#[derive(Default)]
pub(super) struct Stored {
    pub(super) lease: Option<Value>,
    pub(super) revision: u64,
    /// Names of replicas whose requests get no answer.
    cut_off: Vec<String>,
    /// Writes of the Lease are carried out and get no answer.
    pub(super) mute: bool,
    /// Creates are answered with 404.
    pub(super) no_namespace: bool,
    /// Who wrote what else, in order.
    pub(super) writes: Vec<String>,
}

impl FakeApi {
    pub(super) fn client(&self, who: &str) -> kube::Client {
        let (fake, who) = (self.clone(), who.to_owned());
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let (fake, who) = (fake.clone(), who.clone());
            async move { Ok::<_, Infallible>(fake.answer(&who, request).await) }
        });
        kube::Client::new(service, "wva-system")
    }

    pub(super) fn stored(&self) -> std::sync::MutexGuard<'_, Stored> {
        self.0.lock().unwrap()
    }

    pub(super) fn holder(&self) -> String {
        let lease = self.stored().lease.clone().unwrap_or_default();
        lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
    }

    async fn answer(&self, who: &str, request: Request<kube::client::Body>) -> Response<Body> {
        let method = request.method().clone();
        let path = request.uri().path().to_owned();
        let watch = request.uri().query().is_some_and(|q| q.contains("fieldSelector"));
        let body = request.into_body().collect_bytes().await.unwrap();
        if self.stored().cut_off.iter().any(|cut| cut == who) {
            std::future::pending::<()>().await;
        }
        let (status, object) = match () {
            () if watch => (500, Value::Null),
            () if !path.contains("/leases") => {
                self.stored().writes.push(format!("{who} {method}"));
                (201, json!({"metadata": {"name": "x"}}))
            }
            () => self.lease(&method, serde_json::from_slice(&body).ok()),
        };
        if method != Method::GET && self.stored().mute {
            std::future::pending::<()>().await;
        }
        let object = if status < 300 { object } else { failure(status) };
        Response::builder().status(status).body(Body::from(object.to_string())).unwrap()
    }

    fn lease(&self, method: &Method, sent: Option<Value>) -> (u16, Value) {
        let mut stored = self.stored();
        let Some(mut sent) = sent else {
            return stored.lease.clone().map_or((404, Value::Null), |lease| (200, lease));
        };
        let found = stored.lease.as_ref().map(|l| l["metadata"]["resourceVersion"].clone());
        if stored.no_namespace {
            stored.writes.push(format!("{method}"));
            return (404, Value::Null);
        }
        match (method, found) {
            (&Method::POST, Some(_)) => return (409, Value::Null),
            (&Method::PUT, None) => return (404, Value::Null),
            (&Method::PUT, Some(version)) if sent["metadata"]["resourceVersion"] != version => {
                return (409, Value::Null);
            }
            _ => {}
        }
        stored.revision += 1;
        sent["metadata"]["resourceVersion"] = json!(stored.revision.to_string());
        stored.lease = Some(sent.clone());
        (200, sent)
    }

    pub(super) fn cut_off(&self, who: &str) {
        self.stored().cut_off.push(who.to_owned());
    }

    pub(super) fn heal(&self) {
        self.stored().cut_off.clear();
    }
}

fn failure(code: u16) -> Value {
    let reason = match code {
        404 => "NotFound",
        409 => "Conflict",
        _ => "InternalError",
    };
    json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "x"})
}
