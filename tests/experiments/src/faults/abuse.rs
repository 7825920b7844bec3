//! Kinds of abuse: what is sent, by how many clients, and how many of them connect at a time.

use std::sync::Arc;

use serde_json::{Value, json};

use super::client::ClientAction::{self, Drip, Hold, NoHandshake, Post, Reset};

pub(super) const VALIDATE: &str = "/validate-llmd-ai-v1alpha1-variantautoscaling";
pub(super) const MUTATE: &str = "/mutate-llmd-ai-v1alpha1-variantautoscaling";
pub(super) const CONFIG_MAP: &str = "/validate-v1-configmap";

/// One kind of abuse.
#[derive(Clone, Debug)]
pub(super) struct Abuse {
    pub(super) name: &'static str,
    pub(super) action: ClientAction,
    /// Total number of clients.
    pub(super) clients: usize,
    /// Number of clients that connect at a time. A client that sends bodies counts until it has its answers.
    pub(super) at_once: usize,
}

/// The review of an object.
pub(super) fn review(group: &str, kind: &str, namespace: &str, object: &Value) -> Value {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "operation": "CREATE", "namespace": namespace,
        "kind": {"group": group, "version": "v1", "kind": kind}, "userInfo": {"username": "faults"}, "object": object}})
}

/// A valid variant.
pub(super) fn valid() -> Value {
    let object = json!({"apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling",
        "metadata": {"name": "valid", "namespace": "default"},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "valid"}, "modelID": "m"}});
    review("llmd.ai", "VariantAutoscaling", "default", &object)
}

fn config_map(namespace: &str, name: &str, data: &Value) -> Vec<u8> {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace}, "data": data});
    review("", "ConfigMap", namespace, &object).to_string().into_bytes()
}

fn text(text: impl AsRef<str>) -> Arc<Vec<u8>> {
    Arc::new(text.as_ref().as_bytes().to_vec())
}

fn header(length: usize) -> String {
    format!("POST {VALIDATE} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n")
}

/// All kinds, in the order of the experiment.
pub(super) fn all(namespace: &str) -> Vec<Abuse> {
    let post = |name, path, bodies: Vec<Vec<u8>>, clients, at_once| {
        let action =
            Post { path, content_type: "application/json", bodies: Arc::new(bodies), chunked: false };
        Abuse { name, action, clients, at_once }
    };
    let chunked = Abuse {
        name: "8 MiB without a length",
        action: Post {
            path: MUTATE,
            content_type: "text/html; charset=utf-16",
            bodies: Arc::new(vec![vec![b' '; 8 << 20]]),
            chunked: true,
        },
        clients: 20,
        at_once: 4,
    };
    let slow = |name, action, clients| Abuse { name, action, clients, at_once: 64 };
    let whole = [header(valid().to_string().len()), valid().to_string()].concat();
    vec![
        post("no AdmissionReview", VALIDATE, no_reviews(), 100, 8),
        post("invalid UTF-8", CONFIG_MAP, invalid_text(), 100, 8),
        post("8 MiB", VALIDATE, vec![vec![b' '; 8 << 20]], 40, 4),
        chunked,
        post("nested deep", MUTATE, nested(), 40, 4),
        post("a hundred times its size", VALIDATE, bombs(), 10, 4),
        post("ConfigMap YAML", CONFIG_MAP, maps(namespace), 4, 4),
        slow("slow headers", Drip(text("POST /validate HTTP/1.1\r\nX-Slow: ")), 2000),
        slow("slow bodies", Drip(text(header(1000) + "{")), 2000),
        Abuse {
            name: "half of 7 MiB, then nothing",
            action: Hold(Arc::new([header(7 << 20).into_bytes(), vec![b' '; 3 << 20]].concat())),
            clients: 200,
            at_once: 16,
        },
        Abuse {
            name: "a header of 1 MiB",
            action: Hold(text(format!("POST / HTTP/1.1\r\nX-Long: {}", "x".repeat(1 << 20)))),
            clients: 200,
            at_once: 16,
        },
        slow("idle connections", Hold(text("")), 5000),
        slow("idle after a review", Drip(text(&whole)), 1000),
        slow("nothing for a handshake", NoHandshake(b""), 2000),
        slow("half a handshake", NoHandshake(&[22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]), 2000),
        slow("reset after the handshake", Reset(text("")), 1000),
        slow("reset in the body", Reset(text(header(1000) + "{")), 1000),
        slow("reset before the answer", Reset(text(&whole)), 1000),
    ]
}

fn no_reviews() -> Vec<Vec<u8>> {
    let old = json!({"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview"});
    let texts = ["", "null", "[]", "\"", "{}", "<html></html>", "apiVersion: v1", "{\"request\":{}}"];
    let mut bodies: Vec<Vec<u8>> = texts.iter().map(|t| t.as_bytes().to_vec()).collect();
    bodies.push(old.to_string().into_bytes());
    bodies.push(review("", "Pod", "default", &json!({})).to_string().into_bytes());
    bodies.push((0..=255).collect());
    // Reviews with contents that no API server sends.
    for object in [json!(null), json!([]), json!("x"), json!({"metadata": [], "spec": 1})] {
        bodies.push(review("llmd.ai", "VariantAutoscaling", "default", &object).to_string().into_bytes());
    }
    bodies
}

