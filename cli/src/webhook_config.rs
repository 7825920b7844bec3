//! `wva webhook-config`: the webhook configurations, and the APIService where it is wanted, as YAML for those who keep
//! them whole in Git. What is printed depends on the command line alone, so that it is the same everywhere.

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
use crate::arguments::{file, file_option, flag, option, word};

/// More than any bundle of CAs.
const BUNDLE: u64 = 1 << 20;

const HELP: &str = "\
The defaults are those of config/base. For a release of the Helm chart name what
it made: --webhook-service <fullname>-webhook-service, --config-map-name
<fullname>-variantautoscaling-config, and so on.

Without --ca-file the caBundle is left out: the leader fills it in within
seconds of its start, and until then objects are refused under --failure-policy
Fail. A release of the chart with wva.webhook.register=false leaves them alone:
there give --ca-file. --without-rules prints the objects as the chart has them:
nothing is refused before anybody can answer, and the leader adds rules and
caBundle. Tell your GitOps tool to leave to the field manager wva-webhook what
is its own.

Examples:
  wva webhook-config > webhooks.yaml
  wva webhook-config --namespace wva --webhook-service wva-webhook-service --controller-instance blue
  wva webhook-config --ca-file ca.crt --external-metrics | kubectl apply --server-side -f -";

/// The command line of `wva webhook-config`.
pub(crate) fn command() -> Command {
    let command = Command::new("webhook-config")
        .about("The webhook configurations, and the APIService, as YAML")
        .after_help(HELP);
    named(command)
        .arg(policy("failure-policy", "Fail", "For VariantAutoscalings, while no webhook answers"))
        .arg(policy("config-map-failure-policy", "Ignore", "For ConfigMaps, while no webhook answers"))
        .arg(file_option("ca-file", "CA bundle (PEM) to put in"))
        .arg(
            flag("without-rules", "Leave out rules and caBundle, which the leader then adds")
                .conflicts_with("ca-file"),
        )
        .arg(flag(
            "external-metrics",
            "The APIService of external.metrics.k8s.io too, of which a cluster has one",
        ))
}

/// The options that say of which install: names and settings of its controller.
fn named(command: Command) -> Command {
    command
        .arg(
            setting("POD_NAMESPACE", "namespace", "NAMESPACE", "Namespace of the controller")
                .short('n')
                .default_value("workload-variant-autoscaler-system"),
        )
        .arg(
            setting("WEBHOOK_SERVICE", "webhook-service", "SERVICE", "Service of the controller")
                .default_value("workload-variant-autoscaler-webhook-service"),
        )
        .arg(setting(
            "WEBHOOK_CONFIGURATION",
            "webhook-configuration",
            "NAME",
            "Name of both webhook configurations [default: <namespace>-<service without -service>]",
        ))
        .arg(of_controller("CONTROLLER_INSTANCE", "controller-instance", "INSTANCE"))
        .arg(
            option("instance-policy", "POLICY", "What the instance does with unlabelled objects")
                .value_parser(["inject", "require", "ignore"])
                .default_value("inject"),
        )
        .arg(of_controller("WATCH_NAMESPACE", "watch-namespace", "NAMESPACE"))
        .arg(of_controller("CONFIG_MAP_NAME", "config-map-name", "NAME").default_value(MAIN_MAP_NAME))
        .arg(of_controller("SATURATION_CONFIG_MAP_NAME", "saturation-config-map-name", "NAME"))
        .arg(of_controller("SERVICE_CLASS_CONFIG_MAP_NAME", "service-class-config-map-name", "NAME"))
}

/// A setting of the controller, as it is called there.
fn of_controller(key: &'static str, name: &'static str, value: &'static str) -> Arg {
    setting(key, name, value, "").help(format!("{key} of the controller"))
}

