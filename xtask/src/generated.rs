//! The generated files, each with its text.

use std::path::Path;

use wva_crds::entries::{Kind, schema_text};
use wva_crds::names;
use wva_rules::InstancePolicy;
use wva_webhook::registration::{ConfigurationOptions, FailurePolicy, render_configurations};

use crate::files::Files;
use crate::{
    ROOT, admission_policies, admission_policy, cli_page, configuration_page, dashboards, invalid_settings,
    model_servers_page, recordings, rule_pages, schema_pages,
};

/// All of them.
pub(crate) fn files() -> Files {
    let generators: [fn(&mut Files); 14] = [
        crd,
        schemas_of_entries,
        rule_reference,
        rule_pages_of_the_program,
        model_servers,
        command_line,
        schemas_of_files,
        summary_of_rules,
        schema_reference,
        dashboards_of_the_chart,
        settings,
        webhook_configurations,
        admission_policies_of_the_chart,
        recordings::recordings,
    ];
    let mut files = Files::default();
    for add in generators {
        add(&mut files);
    }
    files
}

fn crd(files: &mut Files) {
    let yaml = wva_crds::manifest::crd_yaml().unwrap();
    files.add("crds/llmd.ai_variantautoscalings.yaml", &yaml);
    // The chart's copy: a symlink does not survive packaging.
    files.add("charts/workload-variant-autoscaler/crds/llmd.ai_variantautoscalings.yaml", &yaml);
}

fn schemas_of_entries(files: &mut Files) {
    for kind in Kind::ALL {
        files.add(&format!("crds/schemas/{}", kind.file_name()), &schema_text(kind));
    }
}

/// One page for each rule, and no page of a removed rule.
fn rule_reference(files: &mut Files) {
    let pages = rule_pages::pages();
    for (name, text) in &pages {
        files.add(&format!("docs/reference/rules/{name}"), text);
    }
    files.remove_others(Path::new(ROOT), "docs/reference/rules");
}

/// The same pages for `wva rule`.
fn rule_pages_of_the_program(files: &mut Files) {
    let pages = rule_pages::pages().into_iter().filter(|(name, _)| name != "README.md");
    let wanted = pages.map(|(_, text)| text).collect::<Vec<_>>().join("\0");
    files.add("cli/src/rule/pages.gz", &wanted);
}

fn model_servers(files: &mut Files) {
    files.add("docs/reference/model-servers.md", &model_servers_page::page());
}

/// Command line reference.
fn command_line(files: &mut Files) {
    files.add("docs/reference/cli.md", &cli_page::page());
}

/// JSON Schemas of files and outputs.
fn schemas_of_files(files: &mut Files) {
    for (kind, schema) in wva_cli::schemas() {
        files.add(&format!("docs/reference/{}", kind.schema_file()), &format!("{schema:#}\n"));
    }
}

/// The site lists each rule with its title below the index of rules.
fn summary_of_rules(files: &mut Files) {
    const INDEX: &str = "- [Admission rules](reference/rules/README.md)\n";
    let path = "docs/SUMMARY.md";
    let summary = std::fs::read_to_string(Path::new(ROOT).join(path)).unwrap();
    let others: String =
        summary.split_inclusive('\n').filter(|line| !line.starts_with("  - [WVA-")).collect();
    let pages = rule_pages::pages().into_iter().filter(|(name, _)| name != "README.md");
    let rules: Vec<String> = pages
        .map(|(name, page)| {
            let title = page.lines().next().unwrap().trim_start_matches("# ");
            format!("  - [{title}](reference/rules/{name})\n")
        })
        .collect();
    files.add(path, &others.replace(INDEX, &format!("{INDEX}{}", rules.concat())));
}

/// Pages of the CRD and of the entries of ConfigMaps.
fn schema_reference(files: &mut Files) {
    files.add("docs/reference/api-variantautoscaling.md", &schema_pages::variant());
    files.add("docs/reference/configmap-entries.md", &schema_pages::entries());
}

/// The chart's dashboards, and their page.
fn dashboards_of_the_chart(files: &mut Files) {
    for (name, text) in dashboards::files() {
        files.add(&format!("charts/workload-variant-autoscaler/dashboards/{name}"), &text);
    }
    files.add("docs/operations/dashboards.md", &dashboards::page());
}

/// Page of settings, with the program's real message about invalid ones.
fn settings(files: &mut Files) {
    files.add("docs/reference/configuration.md", &configuration_page::page(&invalid_settings::message()));
}

/// Webhook configurations of an install without an instance, without rules; the program adds these.
fn webhook_configurations(files: &mut Files) {
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
    files.add("config/base/webhook.yaml", &webhooks);
    let policies = admission_policies::documents(&admission_policy::with_settings(), &options).unwrap();
    let head = "# What the API server refuses by itself while no webhook answers, as in the chart. Written by `make generate`.\n";
    files.add("config/base/admission-policy.yaml", &format!("{head}---\n{}", policies.join("---\n")));
}

/// Rows of settings in the policies of the chart.
fn admission_policies_of_the_chart(files: &mut Files) {
    files.add(admission_policies::PATH, &admission_policy::with_settings());
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
