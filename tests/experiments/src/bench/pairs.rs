//! Cost of the webhooks for the creation of a variant. The same object is created alternately in a namespace with
//! webhooks and in one without (`kube-system`), one call at a time, so that other load affects both alike. The
//! metrics of the API server and of the program show where the time goes.

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

/// Number of measured pairs, and of warm-up pairs before them.
const PAIRS: usize = 500;
const WARM_UP: usize = 50;

/// Namespace without webhooks.
const UNJUDGED: &str = "kube-system";

const CALL: Duration = Duration::from_secs(10);

/// Results of the pairs. Times in milliseconds.
#[derive(Debug)]
pub(super) struct Pairs {
    /// Whether etcd synced every change to disk, as in production.
    pub(super) fsync: bool,
    /// Median and 99th percentile of a create with webhooks.
    pub(super) judged: [f64; 2],
    /// The same without webhooks.
    pub(super) unjudged: [f64; 2],
    /// Mean duration of the two webhook calls, measured by the API server: mutating, validating.
    pub(super) calls: [f64; 2],
    /// Mean duration of one review, measured by the program.
    pub(super) review: f64,
}

impl Pairs {
    /// Difference of the median create times with and without webhooks.
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

/// Creates and deletes the variant of the workload in `namespace` that has none.
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
        // The order alternates: the watches of a create delay the next call.
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
    /// Mean since an earlier reading, milliseconds.
    fn mean_since(&self, before: &Self) -> anyhow::Result<f64> {
        let count = self.count - before.count;
        ensure!(count >= 1.0, "no review was counted: the API server did not call the webhooks");
        Ok((self.seconds - before.seconds) / count * 1e3)
    }
}

/// Total review durations so far, measured by the API server and by the program.
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
    fn mean_covers_time_since_earlier_reading() -> anyhow::Result<()> {
        let before = Sum { seconds: 1.0, count: 10.0 };
        assert!((Sum { seconds: 1.5, count: 110.0 }.mean_since(&before)? - 5.0).abs() < 1e-9);
        assert!(before.mean_since(&before).is_err(), "nothing was measured");
        Ok(())
    }
}
