//! Manifests as people write them: kubectl and `wva validate` read one text and must agree. YAML has two versions and
//! many special cases, and its meaning is decided before any rule runs.

use std::collections::BTreeMap;

use anyhow::ensure;
use wva_crds::names::MAIN_MAP_NAME;
use wva_testbed::install::SYSTEM;

use super::callers::{TempFiles, deployment, escaped_json, validate};
use super::{MAIN_MAP_LOCK, WEBHOOKS_LOCK, shared};

/// Values of `spec.modelID`, `spec.variantCost`, `spec.minReplicas` and the mode, as in a manifest.
const SCALARS: &[&str] = &[
    "m", "yes", "on", "y", "true", "~", "null", "", "7", "0x1F", "010", "0o10", "1_000", "1e3", "1.5", ".5",
    "+1", "-1", ".inf", ".nan", "1:30", "\"7\"", "'7'", "\"\"", "' '", "!!str 7", "[7]", "{}", "&a 7", "*a",
    "7#seven", "\"7", "a: b", "%7", "@7", "`7`", "=", "<<", "3.0", "0b11", "1__0", "0.0", "12e03", "é", "🦙",
];
const LONG_SCALARS: &[&str] = &[
    "2001-01-01", "!!int \"7\"", "|\n    7\n", ">-\n    7\n", "\"a\\tb\"", "\"a\\u0085b\"", "7 # seven",
    "|2-\n      7\n", "\"a\\\n      b\"",
];

/// `data` of the main map as people write it.
const DATA: &[&str] = &[
    "V: 2",
    "V: \"2\"",
    "LEADER_ELECT: yes",
    "LEADER_ELECT: 'yes'",
    "LEADER_ELECT: \"true\"",
    "GLOBAL_OPT_INTERVAL: 60s",
    "GLOBAL_OPT_INTERVAL: 1:30",
    "GLOBAL_OPT_INTERVAL: '60'",
    "config.yaml: |\n    V: 2\n    LEADER_ELECT: yes",
    "config.yaml: |\n    V: 2\n    V: 3",
    "config.yaml: |-\n    # nothing",
    "config.yaml:\n    V: 2",
    "V:",
    "V: ~",
    "? V\n  : '2'",
    "? V\n  : {}",
    "<<: {V: '2'}",
    "<<: {V: 2}",
    "V: &a '2'\n  LOG_LEVEL: *a",
    "LOG_LEVEL: >\n    info",
    "LOG_LEVEL: >-\n    info",
    "LOG_LEVEL: info # as ever",
    "1: '2'",
    "true: '2'",
    "yes: '2'",
    "a/b: x",
];

/// Each scalar as the value of each field.
fn variants(namespace: &str) -> Vec<String> {
    let metadata = format!("metadata:\n  name: written\n  namespace: {namespace}\n");
    let head = format!("apiVersion: llmd.ai/v1alpha1\nkind: VariantAutoscaling\n{metadata}");
    let spec = "spec:\n  scaleTargetRef: {name: x}\n";
    let mut all = Vec::new();
    for scalar in SCALARS.iter().chain(LONG_SCALARS) {
        all.push(format!("{head}{spec}  modelID: {scalar}\n"));
        all.push(format!("{head}{spec}  modelID: m\n  variantCost: {scalar}\n"));
        all.push(format!("{head}{spec}  modelID: m\n  minReplicas: {scalar}\n"));
        all.push(format!("{head}  annotations:\n    wva.llmd.ai/mode: {scalar}\n{spec}  modelID: m\n"));
    }
    all
}

fn maps() -> impl Iterator<Item = String> {
    let head = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {MAIN_MAP_NAME}\n  namespace: {SYSTEM}\n"
    );
    let annotations = "  annotations: {wva.llmd.ai/restart-revision: written}\n";
    DATA.iter().map(move |data| format!("{head}{annotations}data:\n  {data}\n"))
}

/// Messages of kubectl about each file that it or the API server denies, by the number that is its name.
fn refusals(stderr: &str) -> BTreeMap<usize, String> {
    let (mut all, mut number) = (BTreeMap::<usize, String>::new(), None);
    for piece in stderr.split(".yaml") {
        if let Some(number) = number {
            all.entry(number).or_default().push_str(piece);
        }
        // Not every such name is a file: the main map has an entry of this name.
        number = piece.rsplit('/').next().and_then(|name| name.parse().ok()).or(number);
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_and_wva_validate_agree_on_manifests() -> anyhow::Result<()> {
    let testbed = &shared().await?.testbed;
    let _open = WEBHOOKS_LOCK.read().await;
    let _alone = MAIN_MAP_LOCK.lock().await;
    let namespace = testbed.namespace("yaml").await?;
    let manifests: Vec<String> = variants(&namespace).into_iter().chain(maps()).collect();
    let (files, install) = (TempFiles::new("yaml")?, TempFiles::new("yaml-install")?);
    for (number, manifest) in manifests.iter().enumerate() {
        files.write(&format!("{number}.yaml"), manifest)?;
    }
    let install = install.write("install.json", &escaped_json(&deployment()))?;
    // Objects of one name count as one object, so they do not share their target.
    let validated = validate(&files, &[".", &install.to_string_lossy()]).await?;
    // A wrong type must reach the webhook, as from clients without a schema.
    let folder = files.path().to_string_lossy();
    let create = ["create", "--dry-run=server", "--validate=false", "-f", &folder, "-o", "name"];
    let ran = testbed.kubectl(&create).await?;
    let refused = refusals(&ran.stderr);
    let (count, admitted) = (manifests.len(), ran.stdout.lines().count());
    ensure!(refused.len() + admitted == count, "{admitted} of {count} were admitted: {}", ran.stderr);
    let mut wrong = Vec::new();
    for (number, manifest) in manifests.iter().enumerate() {
        let denied = validated.by_file.get(&format!("{number}.yaml"));
        let message = refused.get(&number);
        // Files that kubectl cannot read, or the API server denies, have no rule code.
        let by_webhook = message.is_some_and(|message| message.contains("[WVA-"));
        let mut codes = denied.iter().flat_map(|faults| faults.iter());
        let named =
            codes.all(|(code, _)| !by_webhook || message.is_some_and(|message| message.contains(code)));
        if message.is_some() != denied.is_some() || !named {
            wrong.push(format!("{manifest}  wva validate: {denied:?}\n  kubectl: {message:?}"));
        }
    }
    ensure!(wrong.is_empty(), "{} of {count} are read differently:\n{}", wrong.len(), wrong.join("\n"));
    ensure!(refused.len() > 50 && admitted > 50, "{} of {count} are refused", refused.len());
    Ok(())
}
