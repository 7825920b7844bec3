//! `wva version`: releases of the program, the cluster, the CRD and the installed controllers.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::{ArgMatches, Command};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use wva_crds::envelope::{self, FileKind};

use crate::Program;
use crate::arguments::{cluster_options, flag, output_format, output_option};
use crate::cluster::{ApiError, CRD, Cluster, DEPLOYMENTS, ObjectId, entry, id, items, text};
use crate::leader::CONTROLLER_PODS;
use crate::output::{self, NoAnswer, print, printable};

pub(crate) fn command() -> Command {
    let command = Command::new("version")
        .about("Print the releases of wva and of what the cluster has")
        .after_help(
            "Examples:\n  wva version\n  wva version --client\n  wva version -o json\n\n\
             Exit code: 0 printed, 2 wrong usage, 3 the cluster cannot be reached.",
        )
        .arg(flag("client", "Only this program, without a cluster"))
        .arg(output_option(&["text", "json", "yaml"]));
    cluster_options(command)
}

/// Report of `wva version -o json`.
#[derive(Debug, Serialize, JsonSchema)]
struct Versions<'a> {
    /// This program.
    client: &'a Program,
    /// Absent with `--client`, and if the cluster does not answer.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    cluster: Option<ClusterVersions>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ClusterVersions {
    /// API server.
    server: Server,
    /// Installed CustomResourceDefinition.
    crd: Crd,
    /// Installed controllers.
    controllers: Vec<Controller>,
    /// Why controllers are unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// API server.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Server {
    /// URL of the API server.
    url: String,
    /// Release of Kubernetes.
    git_version: String,
}

/// The installed CustomResourceDefinition.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Crd {
    /// Whether the CRD is installed.
    installed: bool,
    /// Versions of the CRD.
    versions: Vec<String>,
    /// Fields of this release that the CRD lacks.
    missing_fields: Vec<String>,
    /// Why the CRD is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// A Deployment of the controller.
#[derive(Debug, Serialize, JsonSchema)]
struct Controller {
    /// Namespace of the Deployment.
    namespace: String,
    /// Name of the Deployment.
    name: String,
    /// Image of the controller.
    image: String,
    /// Name and version of the Helm chart; empty without Helm.
    chart: String,
}

/// JSON Schema of the report.
pub(crate) fn schema() -> Value {
    envelope::schema::<Versions<'_>>(FileKind::VersionReport, false)
}

pub(crate) fn version(arguments: &ArgMatches, program: &Program) -> anyhow::Result<ExitCode> {
    let cluster = if arguments.get_flag("client") {
        None
    } else {
        match crate::block_on(read_cluster(arguments)) {
            Ok(versions) => Some(versions),
            Err(error) => {
                print(&render(&Versions { client: program, cluster: None }, output_format(arguments))?)?;
                return Err(error);
            }
        }
    };
    print(&render(&Versions { client: program, cluster }, output_format(arguments))?)?;
    Ok(ExitCode::SUCCESS)
}