fn invalid_text() -> Vec<Vec<u8>> {
    let map = String::from_utf8_lossy(&config_map("default", "x", &json!({"a": "TEXT"}))).into_owned();
    let mut bodies: Vec<Vec<u8>> = ["\\ud800", "\\udc00\\ud800", "\\u0000", "\\uD83D\\u0041"]
        .iter()
        .map(|t| map.replace("TEXT", t).into_bytes())
        .collect();
    bodies.push(map.replace("TEXT", "\u{202e}\u{7f}").into_bytes());
    for raw in [&b"\xff"[..], b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"] {
        let (before, after) = map.split_once("TEXT").unwrap_or((&map, ""));
        bodies.push([before.as_bytes(), raw, after.as_bytes()].concat());
    }
    bodies
}

fn nested() -> Vec<Vec<u8>> {
    let list = |depth: usize| ["[".repeat(depth), "]".repeat(depth)].concat();
    let object = |depth: usize| ["{\"a\":".repeat(depth), "1".to_owned(), "}".repeat(depth)].concat();
    let in_review = |deep: &str| valid().to_string().replace("\"valid\"", deep).into_bytes();
    vec![
        list(10_000).into_bytes(),
        object(10_000).into_bytes(),
        in_review(&list(10_000)),
        in_review(&object(110)),
        "[".repeat(3_000_000).into_bytes(),
    ]
}

fn bombs() -> Vec<Vec<u8>> {
    let many = |part: &str| format!("[{}0]", part.repeat((6 << 20) / part.len()));
    let mut bodies: Vec<Vec<u8>> =
        ["{\"\":0},", "0,", "[],", "\"\","].map(|part| many(part).into_bytes()).into();
    let keys: Vec<String> = (0..400_000).map(|i| format!("\"{i}\":0")).collect();
    bodies.push(format!("{{{}}}", keys.join(",")).into_bytes());
    bodies
}

/// YAML texts that are hard to parse, as entries of each map that the program reads.
pub(super) fn maps(namespace: &str) -> Vec<Vec<u8>> {
    let lines = |lines: Vec<String>| lines.concat();
    let laugh = |i: i32| format!("a{i}: &a{i} [{}]\n", vec![format!("*a{}", i - 1); 9].join(","));
    let laughs = format!("a0: &a0 lol\n{}", lines((1..12).map(laugh).collect()));
    let texts = [
        laughs,
        format!("x: &a {}\ny: [{}]\n", "b".repeat(100_000), "*a,".repeat(10_000)),
        "a: &a [*a]\n".to_owned(),
        format!("a: &a {{x: 1}}\nb:\n{}", "  <<: *a\n".repeat(10_000)),
        "[".repeat(10_000),
        ["[".repeat(10_000), "]".repeat(10_000)].concat(),
        "{a: ".repeat(10_000),
        "- ".repeat(10_000),
        lines((0..2000).map(|i| format!("{}a:\n", " ".repeat(i))).collect()),
        "? ".repeat(10_000),
        format!("key: \"{}\"", "x".repeat(1 << 20)),
        "a: 1\n".repeat(100_000),
        lines((0..100_000).map(|i| format!("k{i}: 1\n")).collect()),
        "---\n".repeat(200_000),
        "!".repeat(1 << 20),
        "#".repeat(1 << 20),
        "-".repeat(1 << 20),
        format!("retention_period: {}5s", "-".repeat(1 << 20)),
        "9".repeat(1 << 20),
        format!("kvCacheThreshold: 0.{}", "9".repeat(1 << 20)),
        "\u{feff}\u{2028}\u{85}a: \u{0}".to_owned(),
    ];
    let mut bodies = Vec::new();
    for name in ["wva-saturation-scaling-config", "wva-model-scale-to-zero-config", "serviceclass"] {
        for text in &texts {
            bodies.push(config_map(namespace, name, &json!({"default": text})));
        }
        let many: Value = (0..20_000)
            .map(|i| (format!("e{i}"), json!("kvCacheTreshold: 7")))
            .collect::<serde_json::Map<_, _>>()
            .into();
        bodies.push(config_map(namespace, name, &many));
    }
    let main = "wva-variantautoscaling-config";
    for text in &texts {
        bodies.push(config_map(namespace, main, &json!({"config.yaml": text})));
        bodies.push(config_map(namespace, main, &json!({"GLOBAL_OPT_INTERVAL": text})));
    }
    let unknown: Value = (0..20_000)
        .map(|i| (format!("GLOBAL_OPT_INTERVA{i}"), json!("1")))
        .collect::<serde_json::Map<_, _>>()
        .into();
    bodies.push(config_map(namespace, main, &unknown));
    bodies
}
