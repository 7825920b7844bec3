//! Clients for the API server. Every request has a time limit with its retries; of a watch only the start.

mod proxy;

use std::path::PathBuf;
use std::time::Duration;

use axum::http::{Request, Response, StatusCode, Uri};
use kube::Client;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use tower::BoxError;

pub use proxy::is_loopback;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no answer from the API server within {0:?} (REST_CLIENT_TIMEOUT)")]
struct RequestTimeout(Duration);

/// No client could be made.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Neither a service account nor a kubeconfig is usable.
    #[error(
        "no API server configured: {0}\n  set --kubeconfig or KUBECONFIG to the kubeconfig of your cluster, or run in a pod with a service account"
    )]
    NotConfigured(InferError),
    /// The kubeconfig or the context of the command line is not usable.
    #[error("cannot use the kubeconfig")]
    Kubeconfig(#[source] InferError),
    /// The configuration is not usable.
    #[error("cannot create the client for the API server")]
    Unusable(#[source] kube::Error),
}

/// Message of kube's error, which repeats those of its sources.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct InferError(String);

/// Creates a client. `limit`: of a connection, and of a request with its retries.
///
/// # Errors
/// No usable service account or kubeconfig.
pub async fn client(limit: Option<Duration>) -> Result<Client, ClientError> {
    new_client(KubeOptions::default().config().await?, limit)
}

/// Choices of a command line, as kubectl's options of the same names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubeOptions {
    /// Path of the kubeconfig; default: `KUBECONFIG`, then `~/.kube/config`, then the service account of the pod.
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; default: its current context.
    pub context: Option<String>,
    /// User to impersonate.
    pub impersonate: Option<String>,
}

impl KubeOptions {
    async fn config(&self) -> Result<kube::Config, ClientError> {
        let choice = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let invalid = |error: KubeconfigError| ClientError::Kubeconfig(InferError(error.to_string()));
        let mut config = match (&self.kubeconfig, &self.context) {
            (Some(path), _) => {
                let file = Kubeconfig::read_from(path).map_err(invalid)?;
                kube::Config::from_custom_kubeconfig(file, &choice).await.map_err(invalid)?
            }
            (None, Some(_)) => kube::Config::from_kubeconfig(&choice).await.map_err(invalid)?,
            (None, None) => infer_config().await?,
        };
        let file = self.kubeconfig.as_ref().map_or_else(Kubeconfig::read, Kubeconfig::read_from);
        config.proxy_url = proxy::for_server(&config.cluster_url, file.ok(), self.context.as_deref());
        if self.impersonate.is_some() {
            config.auth_info.impersonate.clone_from(&self.impersonate);
        }
        Ok(config)
    }
}

/// Creates a client like [`client`], for a command line. Returns the URL of the API server too, which can contain a
/// password.
///
/// # Errors
/// As [`client`], or the chosen kubeconfig or context is not usable.
pub async fn client_with_url(
    options: &KubeOptions,
    limit: Duration,
) -> Result<(Client, String), ClientError> {
    let config = options.config().await?;
    let url = config.cluster_url.to_string().trim_end_matches('/').to_owned();
    Ok((new_client(config, Some(limit))?, url))
}

/// Creates a client like [`client`], without automatic retries.
///
/// # Errors
/// As [`client`].
pub async fn client_without_retries(limit: Duration) -> Result<Client, ClientError> {
    let mut config = KubeOptions::default().config().await?;
    config.default_retry = false;
    new_client(config, Some(limit))
}

async fn infer_config() -> Result<kube::Config, ClientError> {
    kube::Config::infer().await.map_err(|error| {
        // Outside of a pod, only the kubeconfig can be meant.
        let is_in_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
        let of_kubeconfig = std::error::Error::source(&error).filter(|_| !is_in_pod).map(ToString::to_string);
        ClientError::NotConfigured(InferError(of_kubeconfig.unwrap_or_else(|| error.to_string())))
    })
}

fn new_client(mut config: kube::Config, limit: Option<Duration>) -> Result<Client, ClientError> {
    if limit.is_some() {
        config.connect_timeout = limit;
    }
    let client = Client::try_from(config).map_err(ClientError::Unusable)?;
    Ok(limit.map_or_else(|| client.clone(), |limit| with_timeout(&client, limit)))
}

fn with_timeout(client: &Client, limit: Duration) -> Client {
    let inner = client.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let response = send(inner.clone(), request);
        async move {
            tokio::time::timeout(limit, response).await.map_err(|_| BoxError::from(RequestTimeout(limit)))?
        }
    });
    Client::new(service, client.default_namespace())
}

/// Reads the whole body, except of a watch and of an upgraded connection.
async fn send(client: Client, request: Request<Body>) -> Result<Response<Body>, BoxError> {
    let watch = is_watch(request.uri());
    let response = client.send(request).await?;
    if watch || response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return Ok(response);
    }
    let (head, body) = response.into_parts();
    Ok(Response::from_parts(head, Body::from(body.collect_bytes().await?)))
}

fn is_watch(uri: &Uri) -> bool {
    uri.query().is_some_and(|query| query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1")))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::api::{ListParams, PostParams, WatchParams};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    const LIMIT: Duration = Duration::from_millis(300);
    const LONG: Duration = Duration::from_secs(20);

    /// Client of an API server that answers every request with this text and then sends no more.
    async fn maps(answer: &'static str) -> Api<ConfigMap> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                tokio::spawn(async move {
                    let mut request = [0; 4096];
                    while stream.read(&mut request).await.is_ok_and(|n| n > 0) {
                        stream.write_all(answer.as_bytes()).await.unwrap();
                    }
                });
            }
        });
        let config = kube::Config::new(format!("http://{address}").parse().unwrap());
        Api::namespaced(new_client(config, Some(LIMIT)).unwrap(), "ns")
    }

    fn assert_timed_out<T: std::fmt::Debug>(result: kube::Result<T>) {
        let error = result.unwrap_err();
        let kube::Error::Service(source) = &error else { panic!("{error:?}") };
        assert_eq!(source.downcast_ref(), Some(&RequestTimeout(LIMIT)));
    }

    #[tokio::test]
    async fn request_times_out_wherever_the_answer_stops() {
        for answer in ["", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"] {
            let maps = maps(answer).await;
            let all = async {
                assert_timed_out(maps.get("a").await);
                assert_timed_out(maps.list(&ListParams::default()).await);
                assert_timed_out(maps.create(&PostParams::default(), &ConfigMap::default()).await);
            };
            tokio::time::timeout(LONG, all).await.expect("in time");
        }
    }

    #[tokio::test]
    async fn watch_must_start_in_time_and_then_stays_open() {
        use futures::StreamExt as _;
        let unanswered = maps("").await.watch(&WatchParams::default(), "0").await;
        assert_timed_out(unanswered.map(|_| ()));
        let without_events = maps("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
        let mut events = without_events.watch(&WatchParams::default(), "0").await.unwrap().boxed();
        let first = tokio::time::timeout(4 * LIMIT, events.next()).await;
        assert!(first.is_err(), "the watch ended: {first:?}");
    }

    #[test]
    fn recognises_a_watch_by_its_query() {
        for (query, want) in
            [("?limit=5&watch=true", true), ("?watch=1", true), ("?watchdog=true", false), ("", false)]
        {
            assert_eq!(is_watch(&format!("/api/v1/configmaps{query}").parse().unwrap()), want, "{query}");
        }
    }
}
