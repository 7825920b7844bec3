//! Replaces kube-proxy and `EndpointSlices`: the port of the Service. Each new connection goes to a random ready
//! replica. Readiness is polled; a terminating replica stays in rotation for a configurable time after SIGTERM. Open
//! connections never move.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use parking_lot::Mutex;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::accept::accept;
use crate::components::http_client;

/// Above the number of connections of kube-apiserver to a webhook.
const CONNECTIONS: usize = 1024;
const CONNECT: Duration = Duration::from_secs(2);
/// Readiness poll interval: shorter than a kubelet's, to make rolling restarts faster.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
const POLL_TIMEOUT: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_millis(10);

/// Port of the Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServicePort {
    Admission,
    ExternalMetrics,
}

/// Addresses of one replica.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub(crate) admission: u16,
    pub(crate) external_metrics: Option<u16>,
    /// Address of the health endpoint.
    pub(crate) health: String,
}

#[derive(Debug)]
struct EndpointState {
    endpoint: Endpoint,
    ready: bool,
    /// Time after which a terminating replica gets no new connections.
    gone: Option<Instant>,
}

/// Counts of connections by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connections {
    /// Forwarded to a replica.
    pub led: u64,
    /// No replica was ready.
    pub nowhere: u64,
    /// The replica did not accept it.
    pub refused: u64,
}

#[derive(Debug, Default)]
struct Shared {
    endpoints: Mutex<BTreeMap<String, EndpointState>>,
    led: AtomicU64,
    nowhere: AtomicU64,
    refused: AtomicU64,
    longest_pause_ms: AtomicU64,
}

/// The balancer. Drop it to end all connections through it.
#[derive(Debug)]
pub(crate) struct Balancer {
    shared: Arc<Shared>,
    admission: u16,
    external_metrics: u16,
    propagation: Duration,
    // Ends its tasks when it is dropped.
    _running: JoinSet<()>,
}

impl Balancer {
    /// Starts without endpoints. A terminating replica leaves the rotation after `propagation`.
    pub(crate) async fn start(propagation: Duration) -> anyhow::Result<Self> {
        let shared = Arc::new(Shared::default());
        let listen = async || {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
            let listener = listener.context("cannot listen on loopback")?;
            anyhow::Ok((listener.local_addr()?.port(), listener))
        };
        let ((admission, reviews), (external_metrics, metrics)) = (listen().await?, listen().await?);
        let mut running = JoinSet::new();
        for (listener, port_kind) in
            [(reviews, ServicePort::Admission), (metrics, ServicePort::ExternalMetrics)]
        {
            let shared = shared.clone();
            running
                .spawn(accept(listener, CONNECTIONS, move |client| lead(client, shared.clone(), port_kind)));
        }
        running.spawn(poll(shared.clone()));
        running.spawn(measure_pauses(shared.clone()));
        Ok(Self { shared, admission, external_metrics, propagation, _running: running })
    }

    pub(crate) fn port(&self, port_kind: ServicePort) -> u16 {
        match port_kind {
            ServicePort::Admission => self.admission,
            ServicePort::ExternalMetrics => self.external_metrics,
        }
    }

    /// Adds a new or restarted pod. It gets connections once it is ready.
    pub(crate) fn add(&self, pod: &str, endpoint: Endpoint) {
        self.shared
            .endpoints
            .lock()
            .insert(pod.to_owned(), EndpointState { endpoint, ready: false, gone: None });
    }

    /// Marks a pod as terminating: its readiness no longer counts, and it leaves the rotation after `propagation`.
    pub(crate) fn leaves(&self, pod: &str) {
        if let Some(state) = self.shared.endpoints.lock().get_mut(pod) {
            state.gone.get_or_insert(Instant::now() + self.propagation);
        }
    }

    /// Removes a pod.
    pub(crate) fn remove(&self, pod: &str) {
        self.shared.endpoints.lock().remove(pod);
    }

    /// Longest time without forwarding, caused by a lack of CPU.
    pub(crate) fn longest_pause(&self) -> Duration {
        Duration::from_millis(self.shared.longest_pause_ms.load(Ordering::Relaxed))
    }

    pub(crate) fn connections(&self) -> Connections {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Shared { led, nowhere, refused, .. } = &*self.shared;
        Connections { led: read(led), nowhere: read(nowhere), refused: read(refused) }
    }
}

