//! Cost of the webhooks for the creation of a variant. The same object is created in turn with both webhooks, with one
//! call, and in a namespace without webhooks (`kube-system`), one create at a time, so that other load affects all alike.
//! The metrics of the API server and of the program show where the time goes.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use wva_crds::VariantAutoscaling;
use wva_testbed::install::Install;
use wva_testbed::install::program::series;
use wva_testbed::{Testbed, within};

use super::admission::NEW;
use super::review;
use crate::report::percentile;

/// Number of measured creates of each kind, and of those before them.
const PAIRS: usize = 500;
const WARM_UP: usize = 50;

/// Namespace without webhooks.
const UNJUDGED: &str = "kube-system";
/// Webhook configuration, variant and label of the creates with one call.
const ONE_CALL: &str = "bench-one-call";
const LABEL: &str = "bench";
/// Webhook of the validating call.
const VALIDATE: &str = "validate.va.llmd.ai";

const CALL: Duration = Duration::from_secs(10);

/// Results of the pairs. Times in milliseconds.
#[derive(Debug)]
pub(super) struct Pairs {
    /// Whether etcd synced every change to disk, as in production.
    pub(super) fsync: bool,
    /// Median and 99th percentile of a create with webhooks.
    pub(super) judged: [f64; 2],
    /// The same with the validating call alone: the floor of any webhook.
    pub(super) one_call: [f64; 2],
    /// The same without webhooks.
    pub(super) unjudged: [f64; 2],
    /// Mean duration of the two webhook calls, measured by the API server: mutating, validating.
    pub(super) calls: [f64; 2],
    /// Mean duration of one review, measured by the program.
    pub(super) review: f64,
}

impl Pairs {
    /// Ratio of the median create times with and without webhooks.
    pub(super) fn ratio(&self) -> f64 {
        self.judged[0] / self.unjudged[0]
    }

    /// The same with one call.
    pub(super) fn ratio_of_one_call(&self) -> f64 {
        self.one_call[0] / self.unjudged[0]
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "etcdFsync": self.fsync, "pairs": PAIRS, "ratioOfMedians": self.ratio(),
            "ratioOfOneCall": self.ratio_of_one_call(),
            "milliseconds": {
                "judged": {"p50": self.judged[0], "p99": self.judged[1]},
                "oneCall": {"p50": self.one_call[0], "p99": self.one_call[1]},
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
    configure_one_call(&client).await?;
    let side =
        |namespace: &str, name: &str| -> anyhow::Result<(Api<VariantAutoscaling>, VariantAutoscaling)> {
            let mut object: VariantAutoscaling = serde_json::from_value(review::good(namespace, name))?;
            object.metadata.labels.get_or_insert_default().insert(LABEL.to_owned(), name.to_owned());
            Ok((Api::namespaced(client.clone(), namespace), object))
        };
    let sides = [side(namespace, NEW)?, side(UNJUDGED, ONE_CALL)?, side(UNJUDGED, NEW)?];
    let mut took = [const { Vec::new() }; 3];
    let mut before = None;
    for i in 0..WARM_UP + PAIRS {
        if i == WARM_UP {
            before = Some(ReviewDurations::so_far(testbed, install).await?);
        }
        // The order changes: the watches of a create delay the next call.
        for which in [[0, 1, 2], [2, 0, 1], [1, 2, 0], [2, 1, 0], [0, 2, 1], [1, 0, 2]][i % 6] {
            let (api, object) = &sides[which];
            let start = Instant::now();
            within("creating a variant", CALL, api.create(&PostParams::default(), object)).await?;
            if i >= WARM_UP {
                took[which].push(start.elapsed());
            }
        }
        for (api, object) in &sides {
            let name = object.metadata.name.as_deref().unwrap_or_default();
            within("deleting a variant", CALL, api.delete(name, &DeleteParams::default())).await?;
        }
    }
    let before = before.context("no pair was measured")?;
    let spent = ReviewDurations::so_far(testbed, install).await?;
    let [judged, one_call, unjudged] =
        took.map(|took| [50, 99].map(|percent| percentile(&took, percent).as_secs_f64() * 1e3));
    Ok(Pairs {
        fsync,
        judged,
        one_call,
        unjudged,
        calls: [
            spent.mutating.mean_since(&before.mutating)?,
            spent.validating.mean_since(&before.validating)?,
        ],
        review: spent.reviews.mean_since(&before.reviews)?,
    })
}

/// Adds a webhook like wva's validating one, for the variants in [`UNJUDGED`] with the label.
async fn configure_one_call(client: &Client) -> anyhow::Result<()> {
    let api: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let all = within("listing webhooks", CALL, api.list(&ListParams::default())).await?;
    let of_all = all.items.into_iter().filter_map(|configuration| configuration.webhooks).flatten();
    let own =
        of_all.into_iter().find(|webhook| webhook.name == VALIDATE).context("wva registered no webhook")?;
    let mut webhook = serde_json::to_value(own)?;
    webhook["name"] = json!("one-call.bench.llmd.ai");
    webhook["namespaceSelector"] = json!({"matchLabels": {"kubernetes.io/metadata.name": UNJUDGED}});
    webhook["objectSelector"] = json!({"matchLabels": {LABEL: ONE_CALL}});
    let configuration =
        serde_json::from_value(json!({"metadata": {"name": ONE_CALL}, "webhooks": [webhook]}))?;
    within("creating a webhook", CALL, api.create(&PostParams::default(), &configuration)).await?;
    Ok(())
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
            validating: call(VALIDATE)?,
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
