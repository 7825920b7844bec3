//! `wva migrate`: converts objects of llm-d WVA and prints the manifests to apply. It changes nothing.

pub(super) mod autoscaler;
mod blueprint;
mod destination;
mod entry;
mod global_maps;
mod maps;
pub(super) mod objects;
mod options;
mod plan;
mod step;
mod values;
mod variant;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgMatches, Command};
use options::PlanOptions;
use plan::{Plan, plan};
use serde_json::{Value, json};
use wva_objects::{Target, WorkloadKey, api_group};
use wva_rules::KubernetesVersion;

use super::cluster::{
    AUTOSCALERS, CONFIG_MAPS, Cluster, ListError, ObjectId, PROMETHEUS_RULES, Resource, SCALED_OBJECTS,
    VARIANTS, WORKLOADS, id, text,
};
use super::installs::{is_local_name, list_config_maps, list_deployments};
use super::validate::{SourceObject, read_kinds};
use super::workloads::Workloads;
use crate::arguments::{
    flag, kube_version_option, object_options, option, output_format, output_option, parse_label, parse_name,
    paths, value,
};
use crate::output::{self, count, printable};

const HELP: &str = "\
PATH is a file, a directory (all *.yaml, *.yml and *.json below it), a quoted
pattern or - for standard input. In files, -n is the namespace of objects
without one (default: default). Without a PATH it reads the cluster. It converts
VariantAutoscalings of v0.8 and older, and HPAs and ScaledObjects with the
annotations of v0.9 (llm-d.ai/managed, llm-d.ai/model-id,
llm-d.ai/variant-cost). ScaledObjects of llm-d's KEDA blueprints (queue,
saturation, token-aware, slo-aware) become a VariantAutoscaling, an entry with
what their thresholds and recording rules say, and a ScaledObject that follows
the target; comments say what each figure became. Objects that need no change
are not printed.

A controller reads global ConfigMaps in its own namespace only: settings,
saturation thresholds, scale to zero, service classes. With
--controller-namespace those of llm-d WVA are printed for the namespace of wva,
under the names that wva reads. With --release, the settings and the saturation
map become values of the chart, because Helm renders these maps: print them with
-o values. If wva is installed already, both options have its namespace and
release as their default. Of several maps for one purpose, the one that llm-d
WVA read is moved. Saturation entries without an analyzer get analyzerName:
percentage, which is what they mean.

To run this controller next to llm-d WVA, pass --recommend: it adds the
annotation wva.llmd.ai/mode: recommend to every variant. The controller then
decides and explains, but publishes nothing. docs/guides/migrate-from-llm-d.md
has the whole procedure.

Examples:
  wva migrate manifests/ > migrated.yaml && wva validate migrated.yaml
  wva migrate -A --recommend --controller-namespace wva | kubectl apply -f -
  wva migrate -A --controller-namespace wva --release wva -o values > new.yaml
  kubectl get hpa -n prod -o yaml | wva migrate -
  wva migrate scaledobject.yaml prometheus-rule.yaml deployment.yaml

Exit code: 0 the output is complete, 1 some objects need a manual change first
(see standard error), 2 wrong usage or an unreadable path, 3 the cluster cannot
be read.";

pub(crate) fn command() -> Command {
    let command = Command::new("migrate")
        .about("Convert objects of llm-d WVA and KEDA, as manifests to apply")
        .after_help(HELP)
        .arg(paths(0, "Manifests of llm-d WVA; default: read the cluster"))
        .arg(flag(
            "recommend",
            "Set wva.llmd.ai/mode: recommend on every variant, even if it needs no other change",
        ))
        .arg(
            option(
                "controller-namespace",
                "NAMESPACE",
                "Namespace of wva, for the global ConfigMaps; default: that of the only installed wva",
            )
            .value_parser(parse_label),
        )
        .arg(
            option("release", "NAME", "Helm release of wva, whose chart renders some of these maps")
                .requires("controller-namespace")
                .value_parser(parse_name),
        )
        .arg(kube_version_option())
        .arg(
            output_option(&["yaml", "json", "name", "values"])
                .help("Output format; values is a values file of the chart for maps that Helm renders"),
        );
    ["selector", "all-namespaces", "kubeconfig", "context", "as"]
        .into_iter()
        .fold(object_options(command), |command, id| command.mut_arg(id, |arg| arg.conflicts_with("path")))
}

