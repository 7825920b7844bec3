//! Global ConfigMaps of llm-d WVA: they move to the namespace of this controller, where thresholds, objectives and an
//! exemption from scale to zero stay in force.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use wva_testbed::eventually;
use wva_testbed::install::{Install, SYSTEM, get};

use super::session::{Session, step};
use crate::support::{DEADLINE, ProgramOutput};

const MAPS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/migrate/global-maps.yaml");
const MODEL: &str = "meta-llama/Llama-3.1-8B";

/// Stores the maps in the namespace of llm-d WVA.
pub(crate) async fn apply(session: &Session<'_>) -> anyhow::Result<()> {
    session.testbed.apply(&std::fs::read_to_string(MAPS)?).await
}

/// Runs `wva migrate` for one namespace, and for the global maps.
pub(crate) async fn migrate(session: &Session<'_>, options: &[&str]) -> anyhow::Result<ProgramOutput> {
    let migrate = ["migrate", "-n", &session.namespace, "--controller-namespace", SYSTEM];
    session.wva(&[&migrate[..], options].concat()).await
}

/// Without a destination, the maps would be lost.
pub(crate) async fn name_without_destination(session: &Session<'_>) -> anyhow::Result<()> {
    step("Global ConfigMaps need a destination");
    let run = session.wva(&["migrate", "-n", &session.namespace]).await?;
    ensure!(run.code == 1 && run.stderr.contains("--controller-namespace"), "{run:?}");
    for name in ["capacity-scaling-config", "model-scale-to-zero-config", "serviceclass"] {
        ensure!(run.stderr.contains(&format!("ConfigMap original-system/{name}")), "{run:?}");
    }
    ensure!(!run.stdout.contains("kind: ConfigMap"), "{run:?}");
    Ok(())
}

/// What the maps say is in force, with scale to zero on.
pub(crate) async fn check_in_force(session: &Session<'_>, install: &Install) -> anyhow::Result<()> {
    step("Thresholds, objectives and the exemption are in force");
    let url = format!("http://{}/snapshot", install.address("debug")?);
    eventually("the moved maps to be in force", DEADLINE, async || {
        let (status, text) = get(&url).await?;
        ensure!(status == 200, "/snapshot answered {status}: {text}");
        let snapshot: Value = serde_json::from_str(&text)?;
        let config = &snapshot["config"];
        let mut models = snapshot["models"].as_array().into_iter().flatten();
        let model = models.find(|m| m["namespace"] == session.namespace && m["modelID"] == MODEL);
        let settings = &model.with_context(|| text.clone())?["settings"];
        let entry = &settings["saturation"];
        ensure!(entry["queueLengthThreshold"] == json!(7.0) && entry["analyzerName"] == "", "{entry}");
        ensure!(entry["itlSlo"] == json!(24.0) && entry["ttftSlo"] == json!(500.0), "{entry}");
        ensure!(config["scaleToZeroDefault"] == json!(true), "{config}");
        let zero = &settings["scaleToZero"];
        ensure!(zero["enable_scale_to_zero"] == json!(false), "{zero}");
        Ok(())
    })
    .await?;
    let doctor = ["doctor", "-n", &session.namespace];
    session
        .until("the old maps to be named", &doctor, |run| {
            run.stdout.contains("wva does not read original-system/capacity-scaling-config")
        })
        .await
        .map(drop)
}
