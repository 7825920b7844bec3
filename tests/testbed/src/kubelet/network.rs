//! The cluster's network as the API server sees it. It is told to reach Services and pods through a proxy (its egress
//! selector); this is that proxy, which plays kube-proxy: a Service's address leads to one of its ready endpoints, as
//! the endpoint slice controller has them, and a pod's address to its port on loopback.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use k8s_openapi::api::core::v1::{Service, ServicePort};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::ListParams;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::JoinSet;

use super::{CALL, Node};
use crate::accept::accept;
use crate::testbed::NETWORK;
use crate::{Testbed, within};

/// More connections than kube-apiserver opens.
const CONNECTIONS: usize = 1024;
/// More than a CONNECT with its headers.
const HEAD_BYTES: usize = 4096;
const CONNECT: Duration = Duration::from_secs(5);

/// The same network for programs that know HTTP proxies alone: what they send to this port of loopback arrives at the
/// socket. Dropping it ends it.
pub struct NetworkProxy {
    port: u16,
    _serving: JoinSet<()>,
}

impl NetworkProxy {
    /// Serves it on a testbed with a running [`crate::Kubelet`].
    pub async fn start(testbed: &Testbed) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("no port for a proxy")?;
        let (port, socket) = (listener.local_addr()?.port(), testbed.data().join(NETWORK));
        let mut serving = JoinSet::new();
        serving.spawn(accept(listener, CONNECTIONS, move |mut stream| {
            let socket = socket.clone();
            async move {
                // A client that loses its connection notices by itself.
                if let Ok(mut network) = UnixStream::connect(&socket).await {
                    let _ = copy_bidirectional(&mut stream, &mut network).await;
                }
            }
        }));
        Ok(Self { port, _serving: serving })
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

/// Takes connections of the API server. Dropping it ends them.
pub(super) async fn serve(listener: UnixListener, node: Arc<Node>) {
    accept(listener, CONNECTIONS, |stream| {
        let node = node.clone();
        // A client that loses its connection notices by itself.
        async move { lead(stream, &node).await.unwrap_or_default() }
    })
    .await;
}

async fn lead(mut stream: UnixStream, node: &Node) -> anyhow::Result<()> {
    let led = async {
        let target = within("reading a CONNECT", CONNECT, target(&mut stream)).await?;
        let address = resolve(node, &target).await?;
        within("connecting", CONNECT, TcpStream::connect(address.as_str())).await
    };
    match led.await {
        Ok(mut server) => {
            stream.write_all(b"HTTP/1.1 200 Connection Established\r\n\r\n").await?;
            copy_bidirectional(&mut stream, &mut server).await?;
        }
        Err(error) => {
            let reason = format!("{error:#}").replace(['\r', '\n'], " ");
            stream.write_all(format!("HTTP/1.1 503 {reason}\r\n\r\n").as_bytes()).await?;
        }
    }
    Ok(())
}

/// `HOST:PORT` of a CONNECT.
async fn target(stream: &mut UnixStream) -> anyhow::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        ensure!(head.len() < HEAD_BYTES, "no end of the request within {HEAD_BYTES} bytes");
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let mut words = head.split_whitespace();
    ensure!(words.next() == Some("CONNECT"), "no CONNECT: {head:?}");
    words.next().map(str::to_owned).context("a CONNECT without a target")
}

/// Where a target is on this machine.
async fn resolve(node: &Node, target: &str) -> anyhow::Result<String> {
    let (host, port) = target.rsplit_once(':').context("a target without a port")?;
    let port: u16 = port.parse().context("a target without a port")?;
    let Ok(ip) = host.parse::<Ipv4Addr>() else { return Ok(target.to_owned()) };
    if ip.is_loopback() {
        return Ok(target.to_owned());
    }
    let (pod, port) =
        if node.addresses.lock().contains_key(&ip) { (ip, port) } else { endpoint(node, ip, port).await? };
    Ok(format!("127.0.0.1:{}", node.local(pod, port)?))
}

/// A ready endpoint of the Service with this address: the pod's address and port, each in turn.
async fn endpoint(node: &Node, ip: Ipv4Addr, port: u16) -> anyhow::Result<(Ipv4Addr, u16)> {
    static TURN: AtomicUsize = AtomicUsize::new(0);
    let services = Api::<Service>::all(node.client.clone());
    let list = ListParams::default().fields(&format!("spec.clusterIP={ip}"));
    let service = within("looking for a Service", CALL, services.list(&list)).await?.items.pop();
    let service = service.with_context(|| format!("no Service has the address {ip}"))?;
    let name = service.metadata.name.unwrap_or_default();
    let namespace = service.metadata.namespace.unwrap_or_default();
    let ports = service.spec.and_then(|spec| spec.ports).unwrap_or_default();
    let declared = ports.iter().find(|one| one.port == i32::from(port));
    let declared = declared.with_context(|| format!("Service {namespace}/{name} has no port {port}"))?;
    let slices = Api::<EndpointSlice>::namespaced(node.client.clone(), &namespace);
    let of_service = ListParams::default().labels(&format!("kubernetes.io/service-name={name}"));
    let slices = within("listing endpoint slices", CALL, slices.list(&of_service)).await?;
    let ready: Vec<_> = slices.items.iter().flat_map(|slice| ready(slice, declared)).collect();
    if ready.is_empty() {
        bail!("Service {namespace}/{name} has no ready endpoint");
    }
    Ok(ready[TURN.fetch_add(1, Ordering::Relaxed) % ready.len()])
}

/// The ready endpoints of a slice for this port of the Service.
fn ready(slice: &EndpointSlice, of: &ServicePort) -> Vec<(Ipv4Addr, u16)> {
    let name = of.name.as_deref().unwrap_or_default();
    let mut ports = slice.ports.iter().flatten();
    let port = ports.find(|port| port.name.as_deref().unwrap_or_default() == name).and_then(|port| port.port);
    let Some(port) = port.and_then(|port| u16::try_from(port).ok()) else { return Vec::new() };
    let endpoints = slice.endpoints.iter().flatten();
    let ready = endpoints.filter(|endpoint| {
        endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true)
    });
    let addresses = ready.flat_map(|endpoint| &endpoint.addresses);
    addresses.filter_map(|address| Some((address.parse().ok()?, port))).collect()
}
