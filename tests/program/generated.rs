//! Generated files. `make generate` writes them (`WVA_GENERATE=1`); otherwise each test fails if its file is outdated.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::path::Path;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use wva_crds::entries::{Kind, schema_text};
use wva_crds::names;
use wva_rules::{InstancePolicy, PolicyInstance};
use wva_webhook::registration::{
    ConfigurationOptions, FailurePolicy, main_map_policy_spec, render_configurations, render_policies,
    variant_policy_spec,
};

use crate::{
    cli_page, configuration_page, dashboards, invalid_settings, model_servers_page, rule_pages, schema_pages,
};

#[track_caller]
pub(crate) fn check(path: &str, wanted: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("WVA_GENERATE").is_some() {
        std::fs::write(&file, wanted).unwrap();
    }
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(found == wanted, "{path} is outdated: run `make generate` and commit the result");
}

#[test]
fn crd() {
    let yaml = wva_crds::manifest::crd_yaml().unwrap();
    check("crds/llmd.ai_variantautoscalings.yaml", &yaml);
    // The chart's copy: a symlink does not survive packaging.
    check("charts/workload-variant-autoscaler/crds/llmd.ai_variantautoscalings.yaml", &yaml);
}

#[test]
fn schemas_of_entries() {
    for kind in Kind::ALL {
        check(&format!("crds/schemas/{}", kind.file_name()), &schema_text(kind));
    }
}

