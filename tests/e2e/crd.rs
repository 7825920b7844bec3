//! The CRD alone, on a real API server and without the program: what one object can get wrong is refused, by field,
//! even while no webhook answers; what the original's users wrote is accepted; and kubectl shows it as they know it.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use wva_testbed::install::Install;
use wva_testbed::{Options, Testbed};

use crate::support::{good, try_create, variant};

static TESTBED: OnceCell<Testbed> = OnceCell::const_new();

async fn testbed() -> anyhow::Result<&'static Testbed> {
    TESTBED
        .get_or_try_init(|| async {
            let options = Options {
                name: "crd".to_owned(),
                nodes: Vec::new(),
                with_prometheus: false,
                ..Options::default()
            };
            let testbed = Testbed::start(options).await?;
            Install::crd(&testbed).await?;
            Ok(testbed)
        })
        .await
}

/// A good spec with another value at a path; `Null` takes the field away.
fn with(path: &str, value: Value) -> Value {
    let mut spec = good("llama");
    match value {
        Value::Null => {
            let (parent, field) = path.rsplit_once('/').unwrap_or(("", path));
            let parent = spec.pointer_mut(parent).and_then(Value::as_object_mut);
            parent.map(|map| map.remove(field));
        }
        value => {
            let (parent, field) = path.rsplit_once('/').unwrap_or(("", path));
            if let Some(map) = spec.pointer_mut(parent).and_then(Value::as_object_mut) {
                map.insert(field.to_owned(), value);
            }
        }
    }
    spec
}

/// The fields that a refusal blames.
async fn blamed(client: &kube::Client, spec: &Value) -> anyhow::Result<BTreeSet<String>> {
    let Err(status) = try_create(client, "default", &variant("bad", spec)).await? else {
        return Ok(BTreeSet::new());
    };
    ensure!(status.code == 422 && status.reason == "Invalid", "refused, but not as invalid: {status:?}");
    ensure!(!status.message.contains("admission webhook"), "a webhook answered: {}", status.message);
    let details = status.details.context("a refusal without details")?;
    // The cause without a field says that CEL was not asked because the types were wrong.
    let fields =
        details.causes.into_iter().map(|cause| cause.field).filter(|f| !f.is_empty() && f != "<nil>");
    Ok(fields.collect())
}

const TARGET: &str = "spec.scaleTargetRef";
const NAME: &str = "spec.scaleTargetRef.name";
const KIND: &str = "spec.scaleTargetRef.kind";
const MODEL: &str = "spec.modelID";
const COST: &str = "spec.variantCost";
const MIN: &str = "spec.minReplicas";
const MAX: &str = "spec.maxReplicas";

