//! A fake Kubernetes API server for unit tests: a [`kube::Client`] on objects in memory.
//!
//! It keeps the semantics that races depend on: resourceVersions, conflicts and watches, in tests on one thread. It does not validate, default
//! or authorize, and it knows no types: an object is stored under its path, a subresource such as `scale` as an object
//! of its own. [`FakeApi::set_rule`] replaces answers, [`FakeApi::requests`] lists what was asked.
#![expect(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    reason = "only tests use this crate: what is unexpected fails the test"
)]

mod paths;
pub mod reviews;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::body::Body;
use futures::stream;
use http::Response;
use serde_json::{Value, json};
use tokio::sync::watch;

pub use http::Method;

/// A request, as the fake recorded it.
#[derive(Clone, Debug)]
pub struct Request {
    /// How many requests came before it.
    pub number: usize,
    /// Name of the client, as [`FakeApi::client_of`] got it.
    pub client: String,
    /// HTTP method.
    pub method: Method,
    /// Path without the query.
    pub path: String,
    /// Query as it was sent, percent-encoded; empty if there is none.
    pub query: String,
    /// Which of the kinds of patches it is, among others; empty if it is absent.
    pub content_type: String,
    /// Body, or null.
    pub body: Value,
    /// Status of the response, once there is one.
    pub status: Option<u16>,
}

impl Request {
    /// Whether the request starts a watch.
    pub fn is_watch(&self) -> bool {
        self.query.contains("watch=true")
    }

    /// Method and path.
    pub fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

/// What a rule does to a request.
#[derive(Clone, Debug)]
pub enum Reply {
    /// A failure of this HTTP status.
    Failure(u16),
    /// This status and body.
    Json(u16, Value),
    /// The request is carried out after this time.
    Delayed(Duration),
    /// The request is carried out, but its response never arrives.
    Lost,
    /// There is no response.
    Hang,
    /// The connection is reset.
    Reset,
}

type Rule = Arc<dyn Fn(&Request) -> Option<Reply> + Send + Sync>;

#[derive(Default)]
struct State {
    revision: u64,
    /// By path.
    objects: BTreeMap<String, Value>,
    /// Revision, path and watch event of every change.
    history: Vec<(u64, String, Value)>,
    requests: Vec<Request>,
    rule: Option<Rule>,
    watches_silenced: bool,
    /// Watches of earlier generations end.
    watch_generation: u64,
}

/// The fake; clones share it.
#[derive(Clone)]
pub struct FakeApi {
    state: Arc<Mutex<State>>,
    changed: Arc<watch::Sender<()>>,
}

impl Default for FakeApi {
    fn default() -> Self {
        Self { state: Arc::default(), changed: Arc::new(watch::channel(()).0) }
    }
}

/// A response: status and body.
type Answer = (u16, Value);

impl FakeApi {
    /// An API server without objects.
    pub fn new() -> Self {
        Self::default()
    }

    /// A fake where `rule` applies.
    pub fn with_rule(rule: impl Fn(&Request) -> Option<Reply> + Send + Sync + 'static) -> Self {
        let fake = Self::default();
        fake.set_rule(rule);
        fake
    }

    /// A client of this server.
    pub fn client(&self) -> kube::Client {
        self.client_of("")
    }

    /// A client whose requests carry this name.
    pub fn client_of(&self, name: &str) -> kube::Client {
        let (fake, name) = (self.clone(), name.to_owned());
        let service = tower::service_fn(move |request| {
            let (fake, name) = (fake.clone(), name.clone());
            async move { fake.answer(name, request).await }
        });
        kube::Client::new(service, "default")
    }

    /// Applies `rule` to every request from now on, in place of the rule before it. `None` carries the request out.
    /// The request is recorded already, and the rule may use the fake.
    pub fn set_rule(&self, rule: impl Fn(&Request) -> Option<Reply> + Send + Sync + 'static) {
        self.lock().rule = Some(Arc::new(rule));
    }

    /// Gives every request this reply.
    pub fn reply_to_all(&self, reply: Reply) {
        self.set_rule(move |_| Some(reply.clone()));
    }

    /// Carries out every request again.
    pub fn clear_rule(&self) {
        self.lock().rule = None;
    }

    /// Open watches and later ones report nothing from now on.
    pub fn silence_watches(&self) {
        self.lock().watches_silenced = true;
    }

    /// Ends the watches that are open.
    pub fn end_watches(&self) {
        self.lock().watch_generation += 1;
        self.changed.send_replace(());
    }

