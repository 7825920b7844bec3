use proptest::prelude::*;
use serde_json::json;

use super::*;

fn read(text: &str) -> Result<Rc<Node>, Problem> {
    let mut all = documents(text);
    assert_eq!(all.len(), 1, "{text:?}: {all:?}");
    all.remove(0)
}

fn value(text: &str) -> Value {
    read(text).unwrap().to_value()
}

/// Checks the text at the key and at the value of an entry.
#[track_caller]
fn check_ranges(text: &str, path: &[&str], key: &str, value: &str) {
    let mut node = read(text).unwrap();
    let mut found = (0..0, 0..0);
    for step in path {
        let entry = node.entry(step).unwrap().clone();
        found = (entry.key_at, entry.at);
        node = entry.node;
    }
    assert_eq!((&text[found.0], &text[found.1]), (key, value), "{text:?}");
}

#[test]
fn knows_the_ranges_of_keys_and_values() {
    check_ranges("a: 1\nb:\n  c: \"x\" # c: y\n", &["b", "c"], "c", "\"x\"");
    check_ranges("# a: 0\na:   1   # one\n", &["a"], "a", "1");
    check_ranges("a: {b: {c: yes}, d: 1}\n", &["a", "b", "c"], "c", "yes");
    check_ranges("a: 1\r\nb:\r\n  c: x\r\n", &["b", "c"], "c", "x");
    check_ranges("{\n\t\"a\": {\n\t\t\"b\": [1]\n\t}\n}", &["a", "b"], "\"b\"", "[1]");
    check_ranges("ü: \"😀\"\nb: x\n", &["b"], "b", "x");
    check_ranges("a: !!str 10\n", &["a"], "a", "10");
    check_ranges("a:\nb: 1\n", &["a"], "a", "");
    check_ranges("a: 'it''s'\n", &["a"], "a", "'it''s'");
}

#[test]
fn locates_an_alias_at_its_use_its_content_at_its_definition() {
    let text = "x: &cost 10.0\nspec: &s\n  variantCost: *cost\nb: *s\n";
    check_ranges(text, &["spec", "variantCost"], "variantCost", "*cost");
    check_ranges(text, &["b"], "b", "*s");
    check_ranges(text, &["b", "variantCost"], "variantCost", "*cost");
    assert_eq!(value(text)["b"], json!({"variantCost": 10.0}));
}

/// The output of `kubectl label --local -o json` of 1.36.
#[test]
fn resolves_merge_keys_and_repeated_keys_like_kubectl() {
    for (text, want) in [
        ("b: &b {a: base, c: q}\nd:\n  a: x\n  <<: *b\n", json!({"a": "base", "c": "q"})),
        ("b: &b {a: base, c: q}\nd:\n  <<: *b\n  a: x\n", json!({"a": "x", "c": "q"})),
        ("b: &b {a: 1, c: q}\ne: &e {a: 2, e: q}\nd:\n  <<: [*b, *e]\n", json!({"a": 1, "c": "q", "e": "q"})),
        ("d: {a: 1, a: 2}\n", json!({"a": 2})),
        ("d: {on: 1, 0x10: 2, 2001-01-01: 3}\n", json!({"true": 1, "16": 2, "2001-01-01": 3})),
    ] {
        assert_eq!(value(text)["d"], want, "{text:?}");
    }
    let repeated = |text| read(text).unwrap().repeated_keys().len();
    assert_eq!(repeated("d: [{a: 1, a: 2}, {a: 1}]\n"), 1);
    assert_eq!(repeated("b: &b {a: 1}\nd: {<<: *b, a: 2}\n"), 0);
    check_ranges("b: &b {a: 1, c: q}\nd:\n  <<: *b\n  a: x\n", &["d", "c"], "c", "q");
}

