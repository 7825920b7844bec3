//! An apiserver of the few routes that the opening needs.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::{Path, Query, State as Extract};
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};

use super::super::*;

/// An apiserver that knows the two configurations, each named `wva`, merges applied webhooks by name, and has one
/// Service with one endpoint.
#[derive(Clone)]
pub(super) struct Apiserver {
    pub(super) objects: Arc<Mutex<BTreeMap<String, Value>>>,
    /// Type of the Service, and whether its endpoint is ready.
    pub(super) service: Arc<Mutex<(&'static str, Option<bool>)>>,
    pub(super) patches: Arc<Mutex<Vec<Value>>>,
    /// Of this configuration nothing may be read or written.
    pub(super) forbidden: Arc<Mutex<Option<&'static str>>>,
    /// Watches report nothing.
    pub(super) deaf: Arc<AtomicBool>,
    /// Whether this one said what it carries while a repair was on its way.
    pub(super) trust: Arc<Mutex<Option<Trust>>>,
    pub(super) said_meanwhile: Arc<AtomicBool>,
    revision: watch::Sender<u64>,
}

impl Apiserver {
    pub(super) fn start(items: &Value) -> (Self, Client) {
        let objects = items["items"].as_array().unwrap().iter().map(|o| {
            let plural = format!("{}s", o["kind"].as_str().unwrap().to_lowercase());
            (plural, o.clone())
        });
        let this = Self {
            objects: Arc::new(Mutex::new(objects.collect())),
            service: Arc::new(Mutex::new(("ClusterIP", Some(true)))),
            patches: Arc::default(),
            forbidden: Arc::default(),
            deaf: Arc::default(),
            trust: Arc::default(),
            said_meanwhile: Arc::default(),
            revision: watch::Sender::new(1),
        };
        let base = "/apis/admissionregistration.k8s.io/v1/{plural}";
        let router = Router::new()
            .route(base, get(list))
            .route(&format!("{base}/wva"), get(read).patch(apply))
            .route("/api/v1/namespaces/wva/services/wva-webhook", get(service))
            .route("/apis/discovery.k8s.io/v1/namespaces/wva/endpointslices", get(slices))
            .with_state(this.clone());
        (this, Client::new(router, "default"))
    }

    pub(super) fn object(&self, plural: &str) -> Value {
        self.objects.lock().unwrap()[plural].clone()
    }

    pub(super) fn edit(&self, plural: &str, change: impl FnOnce(&mut Value)) {
        change(self.objects.lock().unwrap().get_mut(plural).unwrap());
        self.revision.send_modify(|r| *r += 1);
    }

    /// Waits until the object is as wanted.
    pub(super) async fn until(&self, plural: &str, wanted: impl Fn(&Value) -> bool) {
        let mut revision = self.revision.subscribe();
        let seen = async {
            while !wanted(&self.object(plural)) {
                revision.changed().await.unwrap();
            }
        };
        let seen = timeout(Duration::from_secs(20), seen).await;
        assert!(seen.is_ok(), "{plural} never became as wanted: {:#}", self.object(plural));
    }
}

/// A list, or a watch that reports every change.
async fn list(
    Extract(server): Extract<Apiserver>,
    Path(plural): Path<String>,
    Query(query): Query<BTreeMap<String, String>>,
) -> axum::response::Response {
    use axum::response::IntoResponse as _;
    assert_eq!(query["fieldSelector"], "metadata.name=wva");
    if !query.contains_key("watch") {
        let objects: Vec<Value> = server.objects.lock().unwrap().get(&plural).cloned().into_iter().collect();
        let items = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "List",
            "metadata": {"resourceVersion": "1"}, "items": objects});
        return Json(items).into_response();
    }
    let stream = futures::stream::unfold(server.revision.subscribe(), move |mut revision| {
        let (server, plural) = (server.clone(), plural.clone());
        async move {
            revision.changed().await.ok()?;
            let there = || server.objects.lock().unwrap().get(&plural).cloned();
            let mut object = loop {
                match there().filter(|_| !server.deaf.load(Ordering::SeqCst)) {
                    Some(object) => break object,
                    None => revision.changed().await.ok()?,
                }
            };
            object["metadata"]["resourceVersion"] = json!(revision.borrow().to_string());
            Some((
                Ok::<_, std::io::Error>(format!("{}\n", json!({"type": "MODIFIED", "object": object}))),
                revision,
            ))
        }
    });
    axum::body::Body::from_stream(stream).into_response()
}

async fn service(Extract(server): Extract<Apiserver>) -> Json<Value> {
    let (kind, _) = *server.service.lock().unwrap();
    Json(
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "wva-webhook"}, "spec": {"type": kind}}),
    )
}

async fn slices(
    Extract(server): Extract<Apiserver>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Json<Value> {
    assert_eq!(query["labelSelector"], "kubernetes.io/service-name=wva-webhook");
    let (_, ready) = *server.service.lock().unwrap();
    let endpoint = json!({"addresses": ["10.0.0.1"], "conditions": {"ready": ready}});
    let slice =
        json!({"metadata": {"name": "wva-webhook-x"}, "addressType": "IPv4", "endpoints": [endpoint]});
    Json(
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSliceList", "metadata": {}, "items": [slice]}),
    )
}

async fn read(Extract(server): Extract<Apiserver>, Path(plural): Path<String>) -> (StatusCode, Json<Value>) {
    let refused = |code: StatusCode, reason: &str| {
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason,
            "message": reason, "code": code.as_u16()});
        (code, Json(status))
    };
    if *server.forbidden.lock().unwrap() == Some(&*plural) {
        return refused(StatusCode::FORBIDDEN, "Forbidden");
    }
    let found = server.objects.lock().unwrap().get(&plural).cloned();
    found.map_or_else(|| refused(StatusCode::NOT_FOUND, "NotFound"), |object| (StatusCode::OK, Json(object)))
}

async fn apply(
    Extract(server): Extract<Apiserver>,
    Path(plural): Path<String>,
    Query(query): Query<BTreeMap<String, String>>,
    // An apply is sent as `application/apply-patch+yaml`.
    patch: axum::body::Bytes,
) -> (StatusCode, Json<Value>) {
    assert_eq!((query["fieldManager"].as_str(), query["force"].as_str()), (FIELD_MANAGER, "true"));
    let patch: Value = serde_json::from_slice(&patch).unwrap();
    server.patches.lock().unwrap().push(patch.clone());
    let said = server.trust.lock().unwrap().as_ref().is_some_and(|trust| trust.carried().is_some());
    server.said_meanwhile.fetch_or(said, Ordering::SeqCst);
    let mut status = StatusCode::OK;
    server.edit(&plural, |object| {
        for applied in patch["webhooks"].as_array().unwrap() {
            let there = object["webhooks"].as_array_mut().unwrap();
            let Some(entry) = there.iter_mut().find(|w| w["name"] == applied["name"]) else {
                status = StatusCode::UNPROCESSABLE_ENTITY;
                return;
            };
            entry["rules"] = applied["rules"].clone();
            entry["clientConfig"]["caBundle"] = applied["clientConfig"]["caBundle"].clone();
        }
    });
    (status, Json(server.object(&plural)))
}