    /// Every request so far, in order of arrival.
    pub fn requests(&self) -> Vec<Request> {
        self.lock().requests.clone()
    }

    /// Number of requests that are `wanted`.
    pub fn count(&self, wanted: impl Fn(&Request) -> bool) -> usize {
        self.lock().requests.iter().filter(|request| wanted(request)).count()
    }

    /// The object at `path`.
    pub fn get(&self, path: &str) -> Option<Value> {
        self.lock().objects.get(path).cloned()
    }

    /// The object at `path`, which exists.
    pub fn object(&self, path: &str) -> Value {
        self.get(path).unwrap_or_else(|| panic!("there is no {path}"))
    }

    /// Creates or replaces the object at `path`. It gets a new resourceVersion.
    pub fn put(&self, path: &str, mut object: Value) -> Value {
        let mut state = self.lock();
        let kind = if state.objects.contains_key(path) { "MODIFIED" } else { "ADDED" };
        self.record(&mut state, path, kind, &mut object);
        state.objects.insert(path.to_owned(), object.clone());
        object
    }

    /// Changes the object at `path`. It gets a new resourceVersion.
    pub fn edit(&self, path: &str, change: impl FnOnce(&mut Value)) {
        let mut object = self.object(path);
        change(&mut object);
        self.put(path, object);
    }

    /// Deletes the object at `path`, which exists.
    pub fn delete(&self, path: &str) {
        let mut state = self.lock();
        let mut object = state.objects.remove(path).unwrap();
        self.record(&mut state, path, "DELETED", &mut object);
    }

