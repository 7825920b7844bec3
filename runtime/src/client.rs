//! The clients for the API server. A request ends in time, whatever the API server does; a watch has to begin in time,
//! and stays open for as long as it and the API server have agreed.

use std::time::Duration;

use axum::http::{Request, Response, StatusCode, Uri};
use kube::Client;
use kube::client::Body;
use tower::BoxError;

/// A request that had no answer in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no answer from the API server within {0:?} (REST_CLIENT_TIMEOUT)")]
struct Unanswered(Duration);

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Neither a service account nor a kubeconfig can be used.
    #[error("no way to the API server: run in a pod with a service account, or set KUBECONFIG")]
    NotConfigured(#[source] InferError),
    /// The configuration names something that cannot be used.
    #[error("cannot make the client for the API server")]
    Unusable(#[source] kube::Error),
}

/// The text of kube's error, which repeats those of its sources: they are left out.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct InferError(String);

/// A client for the API server. Where a limit is given, that is the longest time for a connection, and for a request
/// with its retries.
///
/// # Errors
/// Without a service account or a kubeconfig, or with one that cannot be used.
pub async fn client(limit: Option<Duration>) -> Result<Client, ClientError> {
    made(configured().await?, limit)
}

/// The same with the URL of the API server, which can hold a password.
///
/// # Errors
/// As [`client`].
pub async fn client_with_url(limit: Duration) -> Result<(Client, String), ClientError> {
    let config = configured().await?;
    let url = config.cluster_url.to_string().trim_end_matches('/').to_owned();
    Ok((made(config, Some(limit))?, url))
}

/// The same for calls whose sender decides whether they are sent again.
///
/// # Errors
/// As [`client`].
pub async fn client_without_retries(limit: Duration) -> Result<Client, ClientError> {
    let mut config = configured().await?;
    config.default_retry = false;
    made(config, Some(limit))
}

async fn configured() -> Result<kube::Config, ClientError> {
    kube::Config::infer().await.map_err(|error| ClientError::NotConfigured(InferError(error.to_string())))
}

fn made(mut config: kube::Config, limit: Option<Duration>) -> Result<Client, ClientError> {
    if limit.is_some() {
        config.connect_timeout = limit;
    }
    let client = Client::try_from(config).map_err(ClientError::Unusable)?;
    Ok(limit.map_or_else(|| client.clone(), |limit| in_time(&client, limit)))
}

/// Wraps a client, so that it also bounds what it tries again.
fn in_time(client: &Client, limit: Duration) -> Client {
    let inner = client.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let answer = answer(inner.clone(), request);
        async move { tokio::time::timeout(limit, answer).await.map_err(|_| BoxError::from(Unanswered(limit)))? }
    });
    Client::new(service, client.default_namespace())
}

/// The whole answer; of a watch, and of a connection that is handed over, its beginning.
async fn answer(client: Client, request: Request<Body>) -> Result<Response<Body>, BoxError> {
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

    /// The ConfigMaps of an API server that answers every request with this much, and then says nothing.
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
        Api::namespaced(made(config, Some(LIMIT)).unwrap(), "ns")
    }

    fn ends_for_want_of_time<T: std::fmt::Debug>(result: kube::Result<T>) {
        let error = result.unwrap_err();
        let kube::Error::Service(source) = &error else { panic!("{error:?}") };
        assert_eq!(source.downcast_ref(), Some(&Unanswered(LIMIT)));
    }

    #[tokio::test]
    async fn a_request_ends_in_time_wherever_the_answer_stops() {
        for answer in ["", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"] {
            let maps = maps(answer).await;
            let all = async {
                ends_for_want_of_time(maps.get("a").await);
                ends_for_want_of_time(maps.list(&ListParams::default()).await);
                ends_for_want_of_time(maps.create(&PostParams::default(), &ConfigMap::default()).await);
            };
            tokio::time::timeout(LONG, all).await.expect("in time");
        }
    }

    #[tokio::test]
    async fn a_watch_begins_in_time_and_stays_open() {
        use futures::StreamExt as _;
        let silent = maps("").await;
        let begun = silent.watch(&WatchParams::default(), "0").await;
        ends_for_want_of_time(begun.map(|_| ()));
        let quiet = maps("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
        let mut events = quiet.watch(&WatchParams::default(), "0").await.unwrap().boxed();
        let first = tokio::time::timeout(4 * LIMIT, events.next()).await;
        assert!(first.is_err(), "it ended: {first:?}");
    }

    #[test]
    fn a_watch_is_known_by_its_query() {
        for (query, is) in
            [("?limit=5&watch=true", true), ("?watch=1", true), ("?watchdog=true", false), ("", false)]
        {
            assert_eq!(is_watch(&format!("/api/v1/configmaps{query}").parse().unwrap()), is, "{query}");
        }
    }
}
