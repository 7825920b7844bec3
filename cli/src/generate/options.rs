//! Command line of `wva generate`.

use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use wva_objects::autoscaler::AutoscalerKind;
use wva_rules::KubernetesVersion;

use crate::arguments::{
    cluster_options, kube_version_option, namespace_option, option, output_option, parse_name, parse_url,
    value,
};
use crate::cluster::{DEPLOYMENTS, LEADER_WORKER_SETS, Resource, STATEFUL_SETS};

const HELP: &str = "\
It finds model, accelerator, GPUs and bounds in the pod template of a workload.
Each value that you did not set has a comment with its source above it. Check
these values, then apply the output. It changes nothing.

If an HPA or ScaledObject scales the workload already, wva prints that object
with its name and bounds, and wva_desired_replicas as its only metric.

Examples:
  wva generate llama -n prod > llama.yaml && wva validate llama.yaml
  wva generate StatefulSet/llama -n prod --autoscaler keda | kubectl apply -f -
  wva generate -f manifests/ --cost 40.0
  helm template my-release ./chart | wva generate -f -

Exit code: 0 all objects are printed, 1 a workload lacks a value (standard error
names the flag that sets it), 2 wrong usage or an unreadable path, 3 the cluster
cannot be read.";

/// Values that replace what the workload says.
#[derive(Clone, Debug, Default)]
pub(super) struct Options {
    pub(super) name: Option<String>,
    pub(super) model_id: Option<String>,
    pub(super) accelerator: Option<String>,
    pub(super) cost: Option<String>,
    pub(super) min: Option<u64>,
    pub(super) max: Option<u64>,
    pub(super) autoscaler: Option<AutoscalerKind>,
    /// URL of Prometheus for KEDA.
    pub(super) prometheus: Option<String>,
    pub(super) kubernetes: Option<KubernetesVersion>,
}

/// `[KIND/]NAME`.
#[derive(Debug)]
pub(super) struct WorkloadReference {
    pub(super) resource: &'static Resource,
    pub(super) name: String,
}

pub(crate) fn command() -> Command {
    let count = |name, help| option(name, "REPLICAS", help).value_parser(value_parser!(u32));
    let command = Command::new("generate")
        .about("Print a VariantAutoscaling and autoscaler for a model server")
        .after_help(HELP)
        .arg(
            Arg::new("workload")
                .value_name("[KIND/]NAME")
                .required_unless_present("filename")
                .help("Workload of the model server: Deployment (default), StatefulSet or LeaderWorkerSet"),
        )
        .arg(
            option("filename", "FILE", "Manifests instead of a cluster, as for `wva validate`; - is standard input")
                .short('f')
                .value_parser(value_parser!(PathBuf))
                .action(ArgAction::Append),
        )
        .arg(namespace_option(
            "Cluster: namespace of the workload, by default that of the kubeconfig; files: namespace of objects without one",
        ))
        .arg(
            option("autoscaler", "KIND", "Kind of the autoscaler; default: that of the workload, else hpa")
                .value_parser(["hpa", "keda"]),
        )
        .arg(output_option(&["yaml", "json"]))
        .arg(
            option("name", "NAME", "Name of the VariantAutoscaling; default: that of the workload")
                .value_parser(parse_name),
        )
        .arg(
            option("model-id", "MODEL", "Name of the model, as in the label model_name of vLLM's metrics")
                .value_parser(NonEmptyStringValueParser::new()),
        )
        .arg(
            option("accelerator", "NAME", "Accelerator of a replica, such as H100")
                .value_parser(NonEmptyStringValueParser::new()),
        )
        .arg(option("cost", "COST", "Cost of a replica in your unit, such as 40.0").value_parser(parse_cost))
        .arg(count("min", "Least replicas"))
        .arg(count("max", "Most replicas"))
        .arg(option("prometheus", "URL", "Prometheus that KEDA queries").value_parser(parse_url))
        .arg(kube_version_option().help(
            "Version of Kubernetes that the output is for, such as 1.34; default: that of the cluster",
        ));
    ["kubeconfig", "context", "as"].into_iter().fold(cluster_options(command), |command, id| {
        command.mut_arg(id, |arg| arg.conflicts_with("filename"))
    })
}

/// Parses a cost as rule WVA-VA-003 requires it.
fn parse_cost(text: &str) -> Result<String, String> {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if text.splitn(2, '.').all(is_number) {
        Ok(text.to_owned())
    } else {
        Err(format!("{text:?} is not a decimal number; use one such as 40.0 without sign, unit or exponent"))
    }
}

impl Options {
    pub(super) fn new(arguments: &ArgMatches) -> Self {
        let text = |name: &str| value(arguments, name).map(str::to_owned);
        let count = |name: &str| arguments.get_one::<u32>(name).copied().map(u64::from);
        Self {
            name: text("name"),
            model_id: text("model-id"),
            accelerator: text("accelerator"),
            cost: text("cost"),
            min: count("min"),
            max: count("max"),
            autoscaler: value(arguments, "autoscaler").map(|kind| match kind {
                "keda" => AutoscalerKind::ScaledObject,
                _ => AutoscalerKind::Hpa,
            }),
            prometheus: text("prometheus"),
            kubernetes: arguments.get_one("kube-version").copied(),
        }
    }

    /// Options that name one object, so that they need one workload.
    pub(super) fn name_one_workload(&self) -> bool {
        self.name.is_some()
    }
}

impl WorkloadReference {
    /// Kinds as kubectl writes them: `sts/a`, `statefulset.apps/a`.
    ///
    /// # Errors
    /// The kind is unknown.
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        let (kind, name) = text.split_once('/').unwrap_or(("deployment", text));
        let kind = kind.split('.').next().unwrap_or_default().to_ascii_lowercase();
        let resource = match kind.as_str() {
            "deployment" | "deployments" | "deploy" => &DEPLOYMENTS,
            "statefulset" | "statefulsets" | "sts" => &STATEFUL_SETS,
            "leaderworkerset" | "leaderworkersets" | "lws" => &LEADER_WORKER_SETS,
            "llminferenceservice" | "inferenceservice" => anyhow::bail!(
                "{text:?}: name the Deployment or LeaderWorkerSet that KServe created, or pass the manifest with -f"
            ),
            _ => anyhow::bail!("{text:?}: the kind is not Deployment, StatefulSet or LeaderWorkerSet"),
        };
        anyhow::ensure!(!name.is_empty(), "{text:?}: the name is empty");
        Ok(Self { resource, name: name.to_owned() })
    }
}
