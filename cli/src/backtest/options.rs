//! Command line of `wva backtest`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use wva_crds::GoDuration;
use wva_crds::settings::Kind;
use wva_simulator::backtest::plan::Span;
use wva_simulator::backtest::signals::Selector;
use wva_simulator::measure::Objectives;

use super::costs::Costs;
use crate::arguments::{
    cluster_options, file_option, flag, namespace_option, option, output_option, path_value, value, values,
};

const HELP: &str = "\
No cluster and no installed wva are needed: the command only reads, and only the
series of the model servers. It reconstructs requests, replicas and the speed of
the engine, and simulates the replicas that really ran. Hours in which this does
not show the measured latencies within 2 points are not judged, and are named.
docs/guides/backtest.md explains the method and its limits.

With --kubeconfig or --context it also reads the variantCost, minReplicas and
maxReplicas of the VariantAutoscalings in that cluster. A --cost that names a
model or its GPU counts more.

It prints the number of queries and samples before it starts. No answer has more
than a million samples, and one query runs at a time.

Examples:
  wva backtest --prometheus http://localhost:9090 --for 7d
  wva backtest --prometheus http://localhost:9090 --cost H100=2.5 --cost L4=0.8
  wva backtest --prometheus http://localhost:9090 -n prod --report page.html
  wva backtest --prometheus http://localhost:9090 --cache week.jsonl
  wva backtest --prometheus http://localhost:9090 --export w.jsonl --anonymous
  wva backtest --from w.jsonl --ttft-slo 2s --itl-slo 50ms
  wva backtest --prometheus http://localhost:9090 --context prod-cluster

Exit code: 0 a model has a verdict, 1 none has one or the report cannot be
written, 2 wrong usage or an unreadable file, 3 Prometheus does not answer.";

/// Most replicas of a policy: the best fixed fleet is searched up to them.
pub(super) const MAX_REPLICAS: u32 = 1000;

/// What the command line says.
#[derive(Clone, Debug)]
pub(super) struct Options {
    /// Length of the history.
    pub(super) length: Duration,
    /// End of the history, seconds since the epoch. Default: now.
    pub(super) until: Option<i64>,
    /// Scrape interval, seconds. Default: as found.
    pub(super) step: Option<u32>,
    pub(super) selector: Selector,
    pub(super) objectives: Objectives,
    /// Shares of the requests to keep, percent.
    pub(super) targets: Vec<f64>,
    pub(super) costs: Costs,
    /// Time from a decision to a serving replica, seconds. Default: as measured.
    pub(super) start: Option<f64>,
    pub(super) max_replicas: Option<u32>,
    pub(super) max_seqs: Option<usize>,
    pub(super) max_batched_tokens: u64,
    pub(super) cache: Option<PathBuf>,
    pub(super) from: Option<PathBuf>,
    pub(super) export: Option<PathBuf>,
    pub(super) is_anonymous: bool,
    pub(super) report: Option<PathBuf>,
    pub(super) is_tuned: bool,
}

