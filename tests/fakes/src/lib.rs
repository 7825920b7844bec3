//! A fake Kubernetes API server for unit tests: a [`kube::Client`] on objects in memory.
//!
//! It implements resourceVersions, conflicts and watches, for tests on one thread. It does not validate, default or
//! authorize, and it has no types: an object is stored under its path, a subresource such as `scale` as a separate
//! object. [`FakeApi::set_rule`] replaces responses; [`FakeApi::requests`] lists all requests.
#![expect(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    reason = "only tests use this crate, and a panic fails the test"
)]

mod folder;
mod paths;
pub mod prometheus;
pub mod reviews;
mod server;
pub mod tls;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;

pub use folder::TempFolder;
pub use http::Method;

/// A recorded request.
#[derive(Clone, Debug)]
pub struct Request {
    /// Number of earlier requests.
    pub number: usize,
    /// Name of the client (see [`FakeApi::client_named`]).
    pub client: String,
    /// HTTP method.
    pub method: Method,
    /// Path without the query.
    pub path: String,
    /// Percent-encoded query; can be empty.
    pub query: String,
    /// Content type, which distinguishes kinds of patches; can be empty.
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

/// Effect of a rule on a request.
#[derive(Clone, Debug)]
pub enum Reply {
    /// A failure with this HTTP status.
    Failure(u16),
    /// This status and body.
    Json(u16, Value),
    /// Apply the request after this time.
    Delayed(Duration),
    /// Apply the request without a response.
    Lost,
    /// Neither apply the request nor respond.
    Hang,
    /// Reset the connection.
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

impl FakeApi {
    /// An API server without objects.
    pub fn new() -> Self {
        Self::default()
    }

    /// A fake with a rule.
    pub fn with_rule(rule: impl Fn(&Request) -> Option<Reply> + Send + Sync + 'static) -> Self {
        let fake = Self::default();
        fake.set_rule(rule);
        fake
    }

    /// A client of this server.
    pub fn client(&self) -> kube::Client {
        self.client_named("")
    }

    /// A client whose requests have this name.
    pub fn client_named(&self, name: &str) -> kube::Client {
        let (fake, name) = (self.clone(), name.to_owned());
        let service = tower::service_fn(move |request| {
            let (fake, name) = (fake.clone(), name.clone());
            async move { fake.answer(name, request).await }
        });
        kube::Client::new(service, "default")
    }

    /// Replaces the rule for all further requests. If it returns `None`, the request is applied. The request is already
    /// recorded, and the rule may use the fake.
    pub fn set_rule(&self, rule: impl Fn(&Request) -> Option<Reply> + Send + Sync + 'static) {
        self.lock().rule = Some(Arc::new(rule));
    }

    /// Replies to every request in this way.
    pub fn reply_to_all(&self, reply: Reply) {
        self.set_rule(move |_| Some(reply.clone()));
    }

    /// Removes the rule.
    pub fn clear_rule(&self) {
        self.lock().rule = None;
    }

    /// Open and later watches send no events from now on.
    pub fn silence_watches(&self) {
        self.lock().watches_silenced = true;
    }

    /// Ends all open watches.
    pub fn end_watches(&self) {
        self.lock().watch_generation += 1;
        self.changed.send_replace(());
    }

    /// Every request so far, in order of arrival.
    pub fn requests(&self) -> Vec<Request> {
        self.lock().requests.clone()
    }

    /// Number of requests that match.
    pub fn count(&self, matches: impl Fn(&Request) -> bool) -> usize {
        self.lock().requests.iter().filter(|request| matches(request)).count()
    }

    /// The object at `path`.
    pub fn get(&self, path: &str) -> Option<Value> {
        self.lock().objects.get(path).cloned()
    }

    /// The object at `path`. Panics if it does not exist.
    pub fn object(&self, path: &str) -> Value {
        self.get(path).unwrap_or_else(|| panic!("{path} does not exist"))
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

    /// Deletes the object at `path`. Panics if it does not exist.
    pub fn delete(&self, path: &str) {
        let mut state = self.lock();
        let mut object = state.objects.remove(path).unwrap();
        self.record(&mut state, path, "DELETED", &mut object);
    }

    /// Waits until the object at `path` matches. Panics after `limit`.
    pub async fn wait_until(&self, limit: Duration, path: &str, matches: impl Fn(&Value) -> bool) {
        let mut changed = self.changed.subscribe();
        let waiting = async {
            while !self.get(path).is_some_and(|object| matches(&object)) {
                changed.changed().await.unwrap();
            }
        };
        let result = tokio::time::timeout(limit, waiting).await;
        assert!(result.is_ok(), "{path} does not match after {limit:?}: {:#?}", self.get(path));
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
}
