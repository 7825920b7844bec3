//! Real Envoys: the gateway, which has a picker choose the pod of each request, and a proxy that serves the metrics of a
//! picker over HTTPS. The configuration of the gateway is that of the inference extension's own end-to-end tests.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};
use wva_testbed::install::get;
use wva_testbed::{Process, free_port};

use super::epp::Epp;
use super::{RouterTestbed, wait_until_serving};

/// Header by which requests of one tenant share a queue.
const TENANT: &str = "x-gateway-inference-fairness-id";
/// Limit of a request, with a cold start on a busy machine.
const ANSWER: Duration = Duration::from_secs(90);
/// How long a client waits that gives up. The picker sees the request by then.
const GIVE_UP: Duration = Duration::from_millis(500);

/// A running Envoy that takes requests for models.
pub(super) struct Gateway {
    _process: Process,
    url: String,
    client: reqwest::Client,
}

/// Answer to a request for a model.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: String,
}

impl Gateway {
    /// Starts an Envoy that asks this picker.
    pub(super) async fn start(
        testbed: &RouterTestbed,
        namespace: &str,
        picker: &Epp,
    ) -> anyhow::Result<Self> {
        let port = free_port()?;
        let to_pods = json!({"cluster": "pods", "timeout": "60s"});
        let listener = listener(port, &to_pods, vec![ask_picker()], None);
        let clusters = [pods(), picker_cluster(picker.grpc(), &testbed.certificate.join("ca.crt"))];
        let config = json!({"static_resources": {"listeners": [listener], "clusters": clusters}});
        let process = launch(testbed, &format!("envoy-{namespace}"), config).await?;
        let client = reqwest::Client::builder().no_proxy().timeout(ANSWER).build()?;
        Ok(Self { _process: process, url: format!("http://127.0.0.1:{port}/v1/completions"), client })
    }

    /// Sends a request with this model name.
    pub(super) async fn send(&self, model: &str, tenant: Option<&str>) -> anyhow::Result<Answer> {
        let request = self.request(model);
        let request = tenant.iter().fold(request, |request, tenant| request.header(TENANT, *tenant));
        let answer = request.send().await.context("Envoy did not answer")?;
        let status = answer.status().as_u16();
        Ok(Answer { status, body: answer.text().await? })
    }

    /// Sends a request, and closes the connection before there is an answer.
    pub(super) async fn give_up(&self, model: &str) -> anyhow::Result<()> {
        match self.request(model).timeout(GIVE_UP).send().await {
            Err(error) if error.is_timeout() => Ok(()),
            other => bail!("the request did not wait: {other:?}"),
        }
    }

    fn request(&self, model: &str) -> reqwest::RequestBuilder {
        let body = json!({"model": model, "prompt": "Why?", "max_tokens": 16});
        self.client.post(&self.url).json(&body)
    }
}

/// A running Envoy in front of the metrics of a picker.
pub(super) struct HttpsProxy {
    _process: Process,
}

impl HttpsProxy {
    /// Serves the metrics of a picker over HTTPS at this port, with `tls.crt` and `tls.key` of this folder.
    pub(super) async fn start(
        testbed: &RouterTestbed,
        port: u16,
        certificate: &Path,
        picker: &Epp,
    ) -> anyhow::Result<Self> {
        let listener = listener(port, &json!({"cluster": "metrics"}), Vec::new(), Some(certificate));
        let cluster = json!({
            "name": "metrics", "type": "STATIC", "connect_timeout": "2s",
            "load_assignment": endpoint("metrics", picker.metrics()),
        });
        let config = json!({"static_resources": {"listeners": [listener], "clusters": [cluster]}});
        Ok(Self { _process: launch(testbed, "envoy-https", config).await? })
    }
}

/// Starts an Envoy and waits until it is live.
async fn launch(testbed: &RouterTestbed, name: &str, mut config: Value) -> anyhow::Result<Process> {
    let control_plane = &testbed.cluster.testbed;
    let admin = free_port()?;
    config["admin"] = json!({"address": address(admin)});
    let file = control_plane.data().join(format!("{name}.json"));
    std::fs::write(&file, config.to_string()).with_context(|| format!("cannot write {}", file.display()))?;
    let file = file.to_str().context("the path of the configuration is not UTF-8")?;
    // Hot restarts share memory between the Envoys of a machine.
    let args = ["-c", file, "--disable-hot-restart", "--concurrency", "1", "--log-level", "warning"];
    let log = control_plane.logs().join(format!("{name}.log"));
    let process = Process::spawn(name, &testbed.envoy, &args, &[], &log)?;
    let ready = format!("http://127.0.0.1:{admin}/ready");
    wait_until_serving(&process, async || {
        let answer = get(&ready).await?;
        ensure!(answer.0 == 200, "{answer:?}");
        Ok(())
    })
    .await?;
    Ok(process)
}