#[test]
fn splits_documents_and_reads_those_after_a_broken_one() {
    let shape = |text: &str| -> Vec<String> {
        let all = documents(text).into_iter();
        all.map(|d| d.map_or_else(|p| format!("error at {}", p.at.start), |n| n.to_value().to_string()))
            .collect()
    };
    for (text, want) in [
        ("", &[][..]),
        ("# only a comment\n---\n---\n", &[]),
        ("a: 1\n---\n# Source: x.yaml\nb: 1\n", &[r#"{"a":1}"#, r#"{"b":1}"#]),
        ("--- # first\na: 1\n--- {b: 1}\n", &[r#"{"a":1}"#, r#"{"b":1}"#]),
        ("%YAML 1.1\n---\na: 1\n", &[r#"{"a":1}"#]),
        ("a: 1\n...\nb: 1\n", &[r#"{"a":1}"#, r#"{"b":1}"#]),
        ("a: 1\n---\nb: {\n---\nc: 1\n", &[r#"{"a":1}"#, "error at 12", r#"{"c":1}"#]),
        ("a: |\n  ---\n  x\n", &[r#"{"a":"---\nx\n"}"#]),
        ("{\"a\": 1}\n{\"b\": \"\\ud83d\\ude00 \\/\"}", &[r#"{"a":1}"#, r#"{"b":"😀 /"}"#]),
        ("{\"a\": 1,}", &[r#"{"a":1}"#]),
        ("{a: 1}\n---\n{b: 1}\n", &[r#"{"a":1}"#, r#"{"b":1}"#]),
    ] {
        assert_eq!(shape(text), want, "{text:?}");
    }
}

#[test]
fn reports_excessive_documents_with_a_position() {
    let laughs = (1..9).fold("a0: &a0 [x, x, x, x, x, x, x, x]\n".to_owned(), |text, n| {
        let alias = format!("*a{},", n - 1).repeat(9);
        format!("{text}a{n}: &a{n} [{alias}]\n")
    });
    let chain = (1..200).fold("- &a0 [x]\n".to_owned(), |text, n| format!("{text}- &a{n} [*a{}]\n", n - 1));
    let keys: Vec<String> = (0..9000).map(|n| format!("k{n}: 1")).collect();
    let copies = format!("- &a {{{}}}\n{}", keys.join(", "), "- {<<: *a}\n".repeat(200));
    for (text, part) in [
        (laughs, "aliases expanded"),
        (chain, "nested deeper"),
        (copies, "aliases expanded"),
        ("[".repeat(200) + &"]".repeat(200), "nested deeper"),
        ("a: &a [*a]\n".to_owned(), "contains it"),
        ("a: *none\n".to_owned(), "anchor"),
        ("? [a]\n: 1\n".to_owned(), "a key must not be a list"),
        ("~: 1\n".to_owned(), "must not be null"),
        ("a: .nan\n".to_owned(), "JSON does not have"),
        ("a: {<<: 1}\n".to_owned(), "a merge key"),
    ] {
        let problem = read(&text).unwrap_err();
        assert!(problem.message.contains(part), "{part}: {problem:?}");
        assert!(text.get(problem.at).is_some());
    }
}

fn assert_ranges_within(node: &Node, text: &str) {
    assert!(text.get(node.span.clone()).is_some(), "{:?}", node.span);
    match &node.content {
        Content::Scalar { .. } => {}
        Content::List(items) => items.iter().for_each(|i| {
            assert!(text.get(i.at.clone()).is_some());
            assert_ranges_within(&i.node, text);
        }),
        Content::Map(entries) => entries.iter().for_each(|e| {
            assert!(text.get(e.key_at.clone()).is_some() && text.get(e.at.clone()).is_some());
            assert_ranges_within(&e.node, text);
        }),
    }
}

proptest! {
    #[test]
    fn reads_any_text_with_ranges_within_it(
        text in proptest::string::string_regex("([a-c]: |- |  |\n|---\n|\\{|\\}|\\[|\\]|,|\"|'|\\||>|&a |\\*a|<<: |#|\t|\r\n|!!str |!|\\?|%|ü|😀|[ -~]|.){0,60}").unwrap()
    ) {
        for document in documents(&text) {
            match document {
                Ok(node) => {
                    assert_ranges_within(&node, &text);
                    node.to_value();
                }
                Err(problem) => prop_assert!(text.get(problem.at).is_some()),
            }
        }
    }

    #[test]
    fn reads_json_like_serde_json(value in any_json()) {
        for text in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
            prop_assert_eq!(read(&text).unwrap().to_value(), value.clone());
        }
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        proptest::string::string_regex("[ -~äü😀\n\t\"\\\\]{0,12}").unwrap().prop_map(Value::from),
    ];
    let inner = leaf.prop_recursive(4, 24, 5, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::btree_map("[ -~ü]{0,8}", inner, 0..5)
                .prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    });
    // The parser recognises JSON by its first brace.
    inner.prop_map(|v| json!({ "v": v }))
}
