//! The operator alone in a new namespace, and each values file of the chart, as upgrades of one release.

use anyhow::ensure;
use serde_json::Value;

use super::site::{MAIN_MAP, MANAGER, MODELS, NO_MODEL, NO_PROMETHEUS, Site};
use super::{Extent, Table};
use wva_testbed::Helm;
use wva_testbed::install::{RELEASE, SYSTEM};

/// A values file, and its expected results.
struct Profile {
    file: &'static str,
    /// Additional values.
    further: &'static [&'static str],
    replicas: usize,
    /// Address of Prometheus in the main map.
    prometheus: &'static str,
    /// Analyzer of the default entry.
    analyzer: &'static str,
    /// Stabilization windows of the HPA, up and down.
    windows: &'static str,
}

const NOWHERE: &str = "http://127.0.0.1:9";
const THANOS: &str = "https://thanos-querier.openshift-monitoring.svc.cluster.local:9091";
const STACK: &str = "http://kube-prometheus-stack-prometheus.monitoring.svc:9090";

impl Profile {
    const fn new(
        file: &'static str,
        (replicas, prometheus): (usize, &'static str),
        (analyzer, windows): (&'static str, &'static str),
    ) -> Self {
        Self { file, further: &[], replicas, prometheus, analyzer, windows }
    }

    /// Without a Prometheus, whose address the file leaves out.
    const fn without_prometheus(file: &'static str, replicas: usize, windows: &'static str) -> Self {
        let further = &["--set", NO_PROMETHEUS];
        Self { further, ..Self::new(file, (replicas, NOWHERE), ("throughput", windows)) }
    }
}

const PROFILES: [Profile; 5] = [
    Profile::new("values-kube-prometheus-stack.yaml", (2, STACK), ("throughput", "0/60")),
    Profile::new("values-openshift.yaml", (2, THANOS), ("throughput", "0/60")),
    Profile::new("values-llm-d-wva.yaml", (2, THANOS), ("\"\"", "240/240")),
    Profile::without_prometheus("values-dev.yaml", 2, "0/30"),
    Profile::without_prometheus("values-ha.yaml", 3, "0/60"),
];

/// Path of a values file of the chart.
pub(super) fn profile(file: &str) -> String {
    Helm::chart().join(file).to_string_lossy().into_owned()
}

pub(crate) async fn run(site: &Site, extent: Extent, table: &mut Table) -> anyhow::Result<()> {
    for &name in extent.helms() {
        let helm = Helm::new(&site.testbed, name).await?;
        table.step(&format!("{name}: the operator alone"), Box::pin(operator(site, &helm))).await;
        for profile in &PROFILES {
            let step = format!("{name}: {}", profile.file);
            table.step(&step, Box::pin(works(site, &helm, profile))).await;
        }
        table.step(&format!("{name}: uninstall"), Box::pin(uninstalled(site, &helm))).await;
    }
    Ok(())
}

/// Helm creates the namespace. Without a model the release has no variant, HPA or Service of one.
async fn operator(site: &Site, helm: &Helm) -> anyhow::Result<String> {
    site.kubectl(&["delete", "namespace", SYSTEM, "--timeout=150s"]).await?;
    let args = ["--create-namespace", "--set", NO_PROMETHEUS, "--set", NO_MODEL];
    site.helm(helm, &args).await?.success()?;
    site.controller_works().await?;
    let kinds = "variantautoscalings,horizontalpodautoscalers,services";
    let release = format!("app.kubernetes.io/instance={RELEASE}");
    let found = site.kubectl(&["-n", MODELS, "get", kinds, "-l", &release, "-o", "name"]).await?;
    ensure!(found.is_empty(), "objects of a model are there: {found}");
    site.kubectl(&["get", "crd", super::site::CRD]).await?;
    Ok("two replicas answer reviews, and no object of a model exists".to_owned())
}

async fn works(site: &Site, helm: &Helm, wanted: &Profile) -> anyhow::Result<String> {
    let file = profile(wanted.file);
    site.helm(helm, &[&["-f", &file][..], wanted.further].concat()).await?.success()?;
    site.replicas_work(wanted.replicas).await?;
    site.objects_are_stored().await?;
    let data = async |map: &str| -> anyhow::Result<Value> {
        let map = site.kubectl(&["-n", SYSTEM, "get", "configmap", map, "-o", "json"]).await?;
        Ok(serde_json::from_str::<Value>(&map)?["data"].clone())
    };
    let url = data(MAIN_MAP).await?["PROMETHEUS_BASE_URL"].clone();
    ensure!(url == wanted.prometheus, "Prometheus is {url}");
    let entry = data(&format!("{RELEASE}-wva-saturation-scaling-config")).await?["default"].clone();
    let analyzer = format!("analyzerName: {}\n", wanted.analyzer);
    ensure!(entry.as_str().is_some_and(|entry| entry.contains(&analyzer)), "the entry is {entry}");
    let path = "jsonpath={.spec.behavior.scaleUp.stabilizationWindowSeconds}/{.spec.behavior.scaleDown.stabilizationWindowSeconds}";
    let hpa = format!("{RELEASE}-hpa");
    let windows = site.kubectl(&["-n", MODELS, "get", "hpa", &hpa, "-o", path]).await?;
    ensure!(windows == wanted.windows, "the windows are {windows}");
    let pods = site.pods().await?;
    ensure!(pods.len() == wanted.replicas, "{MANAGER} has the pods {pods:?}");
    Ok(format!("{} replicas, windows {windows}, {}", wanted.replicas, analyzer.trim()))
}

async fn uninstalled(site: &Site, helm: &Helm) -> anyhow::Result<String> {
    site.uninstall(helm).await?;
    // The site created it with labels.
    site.kubectl(&["delete", "namespace", SYSTEM, "--timeout=150s"]).await?;
    site.namespaces().await?;
    site.leftovers().await?;
    Ok("nothing left but the CRD".to_owned())
}
