//! Faults of Prometheus, pods, the API server, etcd, clocks and replicas, each for minutes, with load, a live HPA and
//! steady reviews. Nothing may scale down that the load needs, no variant may have two publishers, no invalid object
//! may be admitted, the conditions must report what fails, and scaling must resume afterwards. Prints a row for each.

mod kind;
mod model;
mod refusals;
mod row;
mod site;

use std::path::Path;
use std::time::Duration;

use anyhow::ensure;
use futures::future::try_join_all;
use wva_testbed::install::InstallOptions;
use wva_testbed::{NodeGroup, Options, Testbed};

pub(crate) use self::kind::Kind;
use self::model::OutageModel;
use self::row::Row;
pub(crate) use self::site::Site;
use crate::command::print_line;
use crate::report::Report;

/// Cycle interval. Other times of the program keep the ratio of their defaults to 60 s.
const INTERVAL: Duration = Duration::from_secs(15);
const SETTINGS: [(&str, &str); 6] = [
    ("GLOBAL_OPT_INTERVAL", "15s"),
    ("PROMETHEUS_METRICS_CACHE_FETCH_INTERVAL", "7500ms"),
    ("PROMETHEUS_METRICS_CACHE_TTL", "7500ms"),
    ("PROMETHEUS_METRICS_CACHE_FRESH_THRESHOLD", "15s"),
    ("PROMETHEUS_METRICS_CACHE_STALE_THRESHOLD", "30s"),
    ("PROMETHEUS_METRICS_CACHE_UNAVAILABLE_THRESHOLD", "75s"),
];
/// Age from which a value is ignored.
const STALE: Duration = Duration::from_secs(30);

/// Runs all kinds, or those whose names contain one of `only`, for `lasts` each.
pub(crate) async fn run(wva: &Path, lasts: Duration, only: &[String]) -> anyhow::Result<()> {
    let wanted = |kinds: &[Kind]| -> Vec<Kind> {
        let is_wanted = |kind: &Kind| only.is_empty() || only.iter().any(|only| kind.name().contains(only));
        kinds.iter().copied().filter(is_wanted).collect()
    };
    let (of_pods, of_all) = (wanted(&Kind::OF_PODS), wanted(&Kind::OF_ALL));
    ensure!(!(of_pods.is_empty() && of_all.is_empty()), "no fault has {only:?} in its name");
    let testbed = Testbed::start(Options {
        name: "outages".to_owned(),
        scrape_interval: Duration::from_secs(5),
        hpa_sync: Duration::from_secs(5),
        // Half of the nodes are drained while earlier models end.
        nodes: vec![NodeGroup { gpus: 32, ..NodeGroup::new("h100", 4, "NVIDIA-H100-80GB-HBM3") }],
        ..Options::default()
    })
    .await?;
    let site = Site::start(&testbed, InstallOptions::new(wva).with(&SETTINGS)).await?;

    print_line(&format!("each fault lasts {lasts:?}; a cycle every {INTERVAL:?}\n"))?;
    Row::print_head()?;
    let mut report = Report::default();
    let models = try_join_all(of_pods.iter().map(|kind| OutageModel::start(&site, *kind))).await?;
    for row in try_join_all(models.iter().map(|model| model.suffer(lasts))).await? {
        row.judge(&mut report)?;
    }
    for model in models {
        model.end().await?;
    }
    for kind in of_all {
        let model = OutageModel::start(&site, kind).await?;
        match model.suffer(lasts).await {
            Ok(row) => row.judge(&mut report)?,
            Err(error) => report.require(false, || format!("{}: {error:#}", kind.name())),
        }
        model.end().await?;
    }
    report.end()
}