/// A listener that sends all requests to one cluster, over TLS if there is a certificate.
fn listener(port: u16, route: &Value, mut filters: Vec<Value>, certificate: Option<&Path>) -> Value {
    filters.push(filter("router", &kind("filters.http.router.v3.Router", json!({}))));
    let routes = json!([{"match": {"prefix": "/"}, "route": route}]);
    let manager = json!({
        "stat_prefix": "http",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]},
        "http_filters": filters,
    });
    let manager = kind("filters.network.http_connection_manager.v3.HttpConnectionManager", manager);
    let name = "envoy.filters.network.http_connection_manager";
    let mut chain = json!({"filters": [{"name": name, "typed_config": manager}]});
    if let Some(folder) = certificate {
        let file = |name: &str| json!({"filename": folder.join(name)});
        let pair = json!({"certificate_chain": file("tls.crt"), "private_key": file("tls.key")});
        let context = json!({"common_tls_context": {"tls_certificates": [pair]}});
        chain["transport_socket"] = tls("DownstreamTlsContext", context);
    }
    json!({"name": "http", "address": address(port), "filter_chains": [chain]})
}

/// Filter that asks the picker. It streams both bodies, so a request waits there as long as it must.
fn ask_picker() -> Value {
    let external = json!({
        "grpc_service": {"envoy_grpc": {"cluster_name": "picker"}},
        "processing_mode": {
            "request_header_mode": "SEND",
            "request_body_mode": "FULL_DUPLEX_STREAMED",
            "request_trailer_mode": "SEND",
            "response_header_mode": "SEND",
            "response_body_mode": "FULL_DUPLEX_STREAMED",
            "response_trailer_mode": "SEND",
        },
        "message_timeout": "600s",
    });
    filter("ext_proc", &kind("filters.http.ext_proc.v3.ExternalProcessor", external))
}

/// The pod that the picker has chosen.
fn pods() -> Value {
    json!({
        "name": "pods",
        "type": "ORIGINAL_DST",
        "lb_policy": "CLUSTER_PROVIDED",
        "connect_timeout": "2s",
        "original_dst_lb_config": {
            "use_http_header": true,
            "http_header_name": "x-gateway-destination-endpoint",
        },
    })
}

/// The picker, over TLS with this CA.
fn picker_cluster(port: u16, ca: &Path) -> Value {
    let validation = json!({"trusted_ca": {"filename": ca}});
    let context = json!({"common_tls_context": {"alpn_protocols": ["h2"], "validation_context": validation}});
    let http2 = json!({"explicit_http_config": {"http2_protocol_options": {}}});
    let protocol = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
    json!({
        "name": "picker",
        "type": "STATIC",
        "connect_timeout": "2s",
        "transport_socket": tls("UpstreamTlsContext", context),
        "typed_extension_protocol_options": {
            protocol: kind("upstreams.http.v3.HttpProtocolOptions", http2),
        },
        "load_assignment": endpoint("picker", port),
    })
}

fn tls(context: &str, config: Value) -> Value {
    let config = kind(&format!("transport_sockets.tls.v3.{context}"), config);
    json!({"name": "envoy.transport_sockets.tls", "typed_config": config})
}

fn filter(name: &str, config: &Value) -> Value {
    json!({"name": format!("envoy.filters.http.{name}"), "typed_config": config})
}

/// This configuration with its type.
fn kind(name: &str, mut config: Value) -> Value {
    config["@type"] = json!(format!("type.googleapis.com/envoy.extensions.{name}"));
    config
}

fn endpoint(cluster: &str, port: u16) -> Value {
    let endpoints = json!([{"lb_endpoints": [{"endpoint": {"address": address(port)}}]}]);
    json!({"cluster_name": cluster, "endpoints": endpoints})
}

fn address(port: u16) -> Value {
    json!({"socket_address": {"address": "127.0.0.1", "port_value": port}})
}
