//! Responses of the fake: the reply of a rule, or the result of a request on its objects.

use std::io;

use axum::body::Body;
use futures::stream::{self, StreamExt};
use http::{Method, Response};
use serde_json::{Value, json};

use super::{FakeApi, Reply, Request, paths};

/// A response: status and body.
type Answer = (u16, Value);

impl FakeApi {
    pub(super) async fn answer(
        &self,
        client: String,
        request: http::Request<kube::client::Body>,
    ) -> io::Result<Response<Body>> {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await.map_err(io::Error::other)?;
        // Lets other tasks run between the read and the write of one task, so that races happen.
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
                self.apply(&mut request)
            }
            Some(Reply::Lost) => {
                self.apply(&mut request);
                std::future::pending().await
            }
            None => self.apply(&mut request),
        };
        let (status, body) = match answer {
            Some((status, body)) => (status, Body::from(body.to_string())),
            None => (200, self.watch(&request)),
        };
        self.lock().requests[request.number].status = Some(status);
        Ok(Response::builder().status(status).body(body).unwrap())
    }

    /// Applies a request to the objects; `None` for a watch.
    fn apply(&self, request: &mut Request) -> Option<Answer> {
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
        let is_stale = version(&body) != version(&object);
        match method.as_str() {
            "GET" => Some((200, object)),
            "PUT" if is_stale => failed(409),
            "PUT" => Some((200, self.put(path, body))),
            // A patch without a resourceVersion applies to every version.
            "PATCH" if is_stale && !version(&body).is_null() => failed(409),
            "PATCH" => {
                merge(&mut object, &body, apply);
                Some((200, self.put(path, object)))
            }
            "DELETE" => {
                self.delete(path);
                Some((200, object))
            }
            _ => panic!("the fake does not support {}", request.line()),
        }
    }

    /// Name of a new object; generated if only a prefix is set.
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
        let mut from: u64 = version.unwrap().parse().unwrap();
        let mut initial = Vec::new();
        if request.query.contains("sendInitialEvents=true") {
            (from, initial) = self.initial_events(request);
        }
        let generation = self.lock().watch_generation;
        let (fake, changed, request) = (self.clone(), self.changed.subscribe(), request.clone());
        let later = stream::unfold((changed, from), move |(mut changed, from)| {
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
        });
        Body::from_stream(stream::iter(initial).map(Ok).chain(later))
    }

    /// All objects as events, the bookmark that ends them, and the revision until which they are complete.
    fn initial_events(&self, request: &Request) -> (u64, Vec<String>) {
        let state = self.lock();
        let listed =
            state.objects.iter().filter(|(path, _)| paths::lists(&request.path, &request.query, path));
        let added = listed.map(|(_, object)| json!({"type": "ADDED", "object": object}));
        let metadata = json!({"resourceVersion": state.revision.to_string(),
            "annotations": {"k8s.io/initial-events-end": "true"}});
        let end = json!({"type": "BOOKMARK",
            "object": {"apiVersion": "v1", "kind": "Bookmark", "metadata": metadata}});
        (state.revision, added.chain([end]).map(|event| format!("{event}\n")).collect())
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

/// Merges `patch` into `object` as a JSON merge patch. A server-side apply also merges lists of named items by name.
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
                match items.iter_mut().find(|existing| existing["name"] == item["name"]) {
                    Some(existing) => merge(existing, item, apply),
                    None => items.push(item.clone()),
                }
            }
        }
        (object, patch) => *object = patch.clone(),
    }
}
