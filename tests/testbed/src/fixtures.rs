//! YAML of workloads, variants, HPAs and ConfigMaps, shared by tests, demo and bench.

use std::time::Duration;

use serde_json::{Value, json};
use wva_crds::names::{LOCAL_SATURATION_MAP_NAME, LOCAL_SCALE_TO_ZERO_MAP_NAME};

use crate::FleetConfig;

/// A ConfigMap.
pub fn config_map(namespace: &str, name: &str, data: &Value) -> String {
    format!(
        "apiVersion: v1
kind: ConfigMap
metadata: {{name: {name}, namespace: {namespace}}}
data: {data}
"
    )
}

/// Saturation ConfigMap of a namespace, with a default entry.
pub fn saturation_map(namespace: &str, entry: &str) -> String {
    config_map(namespace, LOCAL_SATURATION_MAP_NAME, &json!({"default": entry}))
}

/// Scale-to-zero ConfigMap of a namespace, for all its models.
pub fn scale_to_zero_map(namespace: &str, retention: Duration) -> String {
    config_map(namespace, LOCAL_SCALE_TO_ZERO_MAP_NAME, &json!({"default": scale_to_zero_entry(retention)}))
}

/// Entry that enables scale to zero after this retention period.
pub fn scale_to_zero_entry(retention: Duration) -> String {
    format!("enable_scale_to_zero: true\nretention_period: {}s\n", retention.as_secs())
}

/// A variant with this spec, as JSON: typed clients cannot express most violations.
pub fn variant(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling", "metadata": {"name": name}, "spec": spec})
}

/// A variant with a violation that the CRD does not detect: WVA-VA-017.
pub fn invalid_variant(name: &str) -> Value {
    let mut object = variant(name, &valid_spec(name));
    object["metadata"]["annotations"] = json!({"wva.llmd.ai/mode": "sometimes"});
    object
}

/// A valid spec with this target.
pub fn valid_spec(target: &str) -> Value {
    json!({"scaleTargetRef": {"name": target}, "modelID": "meta-llama/Llama-3.1-8B"})
}

/// One variant of a model: a Deployment on one type of GPU, its VariantAutoscaling and its HPA.
#[derive(Clone, Debug)]
pub struct VariantFixture {
    /// Name of all three objects.
    pub name: String,
    /// Namespace of all three.
    pub namespace: String,
    /// `spec.modelID`.
    pub model: String,
    pub cost: String,
    /// Accelerator label of the variant.
    pub accelerator: String,
    /// `nvidia.com/gpu.product` of the nodes it runs on.
    pub gpu_product: String,
    pub replicas: u32,
    /// `maxReplicas` of the HPA.
    pub max: u32,
    /// Port of the pods with the metrics: [`crate::Fleet::port`].
    pub port: Option<u16>,
}

/// Label of the pods of one model, by which the emulated fleet finds them.
pub const MODEL_LABEL: &str = "testbed.wva.llmd.ai/model";

impl VariantFixture {
    /// A variant with one replica on H100s at cost 10.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            model: "meta-llama/Llama-3.1-8B".to_owned(),
            cost: "10.0".to_owned(),
            accelerator: "H100".to_owned(),
            gpu_product: "NVIDIA-H100-80GB-HBM3".to_owned(),
            replicas: 1,
            max: 10,
            port: None,
        }
    }

    /// The same with the metrics of its pods at this port.
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// The same at another cost.
    pub fn cost(mut self, cost: &str) -> Self {
        cost.clone_into(&mut self.cost);
        self
    }

    /// The same with other replicas to begin with.
    pub fn replicas(mut self, replicas: u32) -> Self {
        self.replicas = replicas;
        self
    }

    /// The same on A100s.
    pub fn on_a100(mut self) -> Self {
        "A100".clone_into(&mut self.accelerator);
        "NVIDIA-A100-SXM4-80GB".clone_into(&mut self.gpu_product);
        self
    }

    pub fn deployment(&self) -> String {
        let Self { name, namespace, gpu_product, replicas, .. } = self;
        let ports =
            self.port.map(|port| format!("{{name: metrics, containerPort: {port}}}")).unwrap_or_default();
        format!(
            "apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}, {MODEL_LABEL}: served}}}}
    spec:
      terminationGracePeriodSeconds: 0
      nodeSelector: {{nvidia.com/gpu.product: {gpu_product}}}
      containers:
      - name: vllm
        image: vllm/vllm-openai
        ports: [{ports}]
        resources: {{limits: {{nvidia.com/gpu: 1}}}}
"
        )
    }

    pub fn variant(&self) -> String {
        let Self { name, namespace, model, cost, accelerator, .. } = self;
        format!(
            "apiVersion: llmd.ai/v1alpha1
kind: VariantAutoscaling
metadata:
  name: {name}
  namespace: {namespace}
  labels: {{inference.optimization/acceleratorName: {accelerator}}}
spec:
  scaleTargetRef: {{kind: Deployment, name: {name}}}
  modelID: {model}
  variantCost: \"{cost}\"
"
        )
    }

    /// HPA that follows the variant's target, in the form that users of llm-d WVA write.
    pub fn autoscaler(&self) -> String {
        let rules = json!({
            "stabilizationWindowSeconds": 0,
            "policies": [{"type": "Pods", "value": 10, "periodSeconds": 15}],
        });
        self.autoscaler_with(&json!({"scaleUp": rules, "scaleDown": rules}))
    }

    /// The same HPA with this `behavior`.
    pub fn autoscaler_with(&self, behavior: &Value) -> String {
        let Self { name, namespace, max, .. } = self;
        format!(
            "apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: {name}}}
  minReplicas: 1
  maxReplicas: {max}
  behavior: {behavior}
  metrics:
  - type: External
    external:
      metric:
        name: wva_desired_replicas
        selector: {{matchLabels: {{variant_name: {name}, exported_namespace: {namespace}}}}}
      target: {{type: AverageValue, averageValue: \"1\"}}
"
        )
    }

    /// Model servers of all variants of this model in the namespace, without load.
    pub fn fleet(&self) -> FleetConfig {
        FleetConfig::new(&self.namespace, &format!("{MODEL_LABEL}=served"), &self.model)
    }

    /// All three objects.
    pub fn all(&self) -> String {
        [self.deployment(), self.variant(), self.autoscaler()].join("---\n")
    }
}
