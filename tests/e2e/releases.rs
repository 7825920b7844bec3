//! Several releases in one cluster, each with webhooks of its own: instance `a`, which injects its label, instance `b`,
//! which requires it, and one without an instance. Each judges and manages its own objects only, denies a violation
//! once, and blocks no other when it dies.
//! Why a control plane of its own: the tests count the reviews of each release, and freeze one release.

mod judging;
mod managing;
mod maps;

use anyhow::{Context as _, ensure};
use kube::core::Status;
use serde_json::{Value, json};
use wva_crds::names::{MAIN_MAP_NAME, SATURATION_MAP_NAMES, SCALE_TO_ZERO_MAP_NAMES, SERVICE_CLASS_MAP_NAME};
use wva_rules::InstancePolicy;
use wva_testbed::install::{Install, InstallOptions, SERVICE, SYSTEM, WEBHOOKS, get};
use wva_testbed::{CommandOutput, Options, Testbed, eventually};
use wva_webhook::registration::{ConfigurationOptions, FailurePolicy, render_configurations};

use crate::support::{DEADLINE, dry_run_create, get_object, merge_patch, valid_spec, variant};

const LABEL: &str = "wva.llmd.ai/controller-instance";
const ALLOWED: &str = "wva.llmd.ai/allow-instance-change";

/// Cluster with three releases, in the order of [`Releases::all`].
struct Releases {
    testbed: Testbed,
    client: kube::Client,
    a: Install,
    b: Install,
    /// The release without an instance. Its webhooks come first, by their names.
    plain: Install,
}

/// Options of a release. With an instance, its webhooks select by its label.
fn options(release: &str, instance: Option<(&str, InstancePolicy)>) -> InstallOptions {
    let mut options = InstallOptions::quick(env!("CARGO_BIN_EXE_wva"));
    options.release = Some(release.to_owned());
    let Some((instance, policy)) = instance else { return options };
    let [name, service, namespace] = [WEBHOOKS, SERVICE, SYSTEM].map(|name| options.named(name));
    let maps: Vec<&str> =
        [&SATURATION_MAP_NAMES[..], &SCALE_TO_ZERO_MAP_NAMES[..], &[SERVICE_CLASS_MAP_NAME][..]].concat();
    let webhooks = ConfigurationOptions {
        name: &name,
        service: &service,
        namespace: &namespace,
        instance: Some(instance),
        policy,
        watch_namespace: None,
        variants: FailurePolicy::Fail,
        config_maps: FailurePolicy::Ignore,
        main_config_map: MAIN_MAP_NAME,
        entry_config_maps: &maps,
    };
    let list = render_configurations(&webhooks);
    let documents: Vec<String> =
        list["items"].as_array().into_iter().flatten().map(ToString::to_string).collect();
    options.webhooks = Some(documents.join("\n---\n"));
    let policy = if policy == InstancePolicy::Require { "require" } else { "inject" };
    options.with(&[
        ("CONTROLLER_INSTANCE", instance),
        ("WVA_CONFIG_ENABLED_VALUE", instance),
        ("WVA_INSTANCE_POLICY", policy),
    ])
}

fn release_a_options() -> InstallOptions {
    options("wva-a", Some(("a", InstancePolicy::Inject)))
}

impl Releases {
    async fn start() -> anyhow::Result<Self> {
        let options_of = [
            release_a_options(),
            options("wva-b", Some(("b", InstancePolicy::Require))),
            options("plain", None),
        ];
        let testbed = Testbed::start(Options { name: "releases".to_owned(), ..Options::default() }).await?;
        let a = Install::start(&testbed, &options_of[0]).await?;
        let b = Install::start(&testbed, &options_of[1]).await?;
        let plain = Install::start(&testbed, &options_of[2]).await?;
        Ok(Self { client: testbed.admin()?, testbed, a, b, plain })
    }

    fn all(&self) -> [&Install; 3] {
        [&self.a, &self.b, &self.plain]
    }

    /// Counts the reviews with all of these labels that each release has answered so far.
    async fn review_counts(&self, labels: &[&str]) -> anyhow::Result<[i64; 3]> {
        let mut counts = [0; 3];
        for (count, install) in counts.iter_mut().zip(self.all()) {
            let (status, text) = get(&format!("http://{}/metrics", install.address("metrics")?)).await?;
            ensure!(status == 200, "/metrics answered {status}");
            let lines = text.lines().filter(|line| line.starts_with("wva_admission_reviews_total{"));
            for line in lines.filter(|line| labels.iter().all(|label| line.contains(label))) {
                let (_, value) = line.rsplit_once(' ').context("a line without a value")?;
                *count += value.parse::<i64>()?;
            }
        }
        Ok(counts)
    }