pub(super) fn command() -> Command {
    let command = Command::new("backtest")
        .about("Judge policies on the traffic in your Prometheus")
        .after_help(HELP)
        .arg(option("for", "DURATION", "Length of the history, such as 7d or 36h").default_value("7d"))
        .arg(option("until", "TIME", "End of the history, such as 2026-11-30T12:00:00Z; default: now"))
        .arg(option("step", "DURATION", "Scrape interval of the model servers; default: as found"))
        .arg(namespace_option("Namespace of the models; default: all"))
        .arg(option("model", "MODEL", "Name of a model, as its servers report it; default: all"))
        .arg(option("ttft-slo", "DURATION", "Objective for the time to the first token").default_value("1s"))
        .arg(
            option("itl-slo", "DURATION", "Objective for the mean time between tokens of a request")
                .default_value("100ms"),
        )
        .arg(
            option("slo-target", "PERCENT", "Share of the requests for wva to keep; default: 95 and 99")
                .value_parser(value_parser!(f64))
                .action(ArgAction::Append),
        )
        .arg(
            option(
                "cost",
                "[NAME=]COST",
                "Cost of a replica for an hour, of all models or of one, or of a GPU such as H100; default: 1",
            )
            .action(ArgAction::Append),
        );
    let command = assumption_options(command)
        .arg(
            file_option("cache", "Keep what was read in this file, and go on from there")
                .conflicts_with("from"),
        )
        .arg(file_option("export", "Write what was read, for --from"))
        .arg(flag("anonymous", "Replace the names in the export").requires("export"))
        .arg(file_option("from", "Read an export in place of a Prometheus").conflicts_with("prometheus"))
        .arg(flag("tune", "Choose settings on the first 60 % of the judged hours, and show them on the rest"))
        .arg(file_option("report", "Write a self-contained HTML page with plots"))
        .arg(output_option(&["text", "json", "yaml"]));
    cluster_options(crate::prometheus::options(command))
        .mut_arg("prometheus", |arg: Arg| arg.required_unless_present("from"))
        .mut_arg("kubeconfig", |arg| {
            arg.help("Also read costs and bounds of VariantAutoscalings with this kubeconfig")
        })
        .mut_arg("context", |arg| arg.help("The same, with this context of the kubeconfig"))
}

/// What no series shows.
fn assumption_options(command: Command) -> Command {
    command
        .arg(option(
            "start",
            "DURATION",
            "Time from a decision to a serving replica; default: as measured, else 2m",
        ))
        .arg(
            option("max-replicas", "N", "Most replicas of a policy; default: twice as many as ran")
                .value_parser(value_parser!(u32).range(1..=i64::from(MAX_REPLICAS))),
        )
        .arg(
            option("max-seqs", "N", "--max-num-seqs of the servers; default: as seen, else 256")
                .value_parser(value_parser!(u32).range(1..)),
        )
        .arg(
            option("max-batched-tokens", "N", "--max-num-batched-tokens of the servers")
                .default_value("8192")
                .value_parser(value_parser!(u32).range(1..)),
        )
}

impl Options {
    /// # Errors
    /// A value is not valid.
    pub(super) fn read(arguments: &ArgMatches) -> anyhow::Result<Self> {
        let duration = |name: &'static str| -> anyhow::Result<Option<Duration>> {
            value(arguments, name)
                .map(|text| parse_duration(text).with_context(|| format!("--{name}")))
                .transpose()
        };
        let known = |name: &'static str| Ok::<_, anyhow::Error>(duration(name)?.unwrap_or_default());
        if let Some(url) = value(arguments, "prometheus") {
            Kind::Url.parse(url).context("--prometheus")?;
        }
        let targets = parse_targets(arguments)?;
        let step = duration("step")?.map(parse_step).transpose()?;
        let until = value(arguments, "until").map(|text| {
            text.parse::<wva_simulator::backtest::plan::Time>().map_err(|e| anyhow::anyhow!("--until: {e}"))
        });
        let path = |name| path_value(arguments, name).map(ToOwned::to_owned);
        Ok(Self {
            length: known("for")?,
            until: until.transpose()?.map(|time| time.0),
            step,
            selector: Selector {
                namespace: value(arguments, "namespace").map(str::to_owned),
                model: value(arguments, "model").map(str::to_owned),
            },
            objectives: Objectives {
                ttft: known("ttft-slo")?.as_secs_f64(),
                itl: known("itl-slo")?.as_secs_f64(),
                attainment: targets.first().map_or(0.99, |target| target / 100.0),
            },
            targets: if targets.is_empty() { vec![95.0, 99.0] } else { targets },
            costs: Costs::parse(&values(arguments, "cost"))?,
            start: duration("start")?.map(|start| start.as_secs_f64()),
            max_replicas: arguments.get_one::<u32>("max-replicas").copied(),
            max_seqs: arguments.get_one::<u32>("max-seqs").map(|n| *n as usize),
            max_batched_tokens: arguments
                .get_one::<u32>("max-batched-tokens")
                .map_or(8192, |n| u64::from(*n)),
            cache: path("cache"),
            from: path("from"),
            export: path("export"),
            is_anonymous: arguments.get_flag("anonymous"),
            report: path("report"),
            is_tuned: arguments.get_flag("tune"),
        })
    }

    /// Span of the history.
    pub(super) fn span(&self, now: i64) -> Span {
        let to = self.until.unwrap_or(now);
        let from = to - i64::try_from(self.length.as_secs()).unwrap_or(0);
        Span { from, to }.aligned()
    }

    pub(super) fn nothing_found(&self) -> String {
        let of = match (&self.selector.namespace, &self.selector.model) {
            (None, None) => String::new(),
            (namespace, model) => {
                let parts = [
                    namespace.as_ref().map(|n| format!("namespace {n}")),
                    model.as_ref().map(|m| format!("model {m}")),
                ];
                format!(" of {}", parts.into_iter().flatten().collect::<Vec<_>>().join(" and "))
            }
        };
        format!(
            "no series of a model server{of} in this time: check --for, -n and --model, and that Prometheus scrapes the \
             pods (docs/guides/prometheus.md)"
        )
    }
}

