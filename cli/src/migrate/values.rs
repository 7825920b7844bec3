//! Values of the chart for maps that Helm renders: the main map and the saturation map.

use serde_json::{Map, Value, json};
use wva_crds::entries::{DEFAULT_ENTRY, SaturationEntry, read_text};
use wva_crds::settings::Value as Setting;
use wva_crds::settings::map::MapText;
use wva_rules::MapRole;

use super::global_maps::MovedMap;

/// Settings with a value of their own in the chart, which reads it in other places, too. The rest is in `wva.settings`.
const NAMED: [(&str, &str); 6] = [
    ("GLOBAL_OPT_INTERVAL", "/wva/reconcileInterval"),
    ("LOG_LEVEL", "/wva/logging/level"),
    ("PROMETHEUS_BASE_URL", "/wva/prometheus/baseURL"),
    ("WVA_LIMITED_MODE", "/wva/limitedMode"),
    ("WVA_NODE_SELECTOR", "/wva/gpuNodeSelector"),
    ("WVA_SCALE_TO_ZERO", "/wva/scaleToZero"),
];
/// The chart sets these itself and refuses them in `wva.settings`.
pub(super) const OF_THE_CHART: [&str; 24] = [
    "EPP_METRIC_READER_BEARER_TOKEN", "EPP_METRIC_READER_SERVICE_ACCOUNT", "EXTERNAL_METRICS_BIND_ADDRESS",
    "HEALTH_PROBE_BIND_ADDRESS", "LEADER_ELECT", "LEADER_ELECTION_ID", "METRICS_ADDR",
    "METRICS_BIND_ADDRESS", "METRICS_CERT_PATH", "METRICS_SECURE", "PROBE_ADDR",
    "SATURATION_CONFIG_MAP_NAME", "SERVICE_CLASS_CONFIG_MAP_NAME", "WATCH_NAMESPACE", "WEBHOOK_BIND_ADDRESS",
    "WEBHOOK_CERT_PATH", "WEBHOOK_CONFIGURATION", "WEBHOOK_SERVICE", "WVA_CERT_MODE",
    "WVA_DEBUG_BIND_ADDRESS", "WVA_INSTANCE_POLICY", "WVA_LIMITED_MODE", "WVA_WEBHOOK",
    "WVA_WEBHOOK_CLIENT_CA",
];

#[derive(Debug, Default)]
pub(super) struct ChartValues {
    /// Each map that the values come from, with one sentence per change.
    pub(super) sources: Vec<(String, Vec<String>)>,
    pub(super) values: Value,
}

impl ChartValues {
    pub(super) fn add(&mut self, map: &MovedMap<'_>) {
        let mut changes = map.changes.clone();
        let data = map.object["data"].as_object().cloned().unwrap_or_default();
        if map.role == MapRole::Main {
            self.add_settings(&MapText::from_data(&data), &mut changes);
        } else {
            self.add_entries(&data);
        }
        self.sources.push((map.place.clone(), changes));
    }

    fn add_entries(&mut self, data: &Map<String, Value>) {
        // Without an analyzer the chart's default would decide.
        let mut default = json!({"analyzerName": "percentage"});
        let mut overrides = Map::new();
        for (key, text) in data {
            let Some(mut fields) = fields(text) else { continue };
            if key == DEFAULT_ENTRY {
                for field in ["model_id", "namespace"] {
                    fields.remove(field);
                }
                if let Some(default) = default.as_object_mut() {
                    default.extend(fields);
                }
            } else {
                if let Some(model) = fields.remove("model_id") {
                    fields.insert("modelID".to_owned(), model);
                }
                overrides.insert(key.clone(), Value::Object(fields));
            }
        }
        set(&mut self.values, "/wva/capacityScaling/default", default);
        if !overrides.is_empty() {
            set(&mut self.values, "/wva/capacityScaling/overrides", Value::Object(overrides));
        }
    }

    fn add_settings(&mut self, map: &MapText, changes: &mut Vec<String>) {
        for key in &map.keys {
            // The rules name unknown keys, and another layout or spelling may win.
            let Some(setting) = key.setting.filter(|setting| map.get(setting.key) == Some(key)) else {
                continue;
            };
            let name = setting.key;
            let named = NAMED.iter().find(|(known, _)| *known == name).map(|(_, path)| *path);
            if named.is_none() && (OF_THE_CHART.contains(&name) || setting.secret || !setting.in_map) {
                changes.push(format!("without {name}: the chart sets it from other values"));
            } else if name == "PROMETHEUS_TLS_INSECURE_SKIP_VERIFY" {
                // The chart of llm-d WVA did not verify by default, so it was hardly a choice.
                changes.push(format!(
                    "without {name}: set wva.prometheus.tls.insecureSkipVerify for tests only"
                ));
            } else if named.is_none() && name.ends_with("_PATH") {
                changes.push(format!("without {name}: it names a file in the pods of llm-d WVA"));
            } else {
                let value = match setting.kind.parse(&key.text) {
                    Ok(Setting::Bool(value)) => json!(value),
                    _ => json!(key.text),
                };
                set(&mut self.values, named.unwrap_or(&format!("/wva/settings/{name}")), value);
            }
        }
    }
}

/// Fields of an entry under their present names.
fn fields(text: &Value) -> Option<Map<String, Value>> {
    let entry = read_text::<SaturationEntry>(text.as_str()?).ok()?;
    let Ok(Value::Object(mut fields)) = serde_json::to_value(&entry) else { return None };
    for (key, analyzer) in [("analyzerName", entry.analyzer_name), ("shadowAnalyzer", entry.shadow_analyzer)]
    {
        fields.extend(analyzer.map(|analyzer| (key.to_owned(), json!(analyzer.label()))));
    }
    Some(fields)
}

fn set(values: &mut Value, path: &str, value: Value) {
    let mut at = values;
    for key in path.split('/').filter(|key| !key.is_empty()) {
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[key];
    }
    *at = value;
}
