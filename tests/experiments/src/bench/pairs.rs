//! What the webhooks cost whoever creates a variant: the same object is created in turn in a namespace that they judge
//! and in one that they never see (`kube-system`), one call at a time, so that whatever else the machine does hits
//! both alike. Where the time goes is read from the API server's own metrics and from the program's.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, PostParams};
use serde_json::{Value, json};
use wva_crds::VariantAutoscaling;
use wva_testbed::install::Install;
use wva_testbed::{Testbed, within};

use super::review;
use super::stored::NEW;

/// Pairs that count, and pairs before them that do not: connections are opened and caches of the API server filled.
const PAIRS: usize = 500;
const WARM_UP: usize = 50;

/// No webhook entry looks at it.
const UNJUDGED: &str = "kube-system";

const CALL: Duration = Duration::from_secs(10);

/// What the pairs showed. Times in milliseconds.
#[derive(Debug)]
pub(super) struct Pairs {
    /// etcd wrote every change through to the disk, as it does outside of tests.
    pub(super) fsync: bool,
    /// Median and 99th percentile of a create that the webhooks judge.
    pub(super) judged: [f64; 2],
    /// The same of one that they do not see.
    pub(super) unjudged: [f64; 2],
    /// What the two calls took on average, as the API server saw them: mutating, validating.
    pub(super) calls: [f64; 2],
    /// What one review took on average in the program.
    pub(super) review: f64,
}

impl Pairs {
    /// How much longer a create takes with the webhooks: of the medians.
    pub(super) fn ratio(&self) -> f64 {
        self.judged[0] / self.unjudged[0]
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "etcdFsync": self.fsync, "pairs": PAIRS, "ratioOfMedians": self.ratio(),
            "milliseconds": {
                "judged": {"p50": self.judged[0], "p99": self.judged[1]},
                "unjudged": {"p50": self.unjudged[0], "p99": self.unjudged[1]},
                "mutatingCallMean": self.calls[0], "validatingCallMean": self.calls[1],
                "reviewMean": self.review,
            },
        })
    }
}

/// Creates and deletes the variant of the one workload in `namespace` that has none.
pub(super) async fn measure(
    testbed: &Testbed,
    install: &Install,
    namespace: &str,
    fsync: bool,
) -> anyhow::Result<Pairs> {
    let client = testbed.admin()?;
    let resource = ApiResource::erase::<VariantAutoscaling>(&());
    let side = |namespace: &str| -> anyhow::Result<(Api<DynamicObject>, DynamicObject)> {
        let api = Api::namespaced_with(client.clone(), namespace, &resource);
        Ok((api, serde_json::from_value(review::good(namespace, NEW))?))
    };
    let sides = [side(namespace)?, side(UNJUDGED)?];
    let mut took = [Vec::new(), Vec::new()];
    let mut before = None;
    for i in 0..WARM_UP + PAIRS {
        if i == WARM_UP {
            before = Some(Spent::so_far(testbed, install).await?);
        }
        // Each goes first in turn: the watches that tell of a create make work for the next call.
        for which in if i % 2 == 0 { [0, 1] } else { [1, 0] } {
            let (api, object) = &sides[which];
            let start = Instant::now();
            within("creating a variant", CALL, api.create(&PostParams::default(), object)).await?;
            if i >= WARM_UP {
                took[which].push(start.elapsed());
            }
        }
        for (api, _) in &sides {
            within("deleting a variant", CALL, api.delete(NEW, &DeleteParams::default())).await?;
        }
    }
    let before = before.context("no pair was measured")?;
    let spent = Spent::so_far(testbed, install).await?;
    let [judged, unjudged] = took.map(percentiles);
    Ok(Pairs {
        fsync,
        judged,
        unjudged,
        calls: [
            spent.mutating.mean_since(&before.mutating)?,
            spent.validating.mean_since(&before.validating)?,
        ],
        review: spent.reviews.mean_since(&before.reviews)?,
    })
}

/// Median and 99th percentile, in milliseconds.
fn percentiles(mut took: Vec<Duration>) -> [f64; 2] {
    took.sort_unstable();
    [took.len() / 2, took.len() * 99 / 100].map(|i| took[i].as_secs_f64() * 1e3)
}

/// Sum and count of a histogram.
struct Sum {
    seconds: f64,
    count: f64,
}

impl Sum {
    /// Milliseconds.
    fn mean_since(&self, before: &Self) -> anyhow::Result<f64> {
        let count = self.count - before.count;
        ensure!(count >= 1.0, "nothing was counted: the webhooks did not judge what they should have");
        Ok((self.seconds - before.seconds) / count * 1e3)
    }
}

/// What reviews took so far, by both sides' own clocks.
struct Spent {
    mutating: Sum,
    validating: Sum,
    reviews: Sum,
}

impl Spent {
    async fn so_far(testbed: &Testbed, install: &Install) -> anyhow::Result<Self> {
        let text = testbed.kubectl(&["get", "--raw", "/metrics"]).await?.success()?;
        let call = |entry: &str| -> anyhow::Result<Sum> {
            let value = |part: &str| -> anyhow::Result<f64> {
                let name = format!("apiserver_admission_webhook_admission_duration_seconds_{part}{{");
                let of = |line: &&str| {
                    line.starts_with(&name)
                        && line.contains(&format!("name=\"{entry}\""))
                        && line.contains("operation=\"CREATE\"")
                };
                let line =
                    text.lines().find(of).with_context(|| format!("the API server did not call {entry}"))?;
                line.rsplit_once(' ').context("a series without a value")?.1.parse().context("no number")
            };
            Ok(Sum { seconds: value("sum")?, count: value("count")? })
        };
        let labels = [("operation", "CREATE"), ("resource", "variantautoscalings")];
        let own = async |part: &str| -> anyhow::Result<f64> {
            let name = format!("wva_admission_review_duration_seconds_{part}");
            install.series(&name, &labels).await?.with_context(|| format!("wva has no {name}"))
        };
        Ok(Self {
            mutating: call("mutate.va.llmd.ai")?,
            validating: call("validate.va.llmd.ai")?,
            reviews: Sum { seconds: own("sum").await?, count: own("count").await? },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_sorted_times() {
        let took = (1..=100).rev().map(Duration::from_millis).collect();
        assert_eq!(format!("{:?}", percentiles(took)), "[51.0, 100.0]");
    }

    #[test]
    fn a_mean_is_of_what_came_since() -> anyhow::Result<()> {
        let before = Sum { seconds: 1.0, count: 10.0 };
        assert!((Sum { seconds: 1.5, count: 110.0 }.mean_since(&before)? - 5.0).abs() < 1e-9);
        assert!(before.mean_since(&before).is_err(), "nothing was measured");
        Ok(())
    }
}