pub(super) fn migrate(arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    let paths: Vec<PathBuf> = arguments.get_many("path").into_iter().flatten().cloned().collect();
    let namespace = value(arguments, "namespace");
    let mut options = PlanOptions {
        recommend: arguments.get_flag("recommend"),
        from_cluster: paths.is_empty(),
        kubernetes: arguments.get_one("kube-version").copied(),
        controller_namespace: value(arguments, "controller-namespace"),
        release: value(arguments, "release"),
    };
    if paths.is_empty() {
        let ClusterObjects { objects, workloads, kubernetes } = super::block_on(read_cluster(arguments))?;
        options.kubernetes = options.kubernetes.or(kubernetes);
        return print_plan(&plan(&objects, &workloads, options), output_format(arguments));
    }
    match read_kinds(&paths, namespace.unwrap_or("default"), is_read) {
        Ok((objects, problems)) => {
            let mut plan = plan(&objects, &workloads_among(&objects), options);
            plan.unresolved.extend(problems);
            print_plan(&plan, output_format(arguments))
        }
        Err(error) => Ok(output::wrong_usage(error)),
    }
}

/// Recording rules have what triggers of a blueprint read.
fn is_read(api_version: &str, kind: &str) -> bool {
    let read = [&VARIANTS, &CONFIG_MAPS, &AUTOSCALERS, &SCALED_OBJECTS, &PROMETHEUS_RULES];
    let is_kind = |known: &&Resource| known.group == api_group(api_version) && known.kind == kind;
    read.into_iter().chain(WORKLOADS).any(|known| is_kind(&known))
}

fn workloads_among(objects: &[SourceObject]) -> Workloads {
    let mut workloads = Workloads::default();
    for SourceObject { namespace, object, .. } in objects {
        let mut object = object.clone();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("namespace".to_owned(), json!(namespace));
        }
        workloads.add(object);
    }
    workloads
}

struct ClusterObjects {
    objects: Vec<SourceObject>,
    workloads: Workloads,
    kubernetes: Option<KubernetesVersion>,
}

/// Warns about an old CRD.
#[expect(clippy::print_stderr, reason = "notes are not part of the manifests")]
async fn read_cluster(arguments: &ArgMatches) -> anyhow::Result<ClusterObjects> {
    let cluster = Cluster::connect(arguments).await?;
    let selector = value(arguments, "selector").unwrap_or_default();
    let mut objects = Vec::new();
    match cluster.list_labelled(&VARIANTS, selector).await {
        Err(error) if error.is_kind_missing() => {}
        list => objects.extend(list?),
    }
    // The selector chooses variants, and with them the autoscalers of their workloads.
    let targets = targets(&objects);
    for kind in [&AUTOSCALERS, &SCALED_OBJECTS] {
        match cluster.list(kind).await {
            Err(error) if error.is_kind_missing() => {}
            list => objects.extend(list?.into_iter().filter(|object| {
                selector.is_empty() || workload_key(object).is_some_and(|key| targets.contains(&key))
            })),
        }
    }
    match cluster.list(&PROMETHEUS_RULES).await {
        Err(error) if error.is_kind_missing() => {}
        Err(error) => {
            eprintln!("wva: PrometheusRules are not read, so objectives in them are missing: {error}");
        }
        Ok(rules) => objects.extend(rules),
    }
    objects.extend(read_maps(&cluster, value(arguments, "controller-namespace")).await?);
    let objects = objects.into_iter().map(|object| {
        let ObjectId { namespace, name } = id(&object);
        SourceObject { place: format!("{} {namespace}/{name}", text(&object, "/kind")), namespace, object }
    });
    let objects = objects.collect();
    match cluster.missing_crd_fields().await {
        Ok(missing) if missing.is_empty() => {}
        Ok(missing) => eprintln!(
            "wva: the installed CustomResourceDefinition is older and lacks {}. Update it first:\n  {}",
            missing.join(", "),
            cluster.crd_update().await
        ),
        Err(error) => {
            eprintln!("wva: {error}. Do this first:\n  wva crd | kubectl apply --server-side -f -");
        }
    }
    let (workloads, kubernetes) = (Workloads::read(&cluster).await, cluster.kubernetes_version().await);
    Ok(ClusterObjects { objects, workloads, kubernetes })
}

