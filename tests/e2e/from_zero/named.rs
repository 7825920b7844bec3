//! A picker that an entry of the scale-to-zero map names.

use anyhow::ensure;
use serde_json::Value;
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::picker::{FakePicker, PICKER_LABEL};

use crate::support::{Cluster, has_condition};

/// No InferencePool selects the model, and admission refuses a picker of another namespace.
pub(super) async fn a_picker_that_an_entry_names_needs_no_pool(cluster: &Cluster) -> anyhow::Result<()> {
    let ns = cluster.testbed.namespace("standalone").await?;
    let picker = FakePicker::start([127, 0, 0, 14]).await?;
    picker.pod(&cluster.testbed, &ns, "epp", "epp-0").await?;
    let model = VariantFixture::new(&ns, "model").replicas(0);
    cluster.testbed.apply(&model.all()).await?;
    let has_reason = |wanted: (&'static str, &'static str)| {
        move |va: &Value| has_condition(va, "OptimizationReady", wanted)
    };
    let is_asleep = has_reason(("False", "NotWakeable"));
    cluster.wait_for(&ns, "model", "say that nothing wakes it", is_asleep).await?;
    let map = |picker: &str| {
        format!(
            "apiVersion: v1
kind: ConfigMap
metadata: {{name: wva-model-scale-to-zero-config, namespace: {ns}}}
data:
  model: |
    model_id: {}
    endpoint_picker: {picker}
",
            model.model
        )
    };
    let outside = cluster.testbed.kubectl_with(&["apply", "-f", "-"], &map("epp.theirs")).await?;
    ensure!(
        !outside.ok && outside.stderr.contains("endpoint_picker") && outside.stderr.contains("own namespace"),
        "a picker of another namespace: {outside:?}"
    );
    cluster.testbed.apply(&map(&format!("http://{PICKER_LABEL}=epp"))).await?;
    let is_ready = has_reason(("True", "ScaleFromZeroMode"));
    cluster.wait_for(&ns, "model", "be ready to be woken", is_ready).await?;
    ensure!(cluster.replicas(&ns, "model").await? == 0, "nothing asked for it");
    picker.queue(&model.model, 1.0);
    cluster.wait_for_replicas(&ns, "model", 1).await
}
