//! A fake of llm-d WVA: a Deployment with its image, whose pods never run, and a page of its series that Prometheus
//! scrapes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::routing::get;
use serde_json::json;
use wva_testbed::Testbed;

const NAMESPACE: &str = "original-system";
const NAME: &str = "original-controller-manager";

/// Targets by variant; `None` while it does not run.
type Page = Arc<Mutex<Option<BTreeMap<String, u32>>>>;

/// A running fake.
pub(crate) struct LlmdWva {
    page: Page,
    namespace: String,
    server: tokio::task::JoinHandle<()>,
}

impl LlmdWva {
    /// Starts it with a target of 1 for both variants.
    pub(crate) async fn start(testbed: &Testbed, namespace: &str) -> anyhow::Result<Self> {
        let container =
            json!({"name": "manager", "image": "ghcr.io/llm-d/llm-d-workload-variant-autoscaler:v0.8.0"});
        let metadata = json!({"name": NAME, "namespace": NAMESPACE,
            "labels": {"app.kubernetes.io/name": "workload-variant-autoscaler", "control-plane": "controller-manager"}});
        let namespaces = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        testbed.apply(&namespaces.to_string()).await?;
        testbed.apply(&super::deployment(&metadata, &container)).await?;
        let page: Page = Arc::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address: SocketAddr = listener.local_addr()?;
        let (shared, of) = (page.clone(), namespace.to_owned());
        let router = Router::new().route("/metrics", get(async move || render(&shared, &of)));
        let server = tokio::spawn(async move { drop(axum::serve(listener, router).await) });
        let labels =
            [("namespace", NAMESPACE), ("pod", "original-0")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        testbed.scrape("original", &address.to_string(), "/metrics", &BTreeMap::from(labels))?;
        let fake = Self { page, namespace: namespace.to_owned(), server };
        fake.publish();
        Ok(fake)
    }

    fn publish(&self) {
        let both = ["llama-h100", "llama-a100"].map(|name| (name.to_owned(), 1));
        *self.page.lock().unwrap_or_else(PoisonError::into_inner) = Some(BTreeMap::from(both));
    }

    /// Publishes this target.
    pub(crate) fn set_target(&self, variant: &str, replicas: u32) {
        let mut page = self.page.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(targets) = page.as_mut() {
            targets.insert(variant.to_owned(), replicas);
        }
        println!("# llm-d WVA: target {replicas} for {}/{variant}", self.namespace);
    }

    /// `kubectl scale --replicas=0`.
    pub(crate) async fn stop(&self, testbed: &Testbed) -> anyhow::Result<()> {
        scale(testbed, 0).await?;
        *self.page.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(())
    }

    /// `kubectl scale --replicas=1`.
    pub(crate) async fn start_again(&self, testbed: &Testbed) -> anyhow::Result<()> {
        scale(testbed, 1).await?;
        self.publish();
        Ok(())
    }
}

impl Drop for LlmdWva {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn scale(testbed: &Testbed, replicas: u32) -> anyhow::Result<()> {
    let replicas = format!("--replicas={replicas}");
    let args = ["scale", "deployment", NAME, "-n", NAMESPACE, &replicas];
    let out = testbed.kubectl(&args).await?.success()?;
    println!("$ kubectl {}\n{}", args.join(" "), out.trim_end());
    Ok(())
}

/// Series as releases of llm-d WVA wrote them.
fn render(page: &Page, namespace: &str) -> String {
    let page = page.lock().unwrap_or_else(PoisonError::into_inner);
    let mut text = String::new();
    for metric in ["wva_desired_replicas", "inferno_desired_replicas"] {
        for (variant, replicas) in page.iter().flatten() {
            // Writing to a String never fails.
            let _ = writeln!(
                text,
                "{metric}{{accelerator_type=\"H100\",namespace=\"{namespace}\",variant_name=\"{variant}\"}} {replicas}"
            );
        }
    }
    text
}