/// Deployments of controllers and ConfigMaps. Global maps are in other namespaces than the variants.
#[expect(clippy::print_stderr, reason = "notes are not part of the manifests")]
async fn read_maps(cluster: &Cluster, controller_namespace: Option<&str>) -> anyhow::Result<Vec<Value>> {
    let everywhere = Cluster { namespace: None, ..cluster.clone() };
    let found = async |cluster: &Cluster| {
        let mut objects = list_deployments(cluster).await?;
        let namespaces = objects.iter().map(|deployment| id(deployment).namespace);
        let namespaces: Vec<String> = namespaces.chain(controller_namespace.map(str::to_owned)).collect();
        objects.extend(list_config_maps(cluster, namespaces).await?);
        Ok::<_, ListError>(objects)
    };
    let objects = match found(&everywhere).await {
        Err(error @ ListError::Forbidden { .. }) if cluster.namespace.is_some() => {
            eprintln!(
                "wva: ConfigMaps of other namespaces are not read, so global ones are missing: {error}"
            );
            found(cluster).await?
        }
        objects => objects?,
    };
    // A local map of another namespace was not asked for.
    let is_chosen = |object: &Value| {
        let ObjectId { namespace, name } = id(object);
        cluster.namespace.as_ref().is_none_or(|only| *only == namespace)
            || !is_local_name(&name)
            || objects.iter().any(|other| id(other).namespace == namespace && !is_local_name(&id(other).name))
    };
    Ok(objects.iter().filter(|object| is_chosen(object)).cloned().collect())
}

fn targets(variants: &[Value]) -> BTreeSet<WorkloadKey> {
    // Variants of the first releases do not name their workload.
    variants.iter().filter_map(|variant| workload_key(&variant::convert(variant).object)).collect()
}

/// The workload that a variant or an autoscaler scales.
fn workload_key(object: &Value) -> Option<WorkloadKey> {
    let target = Target::from_object(object)?;
    Some(WorkloadKey::for_target(&id(object).namespace, &target))
}

/// Prints manifests to standard output and the summary to standard error.
#[expect(clippy::print_stderr, reason = "the summary is not part of the manifests")]
fn print_plan(plan: &Plan, format: &str) -> anyhow::Result<ExitCode> {
    let objects = plan.steps.iter().map(|step| &step.object);
    if format == "values" && !plan.has_chart {
        return Ok(output::wrong_usage(anyhow::anyhow!(
            "-o values needs a Helm release: pass --controller-namespace and --release"
        )));
    }
    output::print(&match format {
        "json" => output::structured(
            &json!({"apiVersion": "v1", "kind": "List", "items": objects.collect::<Vec<_>>()}),
            format,
        )?,
        "name" => objects.map(|object| qualified_name(object) + "\n").collect(),
        "values" => values(plan)?,
        _ => manifests(plan)?,
    })?;
    eprint!("{}", summary(plan, format));
    Ok(if plan.unresolved.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// `deployment.apps/llama`, as kubectl prints it.
fn qualified_name(object: &Value) -> String {
    let kind = text(object, "/kind").to_lowercase();
    let group = api_group(text(object, "/apiVersion"));
    let dot = if group.is_empty() { "" } else { "." };
    format!("{kind}{dot}{group}/{}", text(object, "/metadata/name"))
}

/// Objects to apply; origin and changes are comments.
fn manifests(plan: &Plan) -> anyhow::Result<String> {
    let mut out = String::new();
    for step in &plan.steps {
        out.push_str("---\n");
        let _ = writeln!(out, "# from {}:", printable(&step.place));
        for change in &step.changes {
            let _ = writeln!(out, "# - {}", printable(change));
        }
        out.push_str(&output::yaml(&step.object)?);
    }
    Ok(out)
}

/// A values file; origin and changes are comments.
fn values(plan: &Plan) -> anyhow::Result<String> {
    let mut out = String::new();
    for (place, changes) in &plan.values.sources {
        let _ = writeln!(out, "# from {}", printable(place));
        for change in changes {
            let _ = writeln!(out, "# - {}", printable(change));
        }
    }
    if !plan.values.sources.is_empty() {
        out.push_str(&output::yaml(&plan.values.values)?);
    }
    Ok(out)
}

fn summary(plan: &Plan, format: &str) -> String {
    let mut out = format!(
        "wva: {} of llm-d WVA: {} to apply, {} need no change. Nothing was applied.\n",
        count(plan.read, "object"),
        plan.steps.len(),
        plan.unchanged
    );
    let values = plan.values.sources.len();
    if values > 0 && format != "values" {
        let maps = count(values, "ConfigMap");
        let _ = writeln!(
            out,
            "{maps} must become values of the chart: print them with -o values, and pass them to Helm with the last -f."
        );
    }
    if !plan.unresolved.is_empty() {
        let problems = count(plan.unresolved.len(), "problem");
        let _ = writeln!(out, "Fix {problems} by hand, then run this command again:");
    }
    for problem in &plan.unresolved {
        let _ = writeln!(out, "  {}", printable(problem));
    }
    out
}

#[cfg(test)]
mod tests;
