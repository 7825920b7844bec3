use proptest::prelude::*;

use super::*;

/// `want`: the text before the located range on its line, and the range between `>` and `<`.
#[track_caller]
fn check(text: &str, field: &str, want: &str) {
    let root = documents(text).remove(0).unwrap();
    let at = locate_field(text, &root, field, Part::Value);
    let line = text[..at.start].rfind('\n').map_or(0, |n| n + 1);
    let found = format!("{}>{}<", &text[line..at.start], &text[at]);
    assert_eq!(found, want, "{field} in {text:?}");
}

const VARIANT: &str = "# a comment: kind
apiVersion: llmd.ai/v1alpha1
kind: VariantAutoscaling
metadata:
  name: a
  labels: {wva.llmd.ai/mode: x, b: y}
spec:
  scaleTargetRef:
    kind: Deployment # name: no
  variantCost: 10.0
  modelID:
  metrics:
  - external: {name: n}
  - external:
      metric: {selector: {}}
";

#[test]
fn locates_a_field_or_the_nearest_key() {
    for (field, want) in [
        ("spec.variantCost", "  variantCost: >10.0<"),
        ("spec.scaleTargetRef.kind", "    kind: >Deployment<"),
        ("spec.scaleTargetRef.name", "  >scaleTargetRef<"),
        ("spec.scaleTargetRef", "  >scaleTargetRef<"),
        ("spec.modelID", "  >modelID<"),
        ("spec.minReplicas", ">spec<"),
        ("spec", ">spec<"),
        ("status.x", "kind: >VariantAutoscaling<"),
        ("", "kind: >VariantAutoscaling<"),
        ("metadata.labels[wva.llmd.ai/mode]", "  labels: {wva.llmd.ai/mode: >x<"),
        ("metadata.labels.wva.llmd.ai/mode", "  labels: {wva.llmd.ai/mode: >x<"),
        ("metadata.labels[c]", "  >labels<"),
        ("spec.metrics[0].external.name", "  - external: {name: >n<"),
        ("spec.metrics[0].external.metric.selector", "  - >external<"),
        ("spec.metrics[1].external.metric.selector", "      metric: {selector: >{}<"),
        ("spec.metrics[1].external.metric.selector.matchLabels", "      metric: {>selector<"),
        ("spec.metrics[7].external", "  >metrics<"),
        ("spec..[", ">spec<"),
    ] {
        check(VARIANT, field, want);
    }
}

#[test]
fn locates_a_field_in_a_config_map_entry() {
    let text = "kind: ConfigMap\ndata:\n  default: |  # a comment: |\n    # kvCacheThreshold: 1\n    kvCacheThreshold: 1.5 # x\n    list: [a, {b: ü}]\n  config.yaml: |2-\n\n\n      A: 1\n\n      B: 2\n  folded: >\n    A: 1\n\n  number: |\n    A: .inf\n    B: 2\n  twice: |\n    C: 1\n    C: 2\n  quoted: \"A: 1\"\n  broken: |\n    a: 1\n    b: [\n";
    for (field, want) in [
        ("data.default.kvCacheThreshold", "    kvCacheThreshold: >1.5<"),
        ("data[default].kvCacheThreshold", "    kvCacheThreshold: >1.5<"),
        ("data.default.list[1].b", "    list: [a, {b: >ü<"),
        ("data.default.list", "    list: >[a, {b: ü}]<"),
        ("data.default", "  >default<"),
        ("data[config.yaml].B", "      B: >2<"),
        ("data.config.yaml.A", "      A: >1<"),
        ("data.folded.A", "    >A: 1<"),
        ("data.folded.B", "  >folded<"),
        ("data[number].B", "    >B: 2<"),
        ("data.twice", "    >C<"),
        ("data.quoted.A", "  quoted: >\"A: 1\"<"),
        ("data.broken", "    b: ><"),
        ("data.broken.a", "    >a: 1<"),
    ] {
        check(text, field, want);
        check(&text.replace('\n', "\r\n"), field, want);
    }
    check(text, "data.default.model_id", "  >default<");
}

#[test]
fn locates_an_alias_where_it_is_used() {
    let text = "kind: K\nx: &c 10.0\nbase: &b\n  d: 1\nspec:\n  cost: *c\n  <<: *b\n";
    check(text, "spec.cost", "  cost: >*c<");
    check(text, "spec.d", "  d: >1<");
}

proptest! {
    #[test]
    fn locates_every_field_within_one_line_of_the_text(
        text in proptest::string::string_regex("(kind: K\n|data:\n|  a: \\|\n|    b: ü\n|    \n|\n|  c: [1, {d: 2}]\n|  d: \"x: 1\"\n|  - e\r\n|#|[ -~]){0,12}").unwrap(),
        field in proptest::string::string_regex("(data|a|b|c|d|\\.|\\[0\\]|\\[1\\]|\\[|\\]|ü){0,8}").unwrap(),
    ) {
        for root in documents(&text).into_iter().flatten() {
            let at = locate_field(&text, &root, &field, Part::Value);
            let found = text.get(at);
            prop_assert!(found.is_some_and(|f| !f.contains('\n')));
        }
    }
}
