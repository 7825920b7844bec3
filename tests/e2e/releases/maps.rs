//! ConfigMaps with several releases: all judge the maps of namespaces; each judges its own main map.

use anyhow::ensure;
use serde_json::{Value, json};
use wva_crds::names::{
    LOCAL_SATURATION_MAP_NAME, MAIN_MAP_NAME, SATURATION_MAP_NAMES, SCALE_TO_ZERO_MAP_NAMES,
};
use wva_testbed::eventually;

use super::{Releases, assert_denied};
use crate::support::DEADLINE;

fn map(name: &str, data: &Value, revision: &str) -> Value {
    let annotations = json!({"wva.llmd.ai/restart-revision": revision});
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "annotations": annotations}, "data": data,
    })
}

pub(super) async fn all_releases_agree_on_local_maps(releases: &Releases) -> anyhow::Result<()> {
    let refusals = [r#"resource="configmaps""#, r#"allowed="false""#];
    let of_a = releases.namespace_of_instance("a").await?;
    for (name, entry, code) in [
        (SATURATION_MAP_NAMES[0], "kvCacheThreshhold: 0.5", Some("WVA-CM-022")),
        (SATURATION_MAP_NAMES[0], "kvCacheThreshold: 0.5\nkvSpareTrigger: 0.9", Some("WVA-CM-026")),
        (SATURATION_MAP_NAMES[0], "kvSpareTrigger: 0.2", None),
        (SCALE_TO_ZERO_MAP_NAMES[0], "retention_period: soon", Some("WVA-CM-023")),
        (SCALE_TO_ZERO_MAP_NAMES[0], "retention_period: 5m", None),
    ] {
        let object = map(name, &json!({"default": entry}), "");
        let create = releases.create(&of_a, &object);
        let (ran, reviews) = releases.count_reviews(&refusals, create).await?;
        match code {
            Some(code) => assert_denied(&ran, code)?,
            None => drop(ran.success()?),
        }
        assert_eq!(reviews, [i64::from(code.is_some()); 3], "{name} {entry}");
    }
    Ok(())
}

pub(super) async fn a_release_judges_only_its_own_main_map(releases: &Releases) -> anyhow::Result<()> {
    let refusals = [r#"resource="configmaps""#, r#"allowed="false""#];
    let systems = ["wva-a", "wva-b", "plain"].map(|release| format!("{release}-system"));
    for (own, system) in systems.iter().enumerate() {
        let wrong = map(MAIN_MAP_NAME, &json!({"V": "loud", "GLOBAL_OPT_INTERVAL": "60"}), "one");
        let (ran, reviews) = releases.count_reviews(&refusals, releases.create(system, &wrong)).await?;
        assert_denied(&ran, "WVA-CM-002")?;
        let mut wanted = [0; 3];
        wanted[own] = 1;
        assert_eq!(reviews, wanted, "{system}: {}", ran.stderr);
        // The others warn that they do not read it, and name the map that they read.
        let fine = map(MAIN_MAP_NAME, &json!({"V": "2"}), "one");
        let (ran, reviews) = releases.count_reviews(&refusals, releases.create(system, &fine)).await?;
        ensure!(ran.ok && reviews == [0; 3], "{system}: {ran:?}");
        for other in systems.iter().filter(|other| *other != system) {
            let warning =
                format!("[WVA-CM-053] metadata.namespace: not read; wva reads {other}/{MAIN_MAP_NAME}");
            ensure!(ran.stderr.contains(&warning), "{system}: {warning} is missing: {}", ran.stderr);
        }
        assert_eq!(ran.stderr.matches("WVA-CM-053").count(), 2, "{system}: {}", ran.stderr);
    }
    Ok(())
}

pub(super) async fn opt_in_label_must_name_the_release(releases: &Releases) -> anyhow::Result<()> {
    let testbed = &releases.testbed;
    let (other, opted_in) = (testbed.namespace("of-others").await?, testbed.namespace("opted-in").await?);
    for (namespace, value) in [(&other, "true"), (&opted_in, "a")] {
        let label = format!("wva.llmd.ai/config-enabled={value}");
        testbed.kubectl(&["label", "namespace", namespace, &label]).await?.success()?;
        let map = map(LOCAL_SATURATION_MAP_NAME, &json!({"default": "kvCacheThreshold: 0.6"}), "");
        releases.create(namespace, &map).await?.success()?;
    }
    let was_read = |namespace: &str| {
        let title = format!("{namespace}/{LOCAL_SATURATION_MAP_NAME}");
        let log = releases.a.process().log();
        log.lines().any(|line| line.contains("Updated saturation config") && line.contains(&title))
    };
    eventually("the map of the namespace that opted in to be read", DEADLINE, async || {
        ensure!(was_read(&opted_in), "it is not");
        Ok(())
    })
    .await?;
    ensure!(!was_read(&other), "a map was read whose namespace opted in to another controller");
    Ok(())
}