/// One page for each rule, and no page of a removed rule.
#[test]
fn rule_reference() {
    let pages = rule_pages::pages();
    for (name, text) in &pages {
        check(&format!("docs/reference/rules/{name}"), text);
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/rules");
    let found =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(found.collect::<BTreeSet<_>>(), pages.into_keys().collect());
}

/// The same pages for `wva rule`. Compared unpacked: another compressor may write other bytes.
#[test]
fn rule_pages_of_the_program() {
    let pages = rule_pages::pages().into_iter().filter(|(name, _)| name != "README.md");
    let wanted = pages.map(|(_, text)| text).collect::<Vec<_>>().join("\0");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("cli/src/rule/pages.gz");
    let unpack = || {
        let mut text = String::new();
        GzDecoder::new(std::fs::File::open(&file).unwrap()).read_to_string(&mut text).unwrap();
        text
    };
    if std::env::var_os("WVA_GENERATE").is_some() && unpack() != wanted {
        let mut packed = GzEncoder::new(std::fs::File::create(&file).unwrap(), Compression::best());
        packed.write_all(wanted.as_bytes()).unwrap();
        packed.finish().unwrap();
    }
    assert!(
        unpack() == wanted,
        "cli/src/rule/pages.gz is outdated: run `make generate` and commit the result"
    );
}

#[test]
fn model_servers() {
    check("docs/reference/model-servers.md", &model_servers_page::page());
}

/// Command line reference.
#[test]
fn command_line() {
    check("docs/reference/cli.md", &cli_page::page());
}

/// JSON Schemas of files and outputs, each linked from the page about them.
#[test]
fn schemas_of_files() {
    let page = include_str!("../../docs/reference/files.md");
    for (kind, schema) in wva_cli::schemas() {
        check(&format!("docs/reference/{}", kind.schema_file()), &format!("{schema:#}\n"));
        let row = format!("| [`{kind}`]({}) |", kind.schema_file());
        assert!(page.contains(&row), "docs/reference/files.md lacks {row:?}");
    }
}

/// The site lists each rule with its title below the index of rules.
#[test]
fn summary_of_rules() {
    const INDEX: &str = "- [Admission rules](reference/rules/README.md)\n";
    let path = "docs/SUMMARY.md";
    let summary = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let others: String =
        summary.split_inclusive('\n').filter(|line| !line.starts_with("  - [WVA-")).collect();
    let pages = rule_pages::pages().into_iter().filter(|(name, _)| name != "README.md");
    let rules: Vec<String> = pages
        .map(|(name, page)| {
            let title = page.lines().next().unwrap().trim_start_matches("# ");
            format!("  - [{title}](reference/rules/{name})\n")
        })
        .collect();
    check(path, &others.replace(INDEX, &format!("{INDEX}{}", rules.concat())));
}

/// Pages of the CRD and of the entries of ConfigMaps.
#[test]
fn schema_reference() {
    check("docs/reference/api-variantautoscaling.md", &schema_pages::variant());
    check("docs/reference/configmap-entries.md", &schema_pages::entries());
}

/// The chart's dashboards, and their page.
#[test]
fn dashboards_of_the_chart() {
    for (name, text) in dashboards::files() {
        check(&format!("charts/workload-variant-autoscaler/dashboards/{name}"), &text);
    }
    check("docs/operations/dashboards.md", &dashboards::page());
}

/// Page of settings, with the program's real message about invalid ones.
#[test]
fn settings() {
    check("docs/reference/configuration.md", &configuration_page::page(&invalid_settings::message()));
}

/// Webhook configurations of an install without an instance, without rules; the program adds these.
#[test]
fn webhook_configurations() {
    let entry_maps: Vec<&str> = [
        names::SATURATION_MAP_NAMES.as_slice(),
        &names::SCALE_TO_ZERO_MAP_NAMES,
        &[names::SERVICE_CLASS_MAP_NAME],
    ]
    .concat();
    let options = ConfigurationOptions {
        name: "workload-variant-autoscaler-system-workload-variant-autoscaler-webhook",
        service: "workload-variant-autoscaler-webhook-service",
        namespace: "workload-variant-autoscaler-system",
        instance: None,
        policy: InstancePolicy::Inject,
        watch_namespace: None,
        variants: FailurePolicy::Fail,
        config_maps: FailurePolicy::Ignore,
        main_config_map: names::MAIN_MAP_NAME,
        entry_config_maps: &entry_maps,
    };
    let webhooks = documents(
        "# The webhook configurations without rules and caBundle: a webhook without rules is never called. The program adds\n# both once a review would be answered. Written by `make generate`.\n",
        &render_configurations(&options),
    );
    check("config/base/webhook.yaml", &webhooks);
    let policies = documents(
        "# What the API server refuses by itself while no webhook answers: the rules of webhook/rules that need no context.\n# Written by `make generate`.\n",
        &render_policies(&options),
    );
    check("config/base/admission-policy.yaml", &policies);
}

/// The same policies for the chart, which fills in the placeholders.
#[test]
fn admission_policies_of_the_chart() {
    let of = PolicyInstance {
        instance: "$(instance)",
        instance_policy: "$(instancePolicy)",
        namespaces: "$(namespaces)",
    };
    let specs = serde_json::json!({
        "variants": variant_policy_spec(of), "mainMap": main_map_policy_spec("$(mainMap)"),
    });
    let yaml = serde_saphyr::to_string(&specs).unwrap();
    let head =
        "# What templates/admission-policy.yaml fills in. Written by `make generate` from webhook/rules.\n";
    let path = "charts/workload-variant-autoscaler/files/admission-policy.yaml";
    check(path, &format!("{head}{}\n", yaml.trim_end()));
}

/// A list as YAML documents below a comment.
fn documents(head: &str, list: &serde_json::Value) -> String {
    let mut yaml = head.to_owned();
    for item in list["items"].as_array().unwrap() {
        yaml.push_str("---\n");
        yaml.push_str(serde_saphyr::to_string(item).unwrap().trim_end());
        yaml.push('\n');
    }
    yaml
}

/// `docs/reference/events-conditions-reasons.md` describes every reason of a decision.
#[test]
fn every_reason_is_documented() {
    let page = include_str!("../../docs/reference/events-conditions-reasons.md");
    let source = include_str!("../../controller/scaling/src/reason/code.rs");
    let is_reason = |word: &&str| {
        word.len() > 4
            && word.starts_with(|c: char| c.is_ascii_uppercase())
            && word.chars().all(|c| c.is_ascii_alphabetic())
    };
    let reasons: BTreeSet<&str> = source.split('"').skip(1).step_by(2).filter(is_reason).collect();
    assert!(reasons.contains("SpareBelowTarget"), "{reasons:?}");
    let missing: Vec<_> = reasons.iter().filter(|reason| !page.contains(&format!("`{reason}`"))).collect();
    assert!(missing.is_empty(), "docs/reference/events-conditions-reasons.md lacks {missing:?}");
}
