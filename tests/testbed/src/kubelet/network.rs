//! Proxy that replaces kube-proxy and the cluster's DNS. The API server uses it by its egress selector, containers by
//! `HTTP_PROXY`. A Service's address or name leads to one of its ready endpoints (`EndpointSlices`), a pod's address to
//! its loopback port, and an `ExternalName` Service to the target port at its name.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use k8s_openapi::api::core::v1::{Service, ServicePort};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::Api;
use kube::api::ListParams;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::JoinSet;

use super::{CALL, Node};
use crate::accept::accept;
use crate::testbed::NETWORK;
use crate::{Testbed, within};

/// Above the number of connections of kube-apiserver.
const CONNECTIONS: usize = 1024;
/// Above the size of a CONNECT with its headers.
const HEAD_BYTES: usize = 4096;
const CONNECT: Duration = Duration::from_secs(5);

/// The same network for programs that only support HTTP proxies: forwards this loopback port to the socket. Drop it
/// to stop.
pub struct NetworkProxy {
    port: u16,
    _serving: JoinSet<()>,
}

impl NetworkProxy {
    /// Starts on a testbed with a running [`crate::Kubelet`].
    pub async fn start(testbed: &Testbed) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("no port for a proxy")?;
        let (port, socket) = (listener.local_addr()?.port(), testbed.data().join(NETWORK));
        let mut serving = JoinSet::new();
        serving.spawn(accept(listener, CONNECTIONS, move |mut stream| {
            let socket = socket.clone();
            async move {
                // A client notices a lost connection by itself.
                if let Ok(mut network) = UnixStream::connect(&socket).await {
                    let _ = copy_bidirectional(&mut stream, &mut network).await;
                }
            }
        }));
        Ok(Self { port, _serving: serving })
    }

    /// URL of the proxy.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

/// Accepts connections of the API server. Drop it to stop.
pub(super) async fn serve(listener: UnixListener, node: Arc<Node>) {
    accept(listener, CONNECTIONS, |stream| {
        let node = node.clone();
        // A client notices a lost connection by itself.
        async move { lead(stream, &node).await.unwrap_or_default() }
    })
    .await;
}

/// Proxy of one pod. Drop it to stop.
pub(super) struct Proxy {
    port: u16,
    // Ends its task when it is dropped.
    _running: JoinSet<()>,
}

impl Proxy {
    /// Starts the proxy for a pod of this namespace, which completes short names.
    pub(super) async fn start(node: &Arc<Node>, namespace: String) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let node = node.clone();
        let mut running = JoinSet::new();
        running.spawn(accept(listener, CONNECTIONS, move |stream| {
            let (node, namespace) = (node.clone(), namespace.clone());
            async move { forward(stream, &node, &namespace).await.unwrap_or_default() }
        }));
        Ok(Self { port, _running: running })
    }

    /// Loopback address of the proxy.
    pub(super) fn port(&self) -> u16 {
        self.port
    }
}

/// Forwards a connection to the server that its first request names: a proxy client keeps one connection per server.
async fn forward(mut stream: TcpStream, node: &Node, namespace: &str) -> anyhow::Result<()> {
    let led = async {
        let head = within("reading a request", CONNECT, head(&mut stream)).await?;
        let line = String::from_utf8_lossy(&head).into_owned();
        let url = line.split(' ').nth(1).context("a request without a URL")?;
        let url = reqwest::Url::parse(url).context("a proxy request without an absolute URL")?;
        let host = url.host_str().context("a URL without a host")?;
        let target = named(node, namespace, host, url.port_or_known_default().unwrap_or(80)).await?;
        let mut server = within("connecting", CONNECT, TcpStream::connect(target.as_str())).await?;
        server.write_all(&head).await?;
        anyhow::Ok(server)
    };
    match led.await {
        Ok(mut server) => {
            copy_bidirectional(&mut stream, &mut server).await?;
        }
        Err(error) => refuse(&mut stream, &error).await?,
    }
    Ok(())
}

