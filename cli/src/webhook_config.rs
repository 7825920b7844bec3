//! `wva webhook-config`: prints the webhook configurations and the APIService, to keep them in Git. The output depends
//! only on the command line.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Arg, ArgMatches, Command};
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use wva_crds::names::{MAIN_MAP_NAME, SATURATION_MAP_NAMES, SCALE_TO_ZERO_MAP_NAMES, SERVICE_CLASS_MAP_NAME};
use wva_crds::settings::Setting;
use wva_rules::InstancePolicy;
use wva_webhook::registration::{
    ConfigurationOptions, FailurePolicy, render_configurations, render_registered,
};

use super::output::{self, yaml};
use crate::arguments::{file_option, flag, option, output_format, output_option, path_value, value};

const MAX_BUNDLE: u64 = 1 << 20;

const HELP: &str = "\
The defaults match config/base. For a Helm release, pass the names of its
objects: --webhook-service <fullname>-webhook-service, --config-map-name
<fullname>-variantautoscaling-config, and so on.

Without --ca-file the output has no caBundle. The leader adds it within seconds
after its start; until then the API server refuses VariantAutoscalings under
--failure-policy Fail. With the Helm value wva.webhook.register=false the leader
does not add it: pass --ca-file.

--without-rules prints the configurations without rules, as the chart creates
them: the API server calls no webhook until the leader adds rules and caBundle.
Configure your GitOps tool to ignore the fields of the field manager
wva-webhook.

Examples:
  wva webhook-config > webhooks.yaml
  wva webhook-config --namespace wva --controller-instance blue
  wva webhook-config --ca-file ca.crt | kubectl apply --server-side -f -

Exit code: 0 printed, 2 wrong usage, or a CA file that cannot be read or used.";

pub(crate) fn command() -> Command {
    let command = Command::new("webhook-config")
        .about("Print the webhook configurations, and the APIService")
        .after_help(HELP);
    install_options(command)
        .arg(policy("failure-policy", "Fail", "Failure policy for VariantAutoscalings"))
        .arg(policy("config-map-failure-policy", "Ignore", "Failure policy for ConfigMaps"))
        .arg(file_option("ca-file", "CA bundle (PEM) for caBundle"))
        .arg(
            flag("without-rules", "Leave out rules and caBundle, which the leader then adds")
                .conflicts_with("ca-file"),
        )
        .arg(flag(
            "external-metrics",
            "Add the APIService of external.metrics.k8s.io; a cluster has only one",
        ))
        .arg(output_option(&["yaml", "json"]))
}

fn install_options(command: Command) -> Command {
    command
        .arg(
            setting("POD_NAMESPACE", "namespace", "NAMESPACE", "Namespace of the controller")
                .short('n')
                .default_value("workload-variant-autoscaler-system"),
        )
        .arg(
            setting("WEBHOOK_SERVICE", "webhook-service", "SERVICE", "Service of the webhooks")
                .default_value("workload-variant-autoscaler-webhook-service"),
        )
        .arg(setting(
            "WEBHOOK_CONFIGURATION",
            "webhook-configuration",
            "NAME",
            "Name of both webhook configurations [default: <namespace>-<service without -service>]",
        ))
        .arg(controller_setting("CONTROLLER_INSTANCE", "controller-instance", "INSTANCE"))
        .arg(
            option("instance-policy", "POLICY", "What an instance does with objects without its label")
                .value_parser(["inject", "require", "ignore"])
                .default_value("inject"),
        )
        .arg(controller_setting("WATCH_NAMESPACE", "watch-namespace", "NAMESPACE"))
        .arg(controller_setting("CONFIG_MAP_NAME", "config-map-name", "NAME").default_value(MAIN_MAP_NAME))
        .arg(controller_setting("SATURATION_CONFIG_MAP_NAME", "saturation-config-map-name", "NAME"))
        .arg(controller_setting("SERVICE_CLASS_CONFIG_MAP_NAME", "service-class-config-map-name", "NAME"))
}

/// The help is the key of the setting.
fn controller_setting(key: &'static str, name: &'static str, value: &'static str) -> Arg {
    setting(key, name, value, "").help(format!("{key} of the controller"))
}

/// Accepts only valid values of a setting; the API server would refuse others.
fn setting(key: &'static str, name: &'static str, value: &'static str, help: &'static str) -> Arg {
    option(name, value, help).value_parser(move |text: &str| match Setting::by_key(key) {
        _ if text.is_empty() => Err("empty: write a name, or leave the option out".to_owned()),
        Some(setting) => setting.kind.parse(text).map(|_| text.to_owned()).map_err(|e| e.to_string()),
        None => Ok(text.to_owned()),
    })
}

fn policy(name: &'static str, default: &'static str, help: &'static str) -> Arg {
    option(name, "POLICY", help).value_parser(["Fail", "Ignore"]).default_value(default)
}

