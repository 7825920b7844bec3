//! Placeholders and look-alikes in texts of a variant.

use super::*;

#[test]
fn warns_about_placeholders_anywhere_in_the_spec() {
    for (change, field) in [
        (json!({"spec": {"modelID": "${MODEL_ID}"}}), "spec.modelID"),
        (json!({"spec": {"modelID": "org/{{ .Values.model }}"}}), "spec.modelID"),
        (json!({"spec": {"modelID": "<path:secret/data/models#qwen>"}}), "spec.modelID"),
        (json!({"spec": {"modelID": "$(MODEL_ID)"}}), "spec.modelID"),
        (json!({"spec": {"accelerator": "${GPU}"}}), "spec.accelerator"),
        (json!({"metadata": {"labels": {"team": "$TEAM"}}}), "metadata.labels.team"),
    ] {
        let object = va(change);
        let verdict = validate(&Facts::new(&object));
        let found: Vec<_> = verdict.violations.iter().filter(|v| v.code == "WVA-VA-066").collect();
        assert_eq!(found.iter().map(|v| v.field.as_str()).collect::<Vec<_>>(), [field], "{verdict:#?}");
        assert!(found[0].message.contains("looks like a placeholder that nothing replaced"));
        assert_eq!(found[0].severity, Severity::Warn);
    }
}

#[test]
fn names_look_alikes_in_a_model_name() {
    for (model, want) in [
        ("meta\u{200b}/llama", "contains U+200B (zero-width space); delete it"),
        ("meta/llama\u{a0}8b", "contains U+00A0 (no-break space); type a normal space instead"),
        ("\u{201c}meta/llama\u{201d}", "contains U+201C (curly double quote); type \" instead"),
    ] {
        let object = va(json!({"spec": {"modelID": model}}));
        let facts = Facts::new(&object);
        assert_warned(&facts, "WVA-VA-067");
        assert_eq!(find(&validate(&facts), "WVA-VA-067").message, want);
    }
    assert_absent(&Facts::new(&va(json!({"spec": {"modelID": "größe/模型-8b"}}))), "WVA-VA-067");
}
