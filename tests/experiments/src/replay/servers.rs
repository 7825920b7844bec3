//! Emulated servers of the pods of one model, and their metrics pages.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use wva_cli::emulate::{Metrics, Timeline};
use wva_simulator::fleet::engine::Engine;

/// One emulated server, which runs until it is dropped.
pub(super) struct Server {
    pub(super) timeline: Arc<Timeline>,
    pub(super) metrics: Metrics,
    _running: JoinSet<()>,
}

impl Server {
    pub(super) fn start(model: &str, engine: Engine) -> anyhow::Result<Arc<Self>> {
        let timeline = Arc::new(Timeline::new(engine));
        let mut running = JoinSet::new();
        let runs = timeline.clone();
        running.spawn(async move { runs.run().await });
        Ok(Arc::new(Self { timeline, metrics: Metrics::new(model, &engine)?, _running: running }))
    }

    /// Requests that it has.
    pub(super) fn load(&self) -> usize {
        let reading = self.timeline.read();
        reading.running + reading.waiting
    }
}

type Serving = Arc<Mutex<BTreeMap<String, Arc<Server>>>>;

/// Servers by pod, each with a metrics page.
pub(super) struct Servers {
    pub(super) namespace: String,
    address: SocketAddr,
    pub(super) by_pod: Serving,
    _pages: JoinSet<()>,
}

impl Servers {
    pub(super) async fn start(namespace: &str) -> anyhow::Result<Self> {
        let listener =
            tokio::net::TcpListener::bind("127.0.0.1:0").await.context("cannot listen for scrapes")?;
        let address = listener.local_addr()?;
        let by_pod = Serving::default();
        let app = Router::new().route("/{pod}", get(page)).with_state(by_pod.clone());
        let mut pages = JoinSet::new();
        pages.spawn(async move {
            let _ = axum::serve(listener, app).await;
        });
        Ok(Self { namespace: namespace.to_owned(), address, by_pod, _pages: pages })
    }

    /// Scrape targets of all servers.
    pub(super) fn targets(&self) -> Value {
        let target = |pod: &String| {
            let labels =
                json!({"namespace": self.namespace, "pod": pod, "__metrics_path__": format!("/{pod}")});
            json!({"targets": [self.address.to_string()], "labels": labels})
        };
        self.by_pod.lock().keys().map(target).collect()
    }
}

async fn page(State(serving): State<Serving>, Path(pod): Path<String>) -> Response {
    let Some(server) = serving.lock().get(&pod).cloned() else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let page = server.metrics.page(&server.timeline.read());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], page).into_response()
}
