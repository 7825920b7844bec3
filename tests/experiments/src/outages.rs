//! Outages of Prometheus, each for minutes, while the load falls unobserved. Nothing may scale down, the conditions
//! must report the outage, and scaling must resume afterwards. Prints a row for each kind.

mod model;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::future::try_join_all;
use wva_testbed::install::{Install, InstallOptions};
use wva_testbed::{Component, ExportFault, FaultProxy, Options, ProxyMode, Testbed};

use self::model::{OutageModel, Row};
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

/// Kind of outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Prometheus does not run.
    Down,
    /// Answers 503.
    Unavailable,
    /// Accepts requests and answers none.
    Hung,
    /// Frozen process: the kernel accepts connections, and Prometheus never answers.
    Frozen,
    /// Answers every query with an empty result.
    Empty,
    /// The pods report NaN.
    NotANumber,
    /// All scrapes of pods fail, so that the metrics become stale.
    Stale,
    /// Scrapes of half the pods fail.
    Half,
}

impl Kind {
    /// Faults of Prometheus affect every model, and run one after the other.
    const OF_PROMETHEUS: [Self; 5] = [Self::Down, Self::Unavailable, Self::Hung, Self::Frozen, Self::Empty];
    /// Faults of pods affect one model each, and run in parallel.
    const OF_PODS: [Self; 3] = [Self::NotANumber, Self::Stale, Self::Half];

    fn name(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Unavailable => "503",
            Self::Hung => "hung",
            Self::Frozen => "frozen",
            Self::Empty => "empty",
            Self::NotANumber => "NaN",
            Self::Stale => "stale",
            Self::Half => "half the targets",
        }
    }

    /// Time limit for the conditions to report it: two cycles after the program can detect it.
    fn reported_within(self) -> Option<Duration> {
        let cycles = INTERVAL * 2;
        match self {
            Self::Down | Self::Unavailable => Some(cycles),
            // A query fails after its time-out.
            Self::Hung | Self::Frozen => Some(cycles + Duration::from_secs(10)),
            // A missing value counts as an outage once the last one is stale.
            Self::Empty | Self::Stale => Some(cycles + STALE),
            // The one-minute maximum is valid until all samples of the minute are NaN.
            Self::NotANumber => Some(cycles + STALE + Duration::from_mins(1)),
            // The other half shows the load; the reason of each decision names the gap.
            Self::Half => None,
        }
    }
}

/// Runs all kinds, or those whose names contain `only`, for `lasts` each.
pub(crate) async fn run(wva: &Path, lasts: Duration, only: Option<&str>) -> anyhow::Result<()> {
    let wanted = |kinds: &[Kind]| -> Vec<Kind> {
        kinds.iter().copied().filter(|kind| only.is_none_or(|only| kind.name().contains(only))).collect()
    };
    let (of_pods, of_prometheus) = (wanted(&Kind::OF_PODS), wanted(&Kind::OF_PROMETHEUS));
    ensure!(!(of_pods.is_empty() && of_prometheus.is_empty()), "no outage has {only:?} in its name");
    let testbed = Testbed::start(Options {
        name: "outages".to_owned(),
        scrape_interval: Duration::from_secs(5),
        hpa_sync: Duration::from_secs(5),
        ..Options::default()
    })
    .await?;
    let behind = testbed.prometheus_url()?;
    let proxy = FaultProxy::open(behind.strip_prefix("http://").context("an URL without a scheme")?).await?;
    let options =
        InstallOptions::new(wva).with(&[("PROMETHEUS_BASE_URL", proxy.url().as_str())]).with(&SETTINGS);
    let install = Install::start(&testbed, &options).await?;

    print_line(&format!("each outage lasts {lasts:?}; a cycle every {INTERVAL:?}"))?;
    print_line(
        "outage | scale-downs | gaps in the series | reported after | safety net after | back after | scaled down after | kept",
    )?;
    let mut report = Report::default();
    let all = of_pods.iter().map(|kind| OutageModel::start(&testbed, &install, *kind));
    let models = try_join_all(all).await?;
    let rows =
        try_join_all(models.iter().map(|model| model.suffer(lasts, async |on| model.of_pods(on)))).await?;
    for (kind, row) in of_pods.iter().zip(rows) {
        row.judge(*kind, &mut report)?;
    }
    drop(models);
    for kind in of_prometheus {
        let model = OutageModel::start(&testbed, &install, kind).await?;
        let row = model.suffer(lasts, async |on| of_prometheus_is(kind, on, &testbed, &proxy).await).await?;
        row.judge(kind, &mut report)?;
    }
    report.end()
}

/// Begins or ends an outage of Prometheus.
async fn of_prometheus_is(kind: Kind, on: bool, testbed: &Testbed, proxy: &FaultProxy) -> anyhow::Result<()> {
    match (kind, on) {
        (Kind::Down, true) => testbed.prometheus_stop().await,
        (Kind::Down, false) => testbed.prometheus_start().await,
        (Kind::Frozen, true) => testbed.pause(Component::Prometheus),
        (Kind::Frozen, false) => testbed.resume(Component::Prometheus),
        (kind, on) => {
            proxy.set(match kind {
                _ if !on => ProxyMode::Open,
                Kind::Unavailable => ProxyMode::Unavailable,
                Kind::Hung => ProxyMode::Hung,
                _ => ProxyMode::Empty,
            });
            Ok(())
        }
    }
}

impl OutageModel<'_> {
    /// Begins or ends an outage of this model's pods.
    fn of_pods(&self, on: bool) -> anyhow::Result<()> {
        let pods = self.fleet.pods();
        ensure!(pods.len() == OutageModel::REPLICAS, "{} pods are there", pods.len());
        let (share, fault) = match self.kind {
            Kind::NotANumber => (pods.len(), ExportFault::NotANumber),
            Kind::Half => (pods.len() / 2, ExportFault::Down),
            _ => (pods.len(), ExportFault::Down),
        };
        pods.iter().take(share).for_each(|pod| self.fleet.set_fault(&pod.pod, on.then_some(fault)));
        Ok(())
    }
}

impl Row {
    /// Prints the row, and checks the bounds of its kind.
    fn judge(&self, kind: Kind, report: &mut Report) -> anyhow::Result<()> {
        let seconds =
            |after: Option<Duration>| after.map_or("-".to_owned(), |d| format!("{} s", d.as_secs()));
        // One poll per second, and a round of queries that may just have begun.
        let slack = Duration::from_secs(9);
        let is_within =
            |after: Option<Duration>, most: Duration| after.is_some_and(|after| after <= most + slack);
        let reported = kind.reported_within().is_none_or(|most| is_within(self.reported, most));
        let back = is_within(self.back, INTERVAL * 2);
        let kept = self.scale_downs == 0 && self.gaps == 0 && reported && back && self.reason_seen;
        let times = [self.reported, self.safety_net, self.back, self.scaled_down].map(seconds);
        let row = format!("{} | {} | {} | {}", kind.name(), self.scale_downs, self.gaps, times.join(" | "));
        print_line(&format!("{row} | {}", if kept { "yes" } else { "NO" }))?;
        report.require(kept, || row);
        Ok(())
    }
}