    /// Counts the reviews of variants that each release answers for one request.
    async fn count_variant_reviews<T>(
        &self,
        request: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<(T, [i64; 3])> {
        self.count_reviews(&[r#"resource="variantautoscalings""#], request).await
    }

    async fn count_reviews<T>(
        &self,
        labels: &[&str],
        request: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<(T, [i64; 3])> {
        let before = self.review_counts(labels).await?;
        let answer = request.await?;
        let mut counts = self.review_counts(labels).await?;
        for (count, before) in counts.iter_mut().zip(before) {
            *count -= before;
        }
        Ok((answer, counts))
    }

    async fn create(&self, namespace: &str, object: &Value) -> anyhow::Result<CommandOutput> {
        self.testbed.kubectl_with(&["create", "-n", namespace, "-f", "-"], &object.to_string()).await
    }

    async fn patch(&self, namespace: &str, name: &str, metadata: Value) -> anyhow::Result<CommandOutput> {
        merge_patch(&self.testbed, namespace, &format!("va/{name}"), &json!({"metadata": metadata})).await
    }

    async fn label_of(&self, namespace: &str, name: &str) -> anyhow::Result<Value> {
        let stored = get_object(&self.testbed, &["va", name, "-n", namespace]).await?;
        Ok(stored["metadata"]["labels"][LABEL].clone())
    }

    /// Waits until `a` injects its label into objects of a namespace: the API server and the program learn by their
    /// watches that the namespace belongs to `a`.
    async fn wait_until_injected(&self, namespace: &str) -> anyhow::Result<()> {
        eventually("the label to be injected", DEADLINE, async || {
            let answer =
                dry_run_create(&self.client, namespace, &variant("probe", &valid_spec("probe"))).await?;
            let object = answer.map_err(|status| anyhow::anyhow!("{}", status.message))?;
            ensure!(object["metadata"]["labels"][LABEL] == "a", "{}", object["metadata"]);
            Ok(())
        })
        .await
    }

    /// Waits until a release publishes a target of 1 for a variant.
    async fn wait_until_published(&self, by: &Install, namespace: &str, name: &str) -> anyhow::Result<()> {
        eventually(&format!("{namespace}/{name} to be published"), DEADLINE, async || {
            let labels = [("namespace", namespace), ("variant_name", name)];
            let series = by.series("wva_desired_replicas", &labels).await?;
            ensure!(series == Some(1.0), "its series is {series:?}");
            Ok(())
        })
        .await
    }

    /// Creates a namespace with the label of an instance.
    async fn namespace_of_instance(&self, instance: &str) -> anyhow::Result<String> {
        let name = self.testbed.namespace(instance).await?;
        self.testbed
            .kubectl(&["label", "namespace", &name, &format!("{LABEL}={instance}")])
            .await?
            .success()?;
        Ok(name)
    }
}

fn variant_of(name: &str, instance: &str) -> Value {
    let mut object = variant(name, &valid_spec(name));
    object["metadata"]["labels"] = json!({LABEL: instance});
    object
}

/// Adds two violations that the CRD does not detect before a webhook does.
fn with_violations(mut object: Value) -> Value {
    object["spec"]["variantCost"] = json!("$40");
    object["metadata"]["annotations"] = json!({"wva.llmd.ai/mode": "sometimes"});
    object
}

/// Fields of the causes of a denial, sorted, with duplicates.
fn cause_fields(status: &Status) -> Vec<&str> {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let mut fields: Vec<&str> = causes.map(|cause| cause.field.as_str()).collect();
    fields.sort_unstable();
    fields
}

const VIOLATIONS: [&str; 2] = ["metadata.annotations[wva.llmd.ai/mode]", "spec.variantCost"];

#[track_caller]
fn assert_denied(ran: &CommandOutput, code: &str) -> anyhow::Result<()> {
    ensure!(!ran.ok && ran.stderr.contains(&format!("[{code}]")), "{code} is not reported: {ran:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_release_handles_its_own_objects() -> anyhow::Result<()> {
    let releases = Releases::start().await?;
    Box::pin(judging::each_release_judges_its_own_variants(&releases)).await?;
    Box::pin(judging::unlabelled_variants_belong_to_the_namespace_owner(&releases)).await?;
    Box::pin(judging::ownership_moves_only_with_the_annotation(&releases)).await?;
    Box::pin(maps::all_releases_agree_on_local_maps(&releases)).await?;
    Box::pin(maps::a_release_judges_only_its_own_main_map(&releases)).await?;
    Box::pin(managing::each_release_manages_its_own_variants(&releases)).await?;
    Box::pin(maps::opt_in_label_must_name_the_release(&releases)).await?;
    Box::pin(managing::a_frozen_release_blocks_no_other(&releases)).await?;
    managing::webhooks_wait_for_an_endpoint_of_the_service(&releases).await
}