    /// Waits until the object at `path` is as `wanted`, at most so long.
    pub async fn wait_until(&self, limit: Duration, path: &str, wanted: impl Fn(&Value) -> bool) {
        let mut changed = self.changed.subscribe();
        let reached = async {
            while !self.get(path).is_some_and(|object| wanted(&object)) {
                changed.changed().await.unwrap();
            }
        };
        let reached = tokio::time::timeout(limit, reached).await;
        assert!(reached.is_ok(), "{path} is not as wanted after {limit:?}: {:#?}", self.get(path));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn record(&self, state: &mut State, path: &str, kind: &str, object: &mut Value) {
        state.revision += 1;
        object["metadata"]["resourceVersion"] = json!(state.revision.to_string());
        state.history.push((state.revision, path.to_owned(), json!({"type": kind, "object": object})));
        self.changed.send_replace(());
    }

    async fn answer(
        &self,
        client: String,
        request: http::Request<kube::client::Body>,
    ) -> io::Result<Response<Body>> {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await.map_err(io::Error::other)?;
        // Other tasks get their turn between the read and the write of one task: that is where races happen.
        tokio::task::yield_now().await;
        let mut request = Request {
            number: self.lock().requests.len(),
            client,
            method: parts.method,
            path: parts.uri.path().to_owned(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            content_type: parts.headers.get("content-type").map_or("", |v| v.to_str().unwrap()).to_owned(),
            body: serde_json::from_slice(&body).unwrap_or_default(),
            status: None,
        };
        let rule = {
            let mut state = self.lock();
            state.requests.push(request.clone());
            state.rule.clone()
        };
        let reply = rule.and_then(|rule| rule(&request));
        let answer = match reply {
            Some(Reply::Hang) => std::future::pending().await,
            Some(Reply::Reset) => return Err(io::ErrorKind::ConnectionReset.into()),
            Some(Reply::Failure(status)) => Some(failure(status, &request.method)),
            Some(Reply::Json(status, body)) => Some((status, body)),
            Some(Reply::Delayed(time)) => {
                tokio::time::sleep(time).await;
                self.carry_out(&mut request)
            }
            Some(Reply::Lost) => {
                self.carry_out(&mut request);
                std::future::pending().await
            }
            None => self.carry_out(&mut request),
        };
        let (status, body) = match answer {
            Some((status, body)) => (status, Body::from(body.to_string())),
            None => (200, self.watch(&request)),
        };
        self.lock().requests[request.number].status = Some(status);
        Ok(Response::builder().status(status).body(body).unwrap())
    }

    /// What the objects make of a request; `None` for a watch.
    fn carry_out(&self, request: &mut Request) -> Option<Answer> {
        if request.is_watch() {
            return None;
        }
        let (path, method) = (request.path.as_str(), &request.method);
        let failed = |status| Some(failure(status, method));
        let mut body = request.body.take();
        if paths::is_collection(path) {
            if *method == Method::GET {
                return Some(self.list(path, &request.query));
            }
            assert_eq!(method, Method::POST, "{path} is a collection");
            let path = format!("{path}/{}", self.name(&mut body));
            return if self.get(&path).is_some() { failed(409) } else { Some((201, self.put(&path, body))) };
        }
        let apply = request.content_type == "application/apply-patch+yaml";
        let Some(mut object) = self.get(path).or_else(|| apply.then(|| json!({}))) else {
            return failed(404);
        };
        let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
        let stale = version(&body) != version(&object);
        match method.as_str() {
            "GET" => Some((200, object)),
            "PUT" if stale => failed(409),
            "PUT" => Some((200, self.put(path, body))),
            // A patch without a resourceVersion applies to every version.
            "PATCH" if stale && !version(&body).is_null() => failed(409),
            "PATCH" => {
                merge(&mut object, &body, apply);
                Some((200, self.put(path, object)))
            }
            "DELETE" => {
                self.delete(path);
                Some((200, object))
            }
            _ => panic!("the fake does not know {}", request.line()),
        }
    }

    /// The name of a new object, which the fake generates where only its beginning is given.
    fn name(&self, object: &mut Value) -> String {
        let metadata = &mut object["metadata"];
        if let Some(prefix) = metadata["generateName"].as_str() {
            metadata["name"] = json!(format!("{prefix}{}", self.lock().revision));
        }
        metadata["name"].as_str().unwrap_or_default().to_owned()
    }

    fn list(&self, path: &str, query: &str) -> Answer {
        let state = self.lock();
        let listed = state.objects.iter().filter(|(object, _)| paths::lists(path, query, object));
        let items: Vec<&Value> = listed.map(|(_, object)| object).collect();
        let metadata = json!({"resourceVersion": state.revision.to_string()});
        (200, json!({"apiVersion": "v1", "kind": "List", "metadata": metadata, "items": items}))
    }

    fn watch(&self, request: &Request) -> Body {
        let version = request.query.split('&').find_map(|p| p.strip_prefix("resourceVersion="));
        let from: u64 = version.unwrap().parse().unwrap();
        let generation = self.lock().watch_generation;
        let (fake, changed, request) = (self.clone(), self.changed.subscribe(), request.clone());
        Body::from_stream(stream::unfold((changed, from), move |(mut changed, from)| {
            let (fake, request) = (fake.clone(), request.clone());
            async move {
                loop {
                    changed.borrow_and_update();
                    {
                        let state = fake.lock();
                        if state.watch_generation != generation {
                            return None;
                        }
                        let mut events = state.history.iter().filter(|_| !state.watches_silenced);
                        let next = events.find(|(revision, path, _)| {
                            *revision > from && paths::lists(&request.path, &request.query, path)
                        });
                        if let Some((revision, _, event)) = next {
                            let line = Ok::<_, io::Error>(format!("{event}\n"));
                            return Some((line, (changed, *revision)));
                        }
                    }
                    changed.changed().await.ok()?;
                }
            }
        }))
    }
}

fn failure(status: u16, method: &Method) -> Answer {
    let reason = match status {
        403 => "Forbidden",
        404 => "NotFound",
        409 if *method == Method::POST => "AlreadyExists",
        409 => "Conflict",
        422 => "Invalid",
        503 => "ServiceUnavailable",
        _ => "InternalError",
    };
    let body = json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "message": reason, "reason": reason,
        "code": status});
    (status, body)
}

/// Merges `patch` into `object` as a JSON merge patch. A server-side apply merges lists of named items by name as well.
fn merge(object: &mut Value, patch: &Value, apply: bool) {
    match (object, patch) {
        (Value::Object(fields), Value::Object(patch)) => {
            for (name, value) in patch {
                if value.is_null() {
                    fields.remove(name);
                } else {
                    let empty = if value.is_object() { json!({}) } else { Value::Null };
                    merge(fields.entry(name.as_str()).or_insert(empty), value, apply);
                }
            }
        }
        (Value::Array(items), Value::Array(patch))
            if apply && patch.iter().all(|item| item["name"].is_string()) =>
        {
            for item in patch {
                match items.iter_mut().find(|there| there["name"] == item["name"]) {
                    Some(there) => merge(there, item, apply),
                    None => items.push(item.clone()),
                }
            }
        }
        (object, patch) => *object = patch.clone(),
    }
}
