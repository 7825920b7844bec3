//! Arguments that several commands share, and access to their values.

use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use wva_crds::settings::{Kind, is_name};
use wva_rules::KubernetesVersion;
use wva_runtime::client::KubeOptions;

/// Heading of the options that all commands with a cluster share.
const CLUSTER: &str = "Cluster";

pub(crate) fn option(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

pub(crate) fn file_option(name: &'static str, help: &'static str) -> Arg {
    option(name, "FILE", help).value_parser(value_parser!(PathBuf))
}

/// Version of the cluster, for fields that only some versions have. The name is Helm's.
pub(crate) fn kube_version_option() -> Arg {
    let help = "Version of Kubernetes that the manifests are for, such as 1.34";
    option("kube-version", "VERSION", help).value_parser(value_parser!(KubernetesVersion))
}

pub(crate) fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

pub(crate) fn paths(min: usize, help: &'static str) -> Arg {
    let paths = Arg::new("path").value_name("PATH").value_parser(value_parser!(PathBuf)).help(help);
    paths.num_args(min..).required(min > 0)
}

/// VariantAutoscalings by name, as in kubectl.
pub(crate) fn names_argument() -> Arg {
    let names = Arg::new("name").value_name("NAME").num_args(0..).value_parser(parse_name);
    names.help("VariantAutoscalings; default: all")
}

pub(crate) fn namespace_option(help: &'static str) -> Arg {
    option("namespace", "NAMESPACE", help).short('n').value_parser(parse_label)
}

/// Name of an object that may have dots.
pub(crate) fn parse_name(text: &str) -> Result<String, String> {
    let remedy = "use lower-case letters, digits, '-' and '.'";
    if is_name(text, true) { Ok(text.to_owned()) } else { Err(format!("{text:?} is not a name; {remedy}")) }
}

/// Name of a namespace or a Service, which has no dots.
pub(crate) fn parse_label(text: &str) -> Result<String, String> {
    let remedy = "use at most 63 lower-case letters, digits and '-'";
    if is_name(text, false) { Ok(text.to_owned()) } else { Err(format!("{text:?} is not a name; {remedy}")) }
}

pub(crate) fn parse_url(text: &str) -> Result<String, String> {
    Kind::Url.parse(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// Options of kubectl that choose the cluster, for every command that reaches one.
pub(crate) fn cluster_options(command: Command) -> Command {
    command
        .arg(
            file_option("kubeconfig", "Path of the kubeconfig; default: KUBECONFIG, then ~/.kube/config")
                .help_heading(CLUSTER),
        )
        .arg(option("context", "CONTEXT", "Context of the kubeconfig").help_heading(CLUSTER))
        .arg(option("as", "USER", "User to impersonate").help_heading(CLUSTER))
}

/// [`cluster_options`], and those that choose VariantAutoscalings.
pub(crate) fn object_options(command: Command) -> Command {
    let namespace = "Namespace of the VariantAutoscalings; default: that of the kubeconfig's context";
    cluster_options(
        command
            .arg(namespace_option(namespace).help_heading(CLUSTER).conflicts_with("all-namespaces"))
            .arg(
                flag("all-namespaces", "VariantAutoscalings of all namespaces")
                    .short('A')
                    .help_heading(CLUSTER),
            )
            .arg(
                option("selector", "SELECTOR", "Label selector of the VariantAutoscalings")
                    .short('l')
                    .help_heading(CLUSTER),
            ),
    )
}

pub(crate) fn kube_options(arguments: &ArgMatches) -> KubeOptions {
    KubeOptions {
        kubeconfig: path_value(arguments, "kubeconfig").map(Path::to_owned),
        context: value(arguments, "context").map(str::to_owned),
        impersonate: value(arguments, "as").map(str::to_owned),
    }
}

/// `-o`, with its old name `--format`; the first format is the default.
pub(crate) fn output_option(formats: &'static [&'static str]) -> Arg {
    option("output", "FORMAT", "Output format")
        .short('o')
        .alias("format")
        .value_parser(formats.to_vec())
        .default_value(formats[0])
}

pub(crate) fn output_format(arguments: &ArgMatches) -> &str {
    value(arguments, "output").unwrap_or_default()
}

pub(crate) fn values<'a>(arguments: &'a ArgMatches, name: &str) -> Vec<&'a str> {
    arguments.get_many::<String>(name).into_iter().flatten().map(String::as_str).collect()
}

pub(crate) fn value<'a>(arguments: &'a ArgMatches, name: &str) -> Option<&'a str> {
    arguments.get_one::<String>(name).map(String::as_str)
}

pub(crate) fn path_value<'a>(arguments: &'a ArgMatches, name: &str) -> Option<&'a Path> {
    arguments.get_one::<PathBuf>(name).map(PathBuf::as_path)
}

/// `; similar: a, b`, or nothing if no known name is near.
pub(crate) fn similar_names<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    /// Most differing characters.
    const MAX_DISTANCE: usize = 2;
    let mut near: Vec<(usize, &str)> =
        known.map(|known| (strsim::osa_distance(name, known), known)).collect();
    near.sort_unstable();
    let least = near.first().map_or(0, |(distance, _)| *distance).min(MAX_DISTANCE);
    let near = near.iter().take_while(|(distance, _)| *distance <= least).take(3);
    let near: Vec<&str> = near.map(|(_, known)| *known).collect();
    if near.is_empty() { String::new() } else { format!("; similar: {}", near.join(", ")) }
}
