//! Entries and texts that were copied: placeholders, look-alikes, entries in one file, fields as keys, `binaryData`.

use super::*;

#[test]
fn each_entry_needs_its_own_key() {
    let form = [("WVA-CM-020", "data[config.yaml]")];
    let both = "each entry needs its own key: move default and qwen to data";
    for text in [
        "default:\n  kvCacheThreshold: 0.8\nqwen:\n  model_id: qwen\n",
        "default: |\n  kvCacheThreshold: 0.8\nqwen: |\n  model_id: qwen\n",
        "default: {}\nqwen: {modelID: qwen}\n",
    ] {
        let message = created(SATURATION, &[("config.yaml", text)], &form);
        assert!(message.contains(both), "{message}");
    }
    let list = created(SATURATION, &[("config.yaml", "- model_id: qwen\n- model_id: llama\n")], &form);
    assert!(list.contains("a list of 2; each entry needs its own key"), "{list}");
    let zero = created(ZERO, &[("config.yaml", "default:\n  retention_period: 5m\n")], &form);
    assert!(zero.contains("needs its own key: move default to data"), "{zero}");
    let classes = "premium.yaml:\n  name: Premium\n  priority: 1\n  data: []\n";
    let message = created(CLASSES, &[("config.yaml", classes)], &form);
    assert!(message.contains("needs its own key: move premium.yaml to data"), "{message}");
}

#[test]
fn a_field_is_not_a_key() {
    for (role, key, text, want) in [
        (SATURATION, "kvCacheThreshold", "0.8", "kvCacheThreshold is a field: put it in the entry default"),
        (SATURATION, "kv_cache_threshold", "0.8", "kvCacheThreshold is a field: put it in the entry default"),
        (SATURATION, "model_id", "qwen", "model_id is a field: put it in the entry of its model"),
        (ZERO, "retention_period", "10m", "retention_period is a field: put it in the entry default"),
        (CLASSES, "priority", "1", "priority is a field: put it in the entry of its class"),
    ] {
        let field = format!("data.{key}");
        let message = created(role, &[(key, text)], &[("WVA-CM-020", &field)]);
        assert!(message.contains(want), "{message}");
    }
    created(SATURATION, &[("hold", "model_id: m\nhold: 5m")], &[]);
}

#[test]
fn placeholders_of_entries_cause_warnings() {
    for (role, text, field) in [
        (SATURATION, "model_id: ${MODEL_ID}", "data.a.model_id"),
        (SATURATION, "model_id: m\nnamespace: $(NAMESPACE)", "data.a.namespace"),
        (ZERO, "model_id: <path:secret/data/models#qwen>", "data.a.model_id"),
        (
            CLASSES,
            "name: c\npriority: 1\ndata: [{model: \"{{ .Values.m }}\", ttftSlo: 1}]",
            "data.a.data[0].model",
        ),
    ] {
        created(role, &[("a", text)], &[("WVA-CM-067", field)]);
    }
    let unquoted = map(&[("a", "model_id: {{ .Values.model }}")]);
    let verdict = validate_map(&map_facts(&unquoted, SATURATION));
    assert!(verdict.violations.iter().any(|v| v.code == "WVA-CM-067"), "{verdict:#?}");
}

#[test]
fn placeholders_of_the_main_map_cause_warnings() {
    let main = (MapRole::Main, MapScope::Global);
    let codes = |data: Value| {
        let map = json!({"metadata": {"name": "m", "namespace": "ns"}, "data": data});
        let verdict = validate_map(&map_facts(&map, main));
        assert!(!format!("{verdict:?}").contains("TOKEN}"), "{verdict:?}");
        verdict
            .violations
            .iter()
            .filter(|v| v.code == "WVA-CM-067")
            .map(|v| v.field.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(codes(json!({"PROMETHEUS_BASE_URL": "${PROMETHEUS}"})), ["data.PROMETHEUS_BASE_URL"]);
    assert_eq!(codes(json!({"PROMETHEUS_BEARER_TOKEN": "${TOKEN}"})), ["data.PROMETHEUS_BEARER_TOKEN"]);
    assert_eq!(codes(json!({"PROMETHEUS_BEARER_TOKEN": "a${TOKEN}b"})), [""; 0], "may be the token");
    let nested = codes(json!({"config.yaml": "PROMETHEUS_BASE_URL: http://$(HOST):9090"}));
    assert_eq!(nested, ["data[config.yaml].PROMETHEUS_BASE_URL"]);
    assert_eq!(codes(json!({"PROMETHEUS_BASE_URL": "https://prometheus:9090"})), [""; 0]);
}

#[test]
fn binary_data_is_denied_unless_it_was_stored() {
    let with = |data: Value, binary: Value| json!({"metadata": {"name": "m", "namespace": "ns"}, "data": data, "binaryData": binary});
    let binary = json!({"qwen": "bW9kZWxfaWQ6IHEKIyD8"});
    let (old, new) = (with(json!({}), binary.clone()), with(json!({"default": ""}), binary));
    let denied = check(&map_facts(&old, SATURATION), &[("WVA-CM-008", "binaryData.qwen")]);
    let want = "byte 0xfc in line 2 is not UTF-8, so wva does not read it; save the file as UTF-8";
    assert!(denied.message().contains(want), "{denied:#?}");
    let kept = validate_map(&update(&old, &new));
    assert!(!kept.is_denied() && kept.warnings.len() == 1, "{kept:#?}");
    let repaired = with(json!({"qwen": "model_id: q"}), json!({}));
    assert_eq!(validate_map(&update(&old, &repaired)).violations, []);
    assert!(validate_map(&update(&repaired, &old)).is_denied(), "moved to binaryData");
    let unread = map_facts(&old, (MapRole::Main, MapScope::Unread));
    assert!(validate_map(&unread).violations.is_empty());
}
