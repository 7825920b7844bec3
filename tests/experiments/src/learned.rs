//! Decision of the throughput analyzer on a variant: its trace and its figures.

use anyhow::{Context as _, ensure};
use serde_json::Value;
use wva_testbed::Engine;
use wva_testbed::install::get;

/// Number of samples from which times count as learned.
const ENOUGH: f64 = 4.0;

/// One decision.
pub(crate) struct LearnedDecision {
    pub(crate) target: u64,
    /// Step of the analyzer, as `wva explain` prints it.
    pub(crate) trace: String,
    /// Requests a second.
    pub(crate) arrivals: f64,
    /// Learned times of the engine.
    pub(crate) times: Engine,
    pub(crate) samples: f64,
    /// Requests a second of a replica, as planned.
    pub(crate) throughput: f64,
    /// Pods that are named as slow.
    pub(crate) slow: Vec<String>,
}

impl LearnedDecision {
    pub(crate) fn is_learnt(&self) -> bool {
        self.samples >= ENOUGH
    }
}

/// Newest decision; `None` before the first one, with another analyzer, or if a cycle ran between the two requests.
pub(crate) async fn read(
    address: &str,
    namespace: &str,
    name: &str,
) -> anyhow::Result<Option<LearnedDecision>> {
    let url = format!("http://{address}/explain?namespace={namespace}&name={name}");
    let (status, text) = get(&url).await?;
    if status != 200 {
        // No cycle yet, or none with this variant.
        return Ok(None);
    }
    let (status, json) = get(&format!("{url}&format=json")).await?;
    ensure!(status == 200, "{url} as JSON: {status}");
    if get(&url).await?.1 != text {
        // Trace and figures would belong to two decisions.
        return Ok(None);
    }
    let json: Value = serde_json::from_str(&json)?;
    let Some(decision) = json["decisions"].get(0) else { return Ok(None) };
    let steps = decision["steps"].as_array().context("a decision without steps")?;
    let Some(figures) = steps.iter().map(|step| &step["figures"]).find(|f| f["arrivals"].is_number()) else {
        return Ok(None);
    };
    let figure =
        |name: &str| figures[name].as_f64().with_context(|| format!("no figure {name} in {figures}"));
    let slow = steps.iter().filter(|step| step["reason"] == "SlowReplicas").flat_map(|step| {
        let pods = step["figures"]["pods"].as_array().into_iter().flatten();
        pods.filter_map(|pod| pod.as_str().map(str::to_owned))
    });
    let trace = text.lines().map(str::trim).find(|line| line.starts_with("analyze "));
    Ok(Some(LearnedDecision {
        target: decision["target"].as_u64().context("a decision without a target")?,
        trace: trace.unwrap_or_default().to_owned(),
        arrivals: figure("arrivals")?,
        times: Engine { a: figure("a")?, b: figure("b")?, c: figure("c")? },
        samples: figure("samples")?,
        throughput: figure("throughput")?,
        slow: slow.collect(),
    }))
}