/// Percentages; none: the default.
fn parse_targets(arguments: &ArgMatches) -> anyhow::Result<Vec<f64>> {
    let targets: Vec<f64> = arguments.get_many("slo-target").into_iter().flatten().copied().collect();
    if let Some(target) = targets.iter().find(|target| !(90.0..=99.9).contains(*target)) {
        bail!("--slo-target: {target} is not a share in percent that wva accepts: give 90 to 99.9");
    }
    Ok(targets)
}

/// A Go duration, or whole days such as `7d`.
fn parse_duration(text: &str) -> anyhow::Result<Duration> {
    let days = text.strip_suffix('d').and_then(|days| days.parse::<u32>().ok());
    let length = match days {
        Some(days) => Duration::from_hours(24) * days,
        None => text.parse::<GoDuration>().map(Duration::from).map_err(|e| anyhow::anyhow!("{e}"))?,
    };
    ensure!(!length.is_zero(), "{text:?} has no length: give a time such as 7d, 36h or 15s");
    Ok(length)
}

/// Seconds of `--step`.
fn parse_step(step: Duration) -> anyhow::Result<u32> {
    let step = u32::try_from(step.as_secs()).unwrap_or(u32::MAX);
    ensure!(
        (1..=300).contains(&step) && 300 % step == 0,
        "--step: {step} s is not a divisor of five minutes: give one such as 15s, 30s or 60s"
    );
    Ok(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(arguments: &[&str]) -> anyhow::Result<Options> {
        let all = [&["backtest", "--prometheus", "http://p"], arguments].concat();
        Options::read(&command().try_get_matches_from(all)?)
    }

    #[test]
    fn reads_days_and_spans() {
        let options = read(&["--for", "2d", "--cost", "2.5", "--until", "2026-11-30T12:01:00Z"]).unwrap();
        let span = options.span(0);
        assert_eq!((span.seconds(), span.to % 300), (2 * 86_400, 0));
        assert_eq!(options.targets, [95.0, 99.0]);
    }

    #[test]
    fn errors_name_option_value_and_remedy() {
        for (arguments, text) in [
            (["--for", "soon"], "--for"),
            (["--for", "0d"], "\"0d\" has no length"),
            (["--step", "7s"], "--step: 7 s is not a divisor"),
            (["--cost", "H100=x"], "--cost: \"H100=x\" is not a cost: give one such as 2.5"),
            (["--slo-target", "50"], "--slo-target: 50 is not a share"),
            (["--until", "noon"], "--until: "),
        ] {
            let error = format!("{:#}", read(&arguments).unwrap_err());
            assert!(error.contains(text), "{error}");
        }
    }
}
