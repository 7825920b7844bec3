//! A fake Prometheus on a loopback socket.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use serde_json::{Value, json};

/// Reply of the fake to a query.
#[derive(Clone)]
pub enum FakeReply {
    /// A status and a body.
    Body(u16, String),
    /// Accepts the query and never answers.
    Hang,
    /// Starts an answer and never ends it.
    Trickle,
    /// Sends more than the client reads.
    Flood,
    /// Depends on the expression.
    By(Arc<dyn Fn(&str) -> FakeReply + Send + Sync>),
}

impl FakeReply {
    /// Depends on the expression.
    pub fn by(reply: impl Fn(&str) -> FakeReply + Send + Sync + 'static) -> Self {
        Self::By(Arc::new(reply))
    }

    /// Series, each as labels and value.
    pub fn series(series: impl IntoIterator<Item = (Value, impl ToString)>) -> Self {
        let rows = series
            .into_iter()
            .map(|(labels, value)| json!({"metric": labels, "value": [1_700_000_000.5, value.to_string()]}));
        Self::Body(200, vector(&rows.collect()))
    }

    /// An answer without series.
    pub fn no_series() -> Self {
        Self::Body(200, vector(&json!([])))
    }

    /// The reply to one expression.
    #[must_use]
    pub fn for_expression(&self, expression: &str) -> Self {
        match self {
            Self::By(reply) => reply(expression).for_expression(expression),
            other => other.clone(),
        }
    }
}

/// A query to the fake.
#[derive(Clone, Debug)]
pub struct Query {
    /// Header `host`.
    pub host: String,
    /// Header `authorization`.
    pub authorization: Option<String>,
    /// Expression.
    pub expression: String,
}

/// A fake Prometheus. It ends with the runtime of the test.
#[derive(Clone)]
pub struct FakePrometheus {
    address: SocketAddr,
    reply: Arc<Mutex<FakeReply>>,
    requests: Arc<Mutex<Vec<Query>>>,
    hanging: Arc<AtomicUsize>,
}

impl FakePrometheus {
    /// Listens on a loopback port.
    pub async fn start(reply: FakeReply) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (fake, router) = Self::at(listener.local_addr().unwrap(), reply);
        tokio::spawn(async move { axum::serve(listener, router).await });
        fake
    }

    /// A fake at the address of a listener, and the router to serve there.
    pub fn at(address: SocketAddr, reply: FakeReply) -> (Self, Router) {
        let reply = Arc::new(Mutex::new(reply));
        let fake = Self { address, reply, requests: Arc::default(), hanging: Arc::default() };
        let handler = fake.clone();
        let router = Router::new().fallback(move |headers: HeaderMap, body: String| {
            let fake = handler.clone();
            async move { fake.answer(&headers, &body).await }
        });
        (fake, router)
    }

    /// Replies to the next queries.
    pub fn set_reply(&self, reply: FakeReply) {
        *self.reply.lock().unwrap() = reply;
    }

    /// Number of queries.
    pub fn queries(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    /// Number of accepted queries without an answer.
    pub fn hanging(&self) -> usize {
        self.hanging.load(Ordering::SeqCst)
    }

    /// Its base URL.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The queries, in order.
    pub fn requests(&self) -> Vec<Query> {
        self.requests.lock().unwrap().clone()
    }

    /// Expressions of the queries, in order.
    pub fn expressions(&self) -> Vec<String> {
        self.requests.lock().unwrap().iter().map(|request| request.expression.clone()).collect()
    }

    async fn answer(&self, headers: &HeaderMap, body: &str) -> Response {
        let header = |name: &str| headers.get(name).map(|v| v.to_str().unwrap().to_owned());
        let mut form = url::form_urlencoded::parse(body.as_bytes());
        let expression = form.find(|(key, _)| key == "query").unwrap().1.into_owned();
        let reply = self.reply.lock().unwrap().for_expression(&expression);
        let (host, authorization) = (header("host").unwrap(), header("authorization"));
        self.requests.lock().unwrap().push(Query { host, authorization, expression });
        match reply {
            FakeReply::By(_) => unreachable!("it is the reply to one expression"),
            FakeReply::Body(status, text) => (StatusCode::from_u16(status).unwrap(), text).into_response(),
            FakeReply::Hang => {
                self.hanging.fetch_add(1, Ordering::SeqCst);
                std::future::pending().await
            }
            FakeReply::Trickle => {
                let start = futures::stream::iter([Ok::<_, std::io::Error>("{\"status\":")]);
                Body::from_stream(start.chain(futures::stream::pending())).into_response()
            }
            FakeReply::Flood => {
                let megabyte = " ".repeat(1 << 20);
                let flood = std::iter::repeat_with(move || Ok::<_, std::io::Error>(megabyte.clone())).take(8);
                Body::from_stream(futures::stream::iter(flood)).into_response()
            }
        }
    }
}

/// An answer with these series.
pub fn vector(series: &Value) -> String {
    json!({"status": "success", "data": {"resultType": "vector", "result": series}}).to_string()
}