/// Everything that one object can get wrong: the faulty spec, and the fields that must be blamed for it.
fn faults() -> Vec<(Value, Vec<&'static str>)> {
    let mut rows = vec![
        (with("/scaleTargetRef", Value::Null), vec![TARGET]),
        (with("/scaleTargetRef", json!("llama")), vec![TARGET]),
        (with("/scaleTargetRef", json!([])), vec![TARGET]),
        (with("/scaleTargetRef", json!({})), vec![NAME]),
        (with("/scaleTargetRef", json!({"name": 7})), vec![NAME]),
        (with("/scaleTargetRef/apiVersion", json!("")), vec!["spec.scaleTargetRef.apiVersion"]),
        (with("/scaleTargetRef/kind", json!("")), vec![KIND]),
        (with("/modelID", Value::Null), vec![MODEL]),
        (with("/modelID", json!(7)), vec![MODEL]),
        (with("/variantCost", json!(40)), vec![COST]),
        (
            json!({"scaleTargetRef": {"name": "x"}, "modelID": "m", "minReplicas": 3, "maxReplicas": 2}),
            vec!["spec"],
        ),
        (json!({}), vec![TARGET, MODEL]),
        // Faults come back together.
        (
            json!({"scaleTargetRef": {"name": "x"}, "modelID": "m", "variantCost": "$40", "minReplicas": -1}),
            vec![COST, MIN],
        ),
        (json!({"scaleTargetRef": {"name": "X"}, "modelID": " ", "variantCost": "10"}), vec![NAME, MODEL]),
        (
            json!({"scaleTargetRef": {"name": "x"}, "modelID": "m", "variantCost": "$40", "minReplicas": 3, "maxReplicas": 2}),
            vec![COST, "spec"],
        ),
    ];
    for name in [
        "",
        "Llama",
        "llama_8b",
        "-a",
        "a-",
        "a.",
        ".a",
        "a..b",
        "a b",
        "llama/8b",
        "é",
        "a\n",
        &"a".repeat(254),
    ] {
        rows.push((with("/scaleTargetRef/name", json!(name)), vec![NAME]));
    }
    for kind in ["Pod", "Job", "CronJob", "DaemonSet", "Service", "ConfigMap", "Secret", "Node", "Namespace"]
    {
        rows.push((with("/scaleTargetRef/kind", json!(kind)), vec![KIND]));
    }
    // 257 characters of two bytes each are 514 bytes; 129 of four bytes each are 516.
    let models = ["", " ", "\t \n", "\u{a0}\u{3000}", "a\u{0}b", "a\nb", "a\u{7f}", "a\u{85}b"];
    let long = ["m".repeat(513), "é".repeat(257), "🦙".repeat(129)];
    for model in models.into_iter().chain(long.iter().map(String::as_str)) {
        rows.push((with("/modelID", json!(model)), vec![MODEL]));
    }
    let digits = "9".repeat(309);
    for cost in [
        "$40", "-1", "+1", "1e3", "", "1.", ".5", "1.2.3", "1,5", "0x10", "NaN", "Inf", " 1", "1\n", "١",
        &digits,
    ] {
        rows.push((with("/variantCost", json!(cost)), vec![COST]));
    }
    for (field, name) in [("/minReplicas", MIN), ("/maxReplicas", MAX)] {
        for value in [json!(-1), json!(2.5), json!("2"), json!(true), json!([]), json!(2_147_483_648_i64)] {
            rows.push((with(field, value), vec![name]));
        }
    }
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn every_fault_of_one_object_is_refused_by_field() -> anyhow::Result<()> {
    let client = testbed().await?.admin()?;
    let mut wrong = Vec::new();
    for (spec, fields) in faults() {
        let found = blamed(&client, &spec).await?;
        let wanted: BTreeSet<String> = fields.into_iter().map(str::to_owned).collect();
        if found != wanted {
            wrong.push(format!("{spec}: blames {found:?}, not {wanted:?}"));
        }
    }
    ensure!(wrong.is_empty(), "{} faults:\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_up_to_the_limits_is_accepted() -> anyhow::Result<()> {
    let client = testbed().await?.admin()?;
    let mut specs = vec![good("llama")];
    for name in ["a", "0", "a.b-c.9", &"a".repeat(253)] {
        specs.push(with("/scaleTargetRef/name", json!(name)));
    }
    for kind in ["StatefulSet", "LeaderWorkerSet", "PodSet", "Foo"] {
        specs.push(with("/scaleTargetRef/kind", json!(kind)));
    }
    for model in ["m".repeat(512), "é".repeat(256), "🦙".repeat(128), " a ".to_owned(), "\u{200b}".to_owned()]
    {
        specs.push(with("/modelID", json!(model)));
    }
    for cost in ["0", "0.0", "007.10", "40.5", &"9".repeat(308)] {
        specs.push(with("/variantCost", json!(cost)));
    }
    for (min, max) in [(json!(0), json!(0)), (json!(3), json!(3)), (json!(1), json!(i32::MAX))] {
        specs.push(
            json!({"scaleTargetRef": {"name": "x"}, "modelID": "m", "minReplicas": min, "maxReplicas": max}),
        );
    }
    for field in ["/minReplicas", "/maxReplicas"] {
        specs.push(with(field, json!(2)));
    }
    let mut refused = Vec::new();
    for spec in specs {
        if let Err(status) = try_create(&client, "default", &variant("fine", &spec)).await? {
            refused.push(format!("{spec}: {}", status.message));
        }
    }
    ensure!(refused.is_empty(), "{}", refused.join("\n"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn defaults_are_filled_in() -> anyhow::Result<()> {
    let client = testbed().await?.admin()?;
    let spec = json!({"scaleTargetRef": {"name": "x"}, "modelID": "m"});
    let stored = try_create(&client, "default", &variant("short", &spec)).await?;
    let stored = stored.map_err(|status| anyhow::anyhow!("refused: {}", status.message))?;
    let wanted = json!({
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"},
        "modelID": "m", "variantCost": "10.0",
    });
    assert_eq!(stored["spec"], wanted);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn manifests_of_the_original_are_accepted() -> anyhow::Result<()> {
    let testbed = testbed().await?;
    for namespace in ["llm-inference", "your-namespace", "llm-d-sim"] {
        testbed.kubectl(&["create", "namespace", namespace]).await?.success()?;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/original");
    let mut manifests: Vec<_> =
        std::fs::read_dir(&folder)?.map(|e| e.map(|e| e.path())).collect::<Result<_, _>>()?;
    // Values files of the chart stand beside them; those are no manifests.
    manifests
        .retain(|path| path.file_name().is_some_and(|n| !n.to_string_lossy().starts_with("chart-values-")));
    manifests.sort();
    assert_eq!(manifests.len(), 5, "{manifests:?}");
    for manifest in manifests {
        let text = std::fs::read_to_string(&manifest)?;
        testbed.apply(&text).await.with_context(|| manifest.display().to_string())?;
    }
    let listed = testbed.kubectl(&["get", "va", "-A", "--no-headers"]).await?.success()?;
    for name in ["llama-8b-autoscaler", "llama-8b-own-target", "your-va-name"] {
        ensure!(listed.contains(name), "{name} is not listed:\n{listed}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_shows_the_columns_in_order() -> anyhow::Result<()> {
    let testbed = testbed().await?;
    let namespace = testbed.namespace("columns").await?;
    let object = variant("llama", &good("llama-8b"));
    testbed.kubectl_with(&["create", "-n", &namespace, "-f", "-"], &object.to_string()).await?.success()?;
    let status = json!({"status": {
        "desiredOptimizedAlloc": {"accelerator": "H100", "numReplicas": 7}, "currentReplicas": 5,
        "conditions": [{"type": "MetricsAvailable", "status": "True", "reason": "MetricsFound", "message": "",
            "lastTransitionTime": "2026-01-02T03:04:05Z"}],
    }});
    let patch = ["patch", "va", "llama", "-n", &namespace, "--subresource=status", "--type=merge", "-p"];
    testbed.kubectl(&[patch.as_slice(), &[&status.to_string()]].concat()).await?.success()?;
    let shown = testbed.kubectl(&["get", "va", "-n", &namespace]).await?.success()?;
    let rows: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
    let header =
        ["NAME", "TARGET", "MODEL", "ACCELERATOR", "CURRENTREPLICAS", "OPTIMIZED", "METRICSREADY", "AGE"];
    assert_eq!(rows[0], header, "{shown}");
    assert_eq!(
        rows[1][..7],
        ["llama", "llama-8b", "meta-llama/Llama-3.1-8B", "H100", "5", "7", "True"],
        "{shown}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_appliers_share_defaulted_fields() -> anyhow::Result<()> {
    let testbed = testbed().await?;
    let namespace = testbed.namespace("appliers").await?;
    let manifest = variant("shared", &good("llama")).to_string();
    let apply = async |manager: &str, manifest: &str| {
        let manager = format!("--field-manager={manager}");
        testbed
            .kubectl_with(&["apply", "--server-side", &manager, "-n", &namespace, "-f", "-"], manifest)
            .await
    };
    apply("first", &manifest).await?.success()?;
    apply("second", &manifest).await?.success()?;
    apply("first", &manifest).await?.success()?;
    // One who writes the defaults out agrees with them, and one who does not keeps what is there.
    let mut spelt = good("llama");
    spelt["scaleTargetRef"]["kind"] = json!("Deployment");
    spelt["variantCost"] = json!("10.0");
    apply("third", &variant("shared", &spelt).to_string()).await?.success()?;
    apply("second", &manifest).await?.success()?;
    // The opposite must be seen too: a value that differs is a conflict.
    spelt["modelID"] = json!("another");
    let refused = apply("fourth", &variant("shared", &spelt).to_string()).await?;
    ensure!(!refused.ok && refused.stderr.contains(".spec.modelID"), "no conflict: {refused:?}");
    Ok(())
}
