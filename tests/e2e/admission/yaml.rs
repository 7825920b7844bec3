//! Manifests as people write them: kubectl and `wva validate` read one text and must come to one verdict. YAML has
//! two versions and many corners, and what a text means is settled before any rule sees it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::ensure;
use wva_testbed::Testbed;

use super::callers::{Files, deployment, text, validate};
use super::differential::judge_all;
use super::{DOORS, MAIN_MAP, shared};

/// Values of `spec.modelID`, `spec.variantCost` and `spec.minReplicas`, as they stand in a manifest.
const SCALARS: &[&str] = &[
    "m", "yes", "on", "y", "true", "~", "null", "", "7", "0x1F", "010", "0o10", "1_000", "1e3", "1.5", ".5",
    "+1", "-1", ".inf", ".nan", "2001-01-01", "1:30", "\"7\"", "'7'", "\"\"", "' '", "!!str 7",
    "!!int \"7\"", "|\n    7\n", ">-\n    7\n", "\"a\\tb\"", "\"a\\u0085b\"", "[7]", "{}", "&a 7", "*a",
    "7 # seven", "7#seven", "\"7", "a: b", "%7", "@7", "`7`", "=", "<<", "3.0", "0b11", "1__0", "0.0",
    "12e03", "é", "🦙", "|2-\n      7\n", "\"a\\\n      b\"",
];

/// Documents of the main map, whole, as a person writes `data`.
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

fn variants() -> impl Iterator<Item = String> {
    let of = |spec: String| {
        format!(
            "apiVersion: llmd.ai/v1alpha1\nkind: VariantAutoscaling\nmetadata:\n  name: written\nspec:\n  scaleTargetRef: {{name: x}}\n{spec}"
        )
    };
    let model = |scalar: &&str| format!("  modelID: {scalar}\n");
    let cost = |scalar: &&str| format!("  modelID: m\n  variantCost: {scalar}\n");
    let min = |scalar: &&str| format!("  modelID: m\n  minReplicas: {scalar}\n");
    let mode = |scalar: &&str| {
        format!(
            "apiVersion: llmd.ai/v1alpha1\nkind: VariantAutoscaling\nmetadata:\n  name: written\n  annotations:\n    wva.llmd.ai/mode: {scalar}\nspec:\n  scaleTargetRef: {{name: x}}\n  modelID: m\n"
        )
    };
    let specs = SCALARS.iter().map(model).chain(SCALARS.iter().map(cost)).chain(SCALARS.iter().map(min));
    specs.map(of).chain(SCALARS.iter().map(mode))
}

fn maps() -> impl Iterator<Item = String> {
    DATA.iter().map(|data| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: wva-variantautoscaling-config\n  namespace: {}\n  annotations: {{wva.llmd.ai/restart-revision: written}}\ndata:\n  {data}\n",
            wva_testbed::install::SYSTEM
        )
    })
}

/// Whether kubectl and the API server take a manifest, and what they said.
async fn asked(testbed: &Testbed, namespace: &str, manifest: &str) -> anyhow::Result<(bool, String)> {
    // A wrong type must reach the webhook, as it does from clients that know no schema.
    let mut args = vec!["create", "--dry-run=server", "--validate=false", "-f", "-"];
    if manifest.contains("VariantAutoscaling") {
        args.extend(["-n", namespace]);
    }
    let ran = testbed.kubectl_with(&args, manifest).await?;
    Ok((ran.ok, ran.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_and_wva_validate_read_a_manifest_alike() -> anyhow::Result<()> {
    let testbed = &shared().await?.testbed;
    let _open = DOORS.read().await;
    let _alone = MAIN_MAP.lock().await;
    let namespace = testbed.namespace("yaml").await?;
    let manifests: Vec<String> = variants().chain(maps()).collect();
    let (count, refused) = (manifests.len(), Arc::new(AtomicUsize::new(0)));
    let numbered = manifests.into_iter().enumerate();
    let wrong = judge_all(numbered.map(|(number, manifest)| {
        let (namespace, refused) = (namespace.clone(), Arc::clone(&refused));
        async move {
            // Each on its own: two that share their target are refused for that.
            let files = Files::new(&format!("yaml-{number}"))?;
            files.write("install.json", &text(&deployment()))?;
            files.write("written.yaml", &manifest)?;
            let found = validate(&files, &["."]).await?;
            let said = found.by_file.get("written.yaml");
            let (ok, told) = asked(testbed, &namespace, &manifest).await?;
            refused.fetch_add(usize::from(!ok), Ordering::Relaxed);
            // What kubectl cannot read, or the API server refuses by itself, has no code of ours.
            let by_webhook = told.contains("[WVA-") && !ok;
            let named =
                said.iter().flat_map(|s| s.iter()).all(|(code, _)| !by_webhook || told.contains(code));
            let alike = ok == said.is_none() && named;
            anyhow::Ok(if alike {
                Vec::new()
            } else {
                vec![format!("{manifest}  wva validate: {said:?}\n  kubectl: {ok} {told}")]
            })
        }
    }))
    .await?;
    let refused = refused.load(Ordering::Relaxed);
    ensure!(wrong.is_empty(), "{} of {count} are read otherwise:\n{}", wrong.len(), wrong.join("\n"));
    ensure!(refused > 50 && count - refused > 50, "{refused} of {count} are refused");
    Ok(())
}
