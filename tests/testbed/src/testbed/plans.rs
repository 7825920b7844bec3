//! Command lines of the control plane, for these versions. A comment says what fails without a flag, unless it is
//! obvious. Prometheus has its own module.

use std::path::Path;

use anyhow::Context as _;
use serde_json::json;

use super::data::Data;
use super::{NETWORK, Options};
use crate::components::{Plan, Ready};
use crate::pki::{self, CA};

/// Controllers that tests need, by the long names of `--controllers`. The API server of 1.30 finds the servers of an
/// APIService by Endpoints.
const CONTROLLERS: &str = "deployment-controller,replicaset-controller,statefulset-controller,\
    horizontal-pod-autoscaler-controller,namespace-controller,serviceaccount-controller,\
    serviceaccount-token-controller,root-ca-certificate-publisher-controller,garbage-collector-controller,\
    endpoints-controller,endpointslice-controller,disruption-controller,clusterrole-aggregation-controller,\
    resourceclaim-controller,resourcequota-controller";

pub(super) fn etcd(options: &Options, data: &Data, ports: &[u16]) -> Plan {
    let (client, peer) = (url(ports[0]), url(ports[1]));
    let mut args = vec![
        "--name=testbed".to_owned(),
        format!("--data-dir={}", data.path.join("etcd").display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=testbed={peer}"),
        "--log-level=warn".to_owned(),
    ];
    if !options.etcd_fsync {
        args.push("--unsafe-no-fsync".to_owned());
    }
    Plan { args, ready: Ready::Answers { url: format!("{client}/health"), auth: None } }
}

pub(super) fn apiserver(options: &Options, data: &Data, token: &str, etcd: u16, ports: &[u16]) -> Plan {
    let file = |name: &str| data.path.join(name).display().to_string();
    let args = [
        format!("--etcd-servers={}", url(etcd)),
        format!("--secure-port={}", ports[0]),
        "--bind-address=127.0.0.1".to_owned(),
        "--advertise-address=127.0.0.1".to_owned(),
        // The service "kubernetes" accepts no loopback address as an endpoint.
        "--endpoint-reconciler-type=none".to_owned(),
        format!("--cert-dir={}", file("apiserver")),
        format!("--tls-cert-file={}", file("apiserver.crt")),
        format!("--tls-private-key-file={}", file("apiserver.key")),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--service-account-key-file={}", file("service-account.pub")),
        format!("--service-account-signing-key-file={}", file("service-account.key")),
        "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        format!("--token-auth-file={}", file("tokens.csv")),
        "--authorization-mode=RBAC".to_owned(),
        // Nodes would keep a not-ready taint, since no component removes it.
        "--disable-admission-plugins=TaintNodesByCondition".to_owned(),
        // Resolves Services of type ExternalName by name, for programs on loopback.
        "--enable-aggregator-routing=false".to_owned(),
        format!("--requestheader-client-ca-file={}", file("front-proxy-ca.crt")),
        "--requestheader-username-headers=X-Remote-User".to_owned(),
        "--requestheader-group-headers=X-Remote-Group".to_owned(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
        "--requestheader-allowed-names=front-proxy-client".to_owned(),
        format!("--proxy-client-cert-file={}", file("front-proxy.crt")),
        format!("--proxy-client-key-file={}", file("front-proxy.key")),
    ];
    let args = args.into_iter().chain(gates(options)).collect();
    let url = format!("https://127.0.0.1:{}/readyz", ports[0]);
    Plan { args, ready: Ready::Answers { url, auth: Some((token.to_owned(), data.path.join(CA))) } }
}

pub(super) fn controller_manager(options: &Options, data: &Data, kubeconfig: &Path) -> Plan {
    let file = |name: &str| data.path.join(name).display().to_string();
    let args = [
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--controllers={CONTROLLERS}"),
        format!("--horizontal-pod-autoscaler-sync-period={}ms", options.hpa_sync.as_millis()),
        "--leader-elect=false".to_owned(),
        "--secure-port=0".to_owned(),
        "--use-service-account-credentials=true".to_owned(),
        format!("--service-account-private-key-file={}", file("service-account.key")),
        format!("--root-ca-file={}", file(CA)),
    ];
    Plan { args: args.into_iter().chain(calls(options)).chain(gates(options)).collect(), ready: Ready::Runs }
}

pub(super) fn scheduler(options: &Options, kubeconfig: &Path) -> Plan {
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    let args = [kubeconfig, "--leader-elect=false".to_owned(), "--secure-port=0".to_owned()];
    Plan { args: args.into_iter().chain(calls(options)).collect(), ready: Ready::Runs }
}

/// Validation and the HPA controller each require it.
fn gates(options: &Options) -> Vec<String> {
    if options.hpa_to_zero { vec!["--feature-gates=HPAScaleToZero=true".to_owned()] } else { Vec::new() }
}

/// The default limits of 20 to 50 calls per second make thousands of pods take minutes.
fn calls(options: &Options) -> Vec<String> {
    let often = ["--kube-api-qps=1000", "--kube-api-burst=2000"];
    if options.many_pods { often.map(str::to_owned).into() } else { Vec::new() }
}

/// Writes the egress configuration for Services, pods and nodes, and returns the API server's flag for it.
pub(super) fn write_egress(data: &Data) -> anyhow::Result<String> {
    let socket = data.path.join(NETWORK);
    let socket = socket.to_str().context("the data folder's path is not UTF-8")?;
    let transport = json!({"uds": {"udsName": socket}});
    let egress = json!({
        "apiVersion": "apiserver.k8s.io/v1beta1",
        "kind": "EgressSelectorConfiguration",
        "egressSelections": [
            {"name": "cluster", "connection": {"proxyProtocol": "HTTPConnect", "transport": transport}},
        ],
    });
    let file = data.write("egress.json", &egress.to_string())?;
    Ok(format!("--egress-selector-config-file={}", file.display()))
}

/// Writes the client certificate for webhooks, and returns the API server's flag for it.
pub(super) fn write_webhook_client(data: &Data) -> anyhow::Result<String> {
    pki::write_webhook_client(&data.path)?;
    let [cert, key] = ["webhook-client.crt", "webhook-client.key"].map(|file| data.path.join(file));
    // Applies to every webhook: a name would include the Service's port, which is not known yet.
    let user = json!({"name": "*", "user": {"client-certificate": cert, "client-key": key}});
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "users": [user]});
    let kubeconfig = data.write("webhook-client.kubeconfig", &kubeconfig.to_string())?;
    let version = "apiserver.config.k8s.io/v1";
    let plugin = |name: &str| {
        let kind = "WebhookAdmissionConfiguration";
        json!({"name": name, "configuration": {"apiVersion": version, "kind": kind, "kubeConfigFile": kubeconfig}})
    };
    let plugins = [plugin("ValidatingAdmissionWebhook"), plugin("MutatingAdmissionWebhook")];
    let admission = json!({"apiVersion": version, "kind": "AdmissionConfiguration", "plugins": plugins});
    let file = data.write("admission.json", &admission.to_string())?;
    Ok(format!("--admission-control-config-file={}", file.display()))
}

pub(super) fn kwok(options: &Options, kubeconfig: &Path, stages: &Path, ports: &[u16]) -> Plan {
    let mut args = vec![
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--config={}", stages.display()),
        "--manage-all-nodes=true".to_owned(),
        // Pods have loopback addresses, on which a fleet can answer.
        "--cidr=127.64.0.0/16".to_owned(),
        "--node-ip=127.0.0.1".to_owned(),
        // No node leases: nothing watches them, and kwok would need the lease of a node before it simulates pods.
        "--node-lease-duration-seconds=0".to_owned(),
        // kwok is also the kubelet of every node, to which the API server sends port forwards.
        format!("--node-port={}", ports[0]),
        format!("--server-address=127.0.0.1:{}", ports[0]),
    ];
    if let Some(pods) = options.kubelet {
        args.push(format!("--disregard-status-with-label-selector={}", pods.selector()));
    }
    Plan { args, ready: Ready::Answers { url: format!("{}/healthz", url(ports[0])), auth: None } }
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}