/// What only a valid value of a setting can be: the API server would refuse anything else in these objects.
fn setting(key: &'static str, name: &'static str, value: &'static str, help: &'static str) -> Arg {
    option(name, value, help).value_parser(move |found: &str| match Setting::by_key(key) {
        _ if found.is_empty() => Err("it is empty: write a name, or leave the option out".to_owned()),
        Some(setting) => setting.kind.parse(found).map(|_| found.to_owned()).map_err(|e| e.to_string()),
        None => Ok(found.to_owned()),
    })
}

fn policy(name: &'static str, default: &'static str, help: &'static str) -> Arg {
    option(name, "POLICY", help).value_parser(["Fail", "Ignore"]).default_value(default)
}

/// Runs the command.
pub(super) fn webhook_config(arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    let word = |name: &str| word(arguments, name);
    let bundle = file(arguments, "ca-file").map(bundle).transpose()?;
    let (namespace, service) =
        (word("namespace").unwrap_or_default(), word("webhook-service").unwrap_or_default());
    let name = word("webhook-configuration").map_or_else(|| configuration(namespace, service), str::to_owned);
    let maps = entry_maps(word("saturation-config-map-name"), word("service-class-config-map-name"));
    let options = ConfigurationOptions {
        name: &name,
        service,
        namespace,
        instance: word("controller-instance"),
        policy: match word("instance-policy") {
            Some("require") => InstancePolicy::Require,
            Some("ignore") => InstancePolicy::Ignore,
            _ => InstancePolicy::Inject,
        },
        watch_namespace: word("watch-namespace"),
        variants: failure_policy(word("failure-policy")),
        config_maps: failure_policy(word("config-map-failure-policy")),
        main_config_map: word("config-map-name").unwrap_or(MAIN_MAP_NAME),
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
    let documents = objects.iter().map(|object| Ok(format!("---\n{}", yaml(object)?)));
    output::print(&documents.collect::<anyhow::Result<String>>()?)?;
    Ok(ExitCode::SUCCESS)
}

/// As the chart names both.
fn configuration(namespace: &str, service: &str) -> String {
    format!("{namespace}-{}", service.strip_suffix("-service").unwrap_or(service))
}

fn failure_policy(word: Option<&str>) -> FailurePolicy {
    if word == Some("Ignore") { FailurePolicy::Ignore } else { FailurePolicy::Fail }
}

/// Every map of entries that is read in the controller's namespace, in the order of the chart.
fn entry_maps<'a>(saturation: Option<&'a str>, service_classes: Option<&'a str>) -> Vec<&'a str> {
    let known =
        SATURATION_MAP_NAMES.into_iter().chain(SCALE_TO_ZERO_MAP_NAMES).chain([SERVICE_CLASS_MAP_NAME]);
    let mut names: Vec<&str> = Vec::new();
    for name in saturation.into_iter().chain(known).chain(service_classes) {
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

/// The text of a CA bundle, if that is what the file holds.
fn bundle(path: &Path) -> anyhow::Result<Vec<u8>> {
    let shown = path.display();
    let length = std::fs::metadata(path).with_context(|| format!("--ca-file {shown}: cannot be read"))?.len();
    anyhow::ensure!(
        length <= BUNDLE,
        "--ca-file {shown}: found {length} bytes: a CA bundle is a few kilobytes"
    );
    let text = std::fs::read(path).with_context(|| format!("--ca-file {shown}: cannot be read"))?;
    let certificates = reqwest::Certificate::from_pem_bundle(&text);
    let known = certificates.is_ok_and(|certificates| !certificates.is_empty());
    anyhow::ensure!(known, "--ca-file {shown}: found no certificate in it: name a PEM file such as ca.crt");
    Ok(text)
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
    fn the_defaults_are_those_of_the_kustomize_base() {
        let maps = entry_maps(None, None);
        let (namespace, service) =
            ("workload-variant-autoscaler-system", "workload-variant-autoscaler-webhook-service");
        let options = ConfigurationOptions {
            name: &configuration(namespace, service),
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
    fn what_is_open_differs_from_what_is_closed_by_rules_and_bundle_alone() {
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