async fn read_cluster(arguments: &ArgMatches) -> anyhow::Result<ClusterVersions> {
    let cluster = Cluster::connect_everywhere(arguments).await?;
    let answer = cluster.get("/version").await.map_err(|ApiError { message, .. }| NoAnswer(message))?;
    let server = Server { url: cluster.server.clone(), git_version: text(&answer, "/gitVersion").to_owned() };
    let crd = read_crd(&cluster).await;
    let (controllers, error) = match cluster.list_labelled(&DEPLOYMENTS, CONTROLLER_PODS).await {
        Ok(deployments) => (deployments.iter().map(controller).collect(), None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    Ok(ClusterVersions { server, crd, controllers, error })
}

async fn read_crd(cluster: &Cluster) -> Crd {
    let object = match cluster.get(CRD).await {
        Ok(object) => object,
        Err(ApiError { code: 404, .. }) => return Crd::default(),
        Err(ApiError { message, .. }) => return Crd { error: Some(message), ..Crd::default() },
    };
    let versions =
        items(&object, "/spec/versions").map(|version| text(version, "/name").to_owned()).collect();
    let (missing_fields, error) = match cluster.missing_crd_fields().await {
        Ok(missing) => (missing, None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    Crd { installed: true, versions, missing_fields, error }
}

fn controller(deployment: &Value) -> Controller {
    let ObjectId { namespace, name } = id(deployment);
    let container = items(deployment, "/spec/template/spec/containers").next();
    let image = container.map(|container| text(container, "/image")).unwrap_or_default().to_owned();
    let chart = entry(deployment, "/metadata/labels", "helm.sh/chart").unwrap_or_default().to_owned();
    Controller { namespace, name, image, chart }
}

fn render(versions: &Versions<'_>, format: &str) -> anyhow::Result<String> {
    if matches!(format, "json" | "yaml") {
        return output::report(FileKind::VersionReport, versions, format);
    }
    let Program { version, revision, rustc, .. } = versions.client;
    let mut out = format!("Client: wva {version} (revision {revision}, rustc {rustc})\n");
    let Some(ClusterVersions { server, crd, controllers, error }) = &versions.cluster else { return Ok(out) };
    let _ = writeln!(out, "Server: Kubernetes {} at {}", printable(&server.git_version), server.url);
    let _ = writeln!(out, "CRD: {}", describe_crd(crd));
    for Controller { namespace, name, image, chart } in controllers {
        let chart = if chart.is_empty() { String::new() } else { format!(", chart {chart}") };
        let line = format!("Controller: {namespace}/{name}, image {image}{chart}");
        let _ = writeln!(out, "{}", printable(&line));
    }
    if let Some(error) = error {
        let _ = writeln!(out, "Controller: unknown: {}", printable(error));
    } else if controllers.is_empty() {
        out.push_str("Controller: no Deployment with its labels\n");
    }
    Ok(out)
}

fn describe_crd(crd: &Crd) -> String {
    match crd {
        Crd { error: Some(error), .. } => format!("unknown: {}", printable(error)),
        Crd { installed: false, .. } => "not installed".to_owned(),
        Crd { versions, missing_fields, .. } if missing_fields.is_empty() => {
            format!("{}, all fields of this release", printable(&versions.join(", ")))
        }
        Crd { versions, missing_fields, .. } => {
            let versions = printable(&versions.join(", "));
            format!("{versions}, older: it lacks {}", missing_fields.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_what_is_installed() {
        let crd = Crd { installed: true, versions: vec!["v1alpha1".to_owned()], ..Crd::default() };
        let deployment = serde_json::json!({
            "metadata": {"namespace": "wva", "name": "c", "labels": {"helm.sh/chart": "wva-0.1.0"}},
            "spec": {"template": {"spec": {"containers": [{"image": "registry/wva:v1"}]}}},
        });
        let cluster = ClusterVersions {
            server: Server { url: "https://api".to_owned(), git_version: "v1.36.0".to_owned() },
            crd,
            controllers: vec![controller(&deployment)],
            error: None,
        };
        let client =
            Program { version: "1.0.0", revision: "abc", rustc: "1.95", command: Command::new("wva") };
        let versions = Versions { client: &client, cluster: Some(cluster) };
        let want = "Client: wva 1.0.0 (revision abc, rustc 1.95)
Server: Kubernetes v1.36.0 at https://api
CRD: v1alpha1, all fields of this release
Controller: wva/c, image registry/wva:v1, chart wva-0.1.0
";
        assert_eq!(render(&versions, "text").unwrap(), want);
        let text = render(&versions, "json").unwrap();
        crate::assert_schema(FileKind::VersionReport, &text);
        let json: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["client"]["version"], "1.0.0");
        assert_eq!(json["controllers"][0]["chart"], "wva-0.1.0");
        assert_eq!(json["server"]["gitVersion"], "v1.36.0");
    }
}