pub(super) fn webhook_config(arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    let value = |name: &str| value(arguments, name);
    let bundle =
        path_value(arguments, "ca-file").map(read_bundle).transpose().map_err(output::WrongOption)?;
    let (namespace, service) =
        (value("namespace").unwrap_or_default(), value("webhook-service").unwrap_or_default());
    let name = value("webhook-configuration")
        .map_or_else(|| default_configuration_name(namespace, service), str::to_owned);
    let maps = entry_maps(value("saturation-config-map-name"), value("service-class-config-map-name"));
    let options = ConfigurationOptions {
        name: &name,
        service,
        namespace,
        instance: value("controller-instance"),
        policy: match value("instance-policy") {
            Some("require") => InstancePolicy::Require,
            Some("ignore") => InstancePolicy::Ignore,
            _ => InstancePolicy::Inject,
        },
        watch_namespace: value("watch-namespace"),
        variants: failure_policy(value("failure-policy")),
        config_maps: failure_policy(value("config-map-failure-policy")),
        main_config_map: value("config-map-name").unwrap_or(MAIN_MAP_NAME),
        entry_config_maps: &maps,
    };
    let list = if arguments.get_flag("without-rules") {
        render_configurations(&options)
    } else {
        render_registered(&options, bundle.as_deref())
    };
    let mut objects: Vec<Value> = list["items"].as_array().cloned().unwrap_or_default();
    if arguments.get_flag("external-metrics") {
        objects.push(api_service(namespace, service, bundle.as_deref()));
    }
    let text = if output_format(arguments) == "json" {
        output::structured(&json!({"apiVersion": "v1", "kind": "List", "items": objects}), "json")?
    } else {
        let documents = objects.iter().map(|object| Ok(format!("---\n{}", yaml(object)?)));
        documents.collect::<anyhow::Result<String>>()?
    };
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The chart's name for both configurations.
fn default_configuration_name(namespace: &str, service: &str) -> String {
    format!("{namespace}-{}", service.strip_suffix("-service").unwrap_or(service))
}

fn failure_policy(value: Option<&str>) -> FailurePolicy {
    if value == Some("Ignore") { FailurePolicy::Ignore } else { FailurePolicy::Fail }
}

/// Names of the ConfigMaps with entries in the controller's namespace, in the order of the chart.
fn entry_maps<'a>(saturation: Option<&'a str>, service_classes: Option<&'a str>) -> Vec<&'a str> {
    let defaults =
        SATURATION_MAP_NAMES.into_iter().chain(SCALE_TO_ZERO_MAP_NAMES).chain([SERVICE_CLASS_MAP_NAME]);
    let mut names: Vec<&str> = Vec::new();
    for name in saturation.into_iter().chain(defaults).chain(service_classes) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn api_service(namespace: &str, service: &str, bundle: Option<&[u8]>) -> Value {
    let mut object = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1beta1.external.metrics.k8s.io"},
        "spec": {
            "group": "external.metrics.k8s.io", "version": "v1beta1",
            "groupPriorityMinimum": 100, "versionPriority": 100,
            "service": {"name": service, "namespace": namespace, "port": 6443},
        },
    });
    if let Some(bundle) = bundle {
        object["spec"]["caBundle"] = json!(ByteString(bundle.to_vec()));
    }
    object
}

fn read_bundle(path: &Path) -> anyhow::Result<Vec<u8>> {
    let file = path.display();
    let unreadable = |error| output::UnreadableFile::new(path, error);
    let length = std::fs::metadata(path).map_err(unreadable).context("--ca-file")?.len();
    anyhow::ensure!(
        length <= MAX_BUNDLE,
        "--ca-file {file}: too large for a CA bundle ({length} bytes, at most {MAX_BUNDLE})"
    );
    let pem = std::fs::read(path).map_err(unreadable).context("--ca-file")?;
    let certificates = reqwest::Certificate::from_pem_bundle(&pem);
    let is_bundle = certificates.is_ok_and(|certificates| !certificates.is_empty());
    anyhow::ensure!(is_bundle, "--ca-file {file}: no certificate found; name a PEM file such as ca.crt");
    Ok(pem)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../config");

    fn documents(file: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(format!("{CONFIG}/{file}")).unwrap();
        serde_saphyr::from_multiple(&text).unwrap()
    }

    #[test]
    fn defaults_match_the_kustomize_base() {
        let maps = entry_maps(None, None);
        let (namespace, service) =
            ("workload-variant-autoscaler-system", "workload-variant-autoscaler-webhook-service");
        let options = ConfigurationOptions {
            name: &default_configuration_name(namespace, service),
            service,
            namespace,
            instance: None,
            policy: InstancePolicy::Inject,
            watch_namespace: None,
            variants: FailurePolicy::Fail,
            config_maps: FailurePolicy::Ignore,
            main_config_map: MAIN_MAP_NAME,
            entry_config_maps: &maps,
        };
        assert_eq!(render_configurations(&options)["items"], json!(documents("base/webhook.yaml")));
        assert_eq!(api_service(namespace, service, None), documents("external-metrics/apiservice.yaml")[0]);
    }

    #[test]
    fn registration_adds_only_rules_and_bundle() {
        let maps = entry_maps(Some("own"), Some("classes"));
        assert_eq!((maps[0], maps[maps.len() - 1]), ("own", "classes"));
        let options = ConfigurationOptions {
            name: "n",
            service: "s",
            namespace: "ns",
            instance: Some("blue"),
            policy: InstancePolicy::Inject,
            watch_namespace: None,
            variants: FailurePolicy::Fail,
            config_maps: FailurePolicy::Ignore,
            main_config_map: "m",
            entry_config_maps: &maps,
        };
        let mut open = render_registered(&options, Some(b"pem"));
        let webhooks = open["items"].as_array_mut().unwrap().iter_mut();
        for webhook in webhooks.flat_map(|c| c["webhooks"].as_array_mut().unwrap().iter_mut()) {
            assert_eq!(webhook["rules"][0]["operations"], json!(["CREATE", "UPDATE"]));
            webhook.as_object_mut().unwrap().remove("rules").unwrap();
            let bundle = webhook["clientConfig"].as_object_mut().unwrap().remove("caBundle").unwrap();
            assert_eq!(bundle, "cGVt");
        }
        assert_eq!(open, render_configurations(&options));
    }
}
