//! What the webhooks add to the creation of a variant: the same object is created in turn in a namespace that they judge
//! and in one that they never see (`kube-system`), one call at a time, so that whatever else the machine does hits
//! both alike. Where the time goes is read from the API server's own metrics and from the program's.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use wva_crds::VariantAutoscaling;
use wva_testbed::install::Install;
use wva_testbed::install::program::series;
use wva_testbed::{Testbed, within};

use super::admission::NEW;
use super::review;
use crate::report::percentile;

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
    let side = |namespace: &str| -> anyhow::Result<(Api<VariantAutoscaling>, VariantAutoscaling)> {
        Ok((
            Api::namespaced(client.clone(), namespace),
            serde_json::from_value(review::good(namespace, NEW))?,
        ))
    };
    let sides = [side(namespace)?, side(UNJUDGED)?];
    let mut took = [Vec::new(), Vec::new()];
    let mut before = None;
    for i in 0..WARM_UP + PAIRS {
        if i == WARM_UP {
            before = Some(ReviewDurations::so_far(testbed, install).await?);
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
    let spent = ReviewDurations::so_far(testbed, install).await?;
    let [judged, unjudged] =
        took.map(|took| [50, 99].map(|percent| percentile(&took, percent).as_secs_f64() * 1e3));
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
struct ReviewDurations {
    mutating: Sum,
    validating: Sum,
    reviews: Sum,
}

impl ReviewDurations {
    async fn so_far(testbed: &Testbed, install: &Install) -> anyhow::Result<Self> {
        let text = testbed.kubectl(&["get", "--raw", "/metrics"]).await?.success()?;
        let own = install.metrics().await?;
        let sum = |page: &str, name: &str, labels: &[(&str, &str)]| -> anyhow::Result<Sum> {
            let part = |part: &str| {
                let name = format!("{name}_seconds_{part}");
                series(page, &name, labels)?.with_context(|| format!("no {name} of {labels:?}"))
            };
            Ok(Sum { seconds: part("sum")?, count: part("count")? })
        };
        let create = ("operation", "CREATE");
        let call = |entry: &str| {
            sum(&text, "apiserver_admission_webhook_admission_duration", &[("name", entry), create])
        };
        let reviews = [create, ("resource", "variantautoscalings")];
        Ok(Self {
            mutating: call("mutate.va.llmd.ai")?,
            validating: call("validate.va.llmd.ai")?,
            reviews: sum(&own, "wva_admission_review_duration", &reviews)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_is_of_what_came_since() -> anyhow::Result<()> {
        let before = Sum { seconds: 1.0, count: 10.0 };
        assert!((Sum { seconds: 1.5, count: 110.0 }.mean_since(&before)? - 5.0).abs() < 1e-9);
        assert!(before.mean_since(&before).is_err(), "nothing was measured");
        Ok(())
    }
}