/// Local address of a cluster host: an address, or `SERVICE`, `SERVICE.NAMESPACE` and so on.
async fn named(node: &Node, namespace: &str, host: &str, port: u16) -> anyhow::Result<String> {
    if host.parse::<Ipv4Addr>().is_ok() {
        return resolve(node, &format!("{host}:{port}")).await;
    }
    let mut labels = host.split('.');
    let name = labels.next().unwrap_or_default();
    let services = Api::<Service>::namespaced(node.client.clone(), labels.next().unwrap_or(namespace));
    let service = within("reading a Service", CALL, services.get(name)).await?;
    let spec = service.spec.clone().unwrap_or_default();
    let Some(external) = spec.external_name else {
        let (pod, port) = endpoint(node, &service, port).await?;
        return Ok(format!("127.0.0.1:{}", node.local(pod, port)?));
    };
    let mut ports = spec.ports.into_iter().flatten();
    let declared = ports.find(|one| one.port == i32::from(port)).and_then(|one| one.target_port);
    let Some(IntOrString::Int(target)) = declared else { bail!("Service {host} has no port {port}") };
    Ok(format!("{external}:{target}"))
}

async fn refuse(stream: &mut (impl AsyncWrite + Unpin), error: &anyhow::Error) -> anyhow::Result<()> {
    let reason = format!("{error:#}").replace(['\r', '\n'], " ");
    Ok(stream.write_all(format!("HTTP/1.1 503 {reason}\r\ncontent-length: 0\r\n\r\n").as_bytes()).await?)
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
        Err(error) => refuse(&mut stream, &error).await?,
    }
    Ok(())
}

/// Head of a request, including its empty line.
async fn head(stream: &mut (impl AsyncRead + Unpin)) -> anyhow::Result<Vec<u8>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        ensure!(head.len() < HEAD_BYTES, "no end of the request within {HEAD_BYTES} bytes");
        head.push(stream.read_u8().await?);
    }
    Ok(head)
}

/// `HOST:PORT` of a CONNECT.
async fn target(stream: &mut UnixStream) -> anyhow::Result<String> {
    let head = String::from_utf8_lossy(&head(stream).await?).into_owned();
    let mut words = head.split_whitespace();
    ensure!(words.next() == Some("CONNECT"), "no CONNECT: {head:?}");
    words.next().map(str::to_owned).context("a CONNECT without a target")
}

/// Local address of a target.
async fn resolve(node: &Node, target: &str) -> anyhow::Result<String> {
    let (host, port) = target.rsplit_once(':').context("a target without a port")?;
    let port: u16 = port.parse().context("a target without a port")?;
    let Ok(ip) = host.parse::<Ipv4Addr>() else { return Ok(target.to_owned()) };
    if ip.is_loopback() {
        return Ok(target.to_owned());
    }
    let (pod, port) = if node.addresses.lock().contains_key(&ip) {
        (ip, port)
    } else {
        endpoint(node, &at(node, ip).await?, port).await?
    };
    Ok(format!("127.0.0.1:{}", node.local(pod, port)?))
}

/// Service with this address. The API server of 1.30 selects none by it.
async fn at(node: &Node, ip: Ipv4Addr) -> anyhow::Result<Service> {
    let services = Api::<Service>::all(node.client.clone());
    let all = within("looking for a Service", CALL, services.list(&ListParams::default())).await?;
    let ip = ip.to_string();
    let has_address =
        |service: &Service| service.spec.as_ref().is_some_and(|spec| spec.cluster_ip.as_deref() == Some(&ip));
    all.items.into_iter().find(has_address).with_context(|| format!("no Service has the address {ip}"))
}

/// Address and port of a ready endpoint of a Service, round robin.
async fn endpoint(node: &Node, service: &Service, port: u16) -> anyhow::Result<(Ipv4Addr, u16)> {
    static TURN: AtomicUsize = AtomicUsize::new(0);
    let name = service.metadata.name.clone().unwrap_or_default();
    let namespace = service.metadata.namespace.clone().unwrap_or_default();
    let ports = service.spec.clone().and_then(|spec| spec.ports).unwrap_or_default();
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

/// Ready endpoints of a slice for this port of the Service.
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