impl Shared {
    /// Port of a random endpoint in rotation.
    fn choose(&self, port_kind: ServicePort) -> Option<u16> {
        let now = Instant::now();
        let endpoints = self.endpoints.lock();
        let led = endpoints.values().filter(|state| state.ready && state.gone.is_none_or(|gone| now < gone));
        let ports: Vec<u16> = led
            .filter_map(|state| match port_kind {
                ServicePort::Admission => Some(state.endpoint.admission),
                ServicePort::ExternalMetrics => state.endpoint.external_metrics,
            })
            .collect();
        // Each hasher of the standard library has its own random keys.
        let random = usize::try_from(RandomState::new().build_hasher().finish() >> 33).unwrap_or_default();
        ports.get(random % ports.len().max(1)).copied()
    }
}

/// Forwards one connection to a replica until either end closes it. Resets it if no replica accepts it.
async fn lead(mut client: TcpStream, shared: Arc<Shared>, port_kind: ServicePort) {
    let count = |what: &AtomicU64| what.fetch_add(1, Ordering::Relaxed);
    let Some(port) = shared.choose(port_kind) else {
        count(&shared.nowhere);
        let _ = client.set_zero_linger();
        return;
    };
    let connected = timeout(CONNECT, TcpStream::connect((Ipv4Addr::LOCALHOST, port))).await;
    let Ok(Ok(mut replica)) = connected else {
        count(&shared.refused);
        let _ = client.set_zero_linger();
        return;
    };
    count(&shared.led);
    let _ = client.set_nodelay(true).and_then(|()| replica.set_nodelay(true));
    let _ = copy_bidirectional(&mut client, &mut replica).await;
}

/// Measures the pauses of this process: unlike a kernel's proxy, it needs CPU time.
async fn measure_pauses(shared: Arc<Shared>) {
    loop {
        let before = Instant::now();
        sleep(TICK).await;
        let pause = before.elapsed().saturating_sub(TICK).as_millis();
        shared.longest_pause_ms.fetch_max(u64::try_from(pause).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

/// Polls the readiness of all endpoints.
async fn poll(shared: Arc<Shared>) {
    let Ok(client) = http_client(None) else { return };
    loop {
        let looked: Vec<(String, String)> = {
            let endpoints = shared.endpoints.lock();
            let stay = endpoints.iter().filter(|(_, state)| state.gone.is_none());
            stay.map(|(pod, state)| (pod.clone(), state.endpoint.health.clone())).collect()
        };
        let mut looks = JoinSet::new();
        for (pod, health) in looked {
            let request = client.get(format!("http://{health}/readyz")).timeout(POLL_TIMEOUT);
            looks.spawn(async move {
                let ready = request.send().await.is_ok_and(|answer| answer.status().is_success());
                (pod, health, ready)
            });
        }
        while let Some(looked) = looks.join_next().await {
            let Ok((pod, health, ready)) = looked else { continue };
            let mut endpoints = shared.endpoints.lock();
            // Since the request, the pod may be terminating, or another may have its name.
            let state = endpoints.get_mut(&pod).filter(|state| state.endpoint.health == health);
            if let Some(state) = state.filter(|state| state.gone.is_none()) {
                state.ready = ready;
            }
        }
        sleep(POLL_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn with_one_ready(propagation: Duration) -> anyhow::Result<Balancer> {
        let balancer = Balancer::start(propagation).await?;
        let endpoint = Endpoint { admission: 7, external_metrics: None, health: "127.0.0.1:9".to_owned() };
        balancer.add("wva-0", endpoint);
        assert_eq!(balancer.shared.choose(ServicePort::Admission), None, "it is not ready yet");
        balancer.shared.endpoints.lock().values_mut().for_each(|state| state.ready = true);
        assert_eq!(balancer.shared.choose(ServicePort::Admission), Some(7));
        assert_eq!(balancer.shared.choose(ServicePort::ExternalMetrics), None);
        Ok(balancer)
    }

    #[tokio::test]
    async fn terminating_replica_stays_in_rotation_until_propagated() -> anyhow::Result<()> {
        for (propagation, chosen) in [(Duration::from_hours(1), Some(7)), (Duration::ZERO, None)] {
            let balancer = with_one_ready(propagation).await?;
            balancer.leaves("wva-0");
            assert_eq!(balancer.shared.choose(ServicePort::Admission), chosen, "{propagation:?}");
        }
        Ok(())
    }

    #[tokio::test]
    async fn unaccepted_connection_is_closed_and_counted() -> anyhow::Result<()> {
        let balancer = Balancer::start(Duration::ZERO).await?;
        let mut client =
            TcpStream::connect((Ipv4Addr::LOCALHOST, balancer.port(ServicePort::Admission))).await?;
        let read = tokio::io::AsyncReadExt::read_u8(&mut client);
        assert!(timeout(Duration::from_secs(10), read).await?.is_err());
        assert_eq!(balancer.connections(), Connections { led: 0, nowhere: 1, refused: 0 });
        Ok(())
    }
}
