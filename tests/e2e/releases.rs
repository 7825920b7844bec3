//! Several releases side by side in one cluster, each with webhooks of its own: instance `a`, which injects its label,
//! instance `b`, which requires it, and one without an instance. Each judges and manages what is its own, refuses it
//! once, and stands in no other's way when it dies.
//! A control plane of its own: the tests count the reviews of every release, and one release dies.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use kube::core::Status;
use serde_json::{Value, json};
use wva_crds::names::{
    LOCAL_SATURATION_MAP_NAME, MAIN_MAP_NAME, SATURATION_MAP_NAMES, SCALE_TO_ZERO_MAP_NAMES,
    SERVICE_CLASS_MAP_NAME,
};
use wva_rules::InstancePolicy;
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::install::{Install, InstallOptions, SERVICE, SYSTEM, WEBHOOKS, get};
use wva_testbed::{Options, Ran, Signal, Testbed, eventually};
use wva_webhook::registration::{Door, FailurePolicy, render};

use crate::support::{DEADLINE, good, is, merge, read, try_create, variant};

const LABEL: &str = "wva.llmd.ai/controller-instance";
const ALLOWED: &str = "wva.llmd.ai/allow-instance-change";

/// The cluster, and its three releases in the order of [`Releases::all`].
struct Releases {
    testbed: Testbed,
    client: kube::Client,
    a: Install,
    b: Install,
    /// The one without an instance. Its webhooks are asked first, since their names are.
    plain: Install,
}

/// Options of a release. Those of an instance have webhooks that select by its label.
fn options(release: &str, instance: Option<(&str, InstancePolicy)>) -> InstallOptions {
    let mut options = InstallOptions::quick(env!("CARGO_BIN_EXE_wva"));
    options.release = Some(release.to_owned());
    let Some((instance, policy)) = instance else { return options };
    let [name, service, namespace] = [WEBHOOKS, SERVICE, SYSTEM].map(|name| options.named(name));
    let maps: Vec<&str> =
        [&SATURATION_MAP_NAMES[..], &SCALE_TO_ZERO_MAP_NAMES[..], &[SERVICE_CLASS_MAP_NAME][..]].concat();
    let door = Door {
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
    let list = render(&door);
    let documents: Vec<String> =
        list["items"].as_array().into_iter().flatten().map(ToString::to_string).collect();
    options.webhooks = Some(documents.join("\n---\n"));
    let policy = if policy == InstancePolicy::Require { "require" } else { "inject" };
    for (key, value) in [
        ("CONTROLLER_INSTANCE", instance),
        ("WVA_CONFIG_ENABLED_VALUE", instance),
        ("WVA_INSTANCE_POLICY", policy),
    ] {
        options.env.push((key.to_owned(), value.to_owned()));
    }
    options
}

fn release_a() -> InstallOptions {
    options("wva-a", Some(("a", InstancePolicy::Inject)))
}

impl Releases {
    async fn start() -> anyhow::Result<Self> {
        let options_of =
            [release_a(), options("wva-b", Some(("b", InstancePolicy::Require))), options("plain", None)];
        let testbed = Testbed::start(Options { name: "releases".to_owned(), ..Options::default() }).await?;
        let a = Install::start(&testbed, &options_of[0]).await?;
        let b = Install::start(&testbed, &options_of[1]).await?;
        let plain = Install::start(&testbed, &options_of[2]).await?;
        Ok(Self { client: testbed.admin()?, testbed, a, b, plain })
    }

    fn all(&self) -> [&Install; 3] {
        [&self.a, &self.b, &self.plain]
    }

    /// How many reviews each release has answered so far that have all of these labels.
    async fn reviews(&self, labels: &[&str]) -> anyhow::Result<[i64; 3]> {
        let mut counts = [0; 3];
        for (count, install) in counts.iter_mut().zip(self.all()) {
            let (status, text) = get(&format!("http://{}/metrics", install.address("metrics")?)).await?;
            ensure!(status == 200, "/metrics answered {status}");
            let ours = text.lines().filter(|line| line.starts_with("wva_admission_reviews_total{"));
            for line in ours.filter(|line| labels.iter().all(|label| line.contains(label))) {
                let (_, value) = line.rsplit_once(' ').context("a line without a value")?;
                *count += value.parse::<i64>()?;
            }
        }
        Ok(counts)
    }

    /// How many reviews of variants each release answers because of one request.
    async fn judged<T>(
        &self,
        request: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<(T, [i64; 3])> {
        self.counted(&[r#"resource="variantautoscalings""#], request).await
    }

    async fn counted<T>(
        &self,
        labels: &[&str],
        request: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<(T, [i64; 3])> {
        let before = self.reviews(labels).await?;
        let answer = request.await?;
        let mut counts = self.reviews(labels).await?;
        for (count, before) in counts.iter_mut().zip(before) {
            *count -= before;
        }
        Ok((answer, counts))
    }

    async fn create(&self, namespace: &str, object: &Value) -> anyhow::Result<Ran> {
        self.testbed.kubectl_with(&["create", "-n", namespace, "-f", "-"], &object.to_string()).await
    }

    async fn patch(&self, namespace: &str, name: &str, metadata: Value) -> anyhow::Result<Ran> {
        merge(&self.testbed, namespace, &format!("va/{name}"), &json!({"metadata": metadata})).await
    }

    async fn label_of(&self, namespace: &str, name: &str) -> anyhow::Result<Value> {
        let stored = read(&self.testbed, &["va", name, "-n", namespace]).await?;
        Ok(stored["metadata"]["labels"][LABEL].clone())
    }

    /// Waits until `a` puts its label on objects of a namespace: the API server and the program learn by their watches
    /// that the namespace is its own.
    async fn until_injected(&self, namespace: &str) -> anyhow::Result<()> {
        eventually("the label to be injected", DEADLINE, async || {
            let answer = try_create(&self.client, namespace, &variant("probe", &good("probe"))).await?;
            let object = answer.map_err(|status| anyhow::anyhow!("{}", status.message))?;
            ensure!(object["metadata"]["labels"][LABEL] == "a", "{}", object["metadata"]);
            Ok(())
        })
        .await
    }

    /// Waits until a release publishes a target of 1 for a variant.
    async fn until_published(&self, by: &Install, namespace: &str, name: &str) -> anyhow::Result<()> {
        eventually(&format!("{namespace}/{name} to be published"), DEADLINE, async || {
            let labels = [("namespace", namespace), ("variant_name", name)];
            let series = by.series("wva_desired_replicas", &labels).await?;
            ensure!(series == Some(1.0), "its series is {series:?}");
            Ok(())
        })
        .await
    }

    /// A namespace that says whose it is.
    async fn namespace_of(&self, instance: &str) -> anyhow::Result<String> {
        let name = self.testbed.namespace(instance).await?;
        self.testbed
            .kubectl(&["label", "namespace", &name, &format!("{LABEL}={instance}")])
            .await?
            .success()?;
        Ok(name)
    }
}

fn labelled(name: &str, instance: &str) -> Value {
    let mut object = variant(name, &good(name));
    object["metadata"]["labels"] = json!({LABEL: instance});
    object
}

/// The same with two faults that the CRD alone does not see before a webhook does.
fn faulty(mut object: Value) -> Value {
    object["spec"]["variantCost"] = json!("$40");
    object["metadata"]["annotations"] = json!({"wva.llmd.ai/mode": "sometimes"});
    object
}

/// Fields of a refusal's causes, each as often as it is told.
fn causes(status: &Status) -> Vec<&str> {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let mut fields: Vec<&str> = causes.map(|cause| cause.field.as_str()).collect();
    fields.sort_unstable();
    fields
}

const FAULTS: [&str; 2] = ["metadata.annotations[wva.llmd.ai/mode]", "spec.variantCost"];

#[track_caller]
fn refused(ran: &Ran, code: &str) -> anyhow::Result<()> {
    ensure!(!ran.ok && ran.stderr.contains(&format!("[{code}]")), "{code} is not said: {ran:?}");
    Ok(())
}

/// The reviews of an update, which are those of one attempt, or of several that are all alike: the API server begins an
/// update anew, reviews and all, where it worked on an object that somebody wrote meanwhile, like its new owner its status.
#[track_caller]
fn assert_rounds(reviews: [i64; 3], one: [i64; 3], what: &str) {
    let attempts = (1..=3).map(|attempts| one.map(|count| count * attempts));
    assert!(
        attempts.into_iter().any(|all| all == reviews),
        "{what}: {reviews:?}, and one attempt has {one:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn releases_judge_their_own_alone() -> anyhow::Result<()> {
    let releases = Releases::start().await?;
    Box::pin(each_judges_its_own(&releases)).await?;
    Box::pin(unlabelled_objects_belong_to_the_namespace(&releases)).await?;
    Box::pin(ownership_moves_on_purpose_alone(&releases)).await?;
    Box::pin(all_say_the_same_of_local_maps(&releases)).await?;
    Box::pin(a_main_map_is_its_own_releases_matter(&releases)).await?;
    Box::pin(each_manages_its_own(&releases)).await?;
    Box::pin(the_opt_in_label_counts_with_the_value_of_a_release(&releases)).await?;
    Box::pin(a_dead_release_stands_in_nobodys_way(&releases)).await?;
    webhooks_stay_closed_while_the_service_has_no_endpoint(&releases).await
}

async fn each_judges_its_own(releases: &Releases) -> anyhow::Result<()> {
    let namespace = releases.testbed.namespace("anywhere").await?;
    for (who, object) in [
        (0, labelled("of-a", "a")),
        (1, labelled("of-b", "b")),
        (2, variant("of-nobody", &good("of-nobody"))),
    ] {
        let wrong = faulty(object.clone());
        let (answer, reviews) =
            releases.judged(Box::pin(try_create(&releases.client, &namespace, &wrong))).await?;
        let status = answer.err().with_context(|| format!("it was admitted: {wrong}"))?;
        ensure!(causes(&status) == FAULTS, "{wrong}: {status:?}");
        // The first refusal ends it: no second phase, and no other release.
        let mut wanted = [0; 3];
        wanted[who] = 1;
        assert_eq!(reviews, wanted, "{wrong}");
        let (created, reviews) = releases.judged(releases.create(&namespace, &object)).await?;
        created.success()?;
        wanted[who] = 2;
        assert_eq!(reviews, wanted, "{object}");
    }
    // Somebody's whom nobody knows: nobody judges it.
    let (answer, reviews) =
        releases.judged(Box::pin(try_create(&releases.client, &namespace, &labelled("of-c", "c")))).await?;
    ensure!(answer.is_ok() && reviews == [0; 3], "{answer:?} {reviews:?}");
    for (install, own) in releases.all().into_iter().zip(["of-a", "of-b", "of-nobody"]) {
        let log = install.process().log();
        let told = log.lines().filter(|line| line.contains("Refused a VariantAutoscaling"));
        let names: BTreeSet<String> = told
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .filter_map(|line| Some(line["name"].as_str()?.to_owned()))
            .collect();
        assert_eq!(names, BTreeSet::from([own.to_owned()]), "{own}: the log tells of others");
    }
    Ok(())
}

async fn unlabelled_objects_belong_to_the_namespace(releases: &Releases) -> anyhow::Result<()> {
    let (of_a, of_b) = (releases.namespace_of("a").await?, releases.namespace_of("b").await?);
    releases.until_injected(&of_a).await?;
    let (created, reviews) =
        releases.judged(releases.create(&of_a, &variant("injected", &good("injected")))).await?;
    created.success()?;
    assert_eq!(releases.label_of(&of_a, "injected").await?, "a");
    // The release without an instance is asked before the label is there, and not again once it is.
    assert_eq!(reviews, [2, 0, 1], "injected");

    eventually("the label to be required", DEADLINE, async || {
        let answer = try_create(&releases.client, &of_b, &variant("required", &good("required"))).await?;
        let status = answer.err().context("it was admitted without a label")?;
        ensure!(causes(&status) == [format!("metadata.labels[{LABEL}]")], "{status:?}");
        ensure!(status.message.contains("[WVA-VA-013]"), "{}", status.message);
        Ok(())
    })
    .await?;
    let required = variant("required", &good("required"));
    let (ran, reviews) = releases.judged(releases.create(&of_b, &required)).await?;
    refused(&ran, "WVA-VA-013")?;
    assert_eq!(reviews, [0, 1, 1], "required");
    // With its label it is admitted, in the namespace of whomever: the label counts and not the namespace.
    for (namespace, instance, wanted) in
        [(&of_b, "b", [0, 2, 0]), (&of_b, "a", [2, 0, 0]), (&of_a, "b", [0, 2, 0])]
    {
        let object = labelled(&format!("labelled-{instance}"), instance);
        let (ran, reviews) = releases.judged(releases.create(namespace, &object)).await?;
        ran.success()?;
        assert_eq!(reviews, wanted, "{instance} in {namespace}");
    }
    Ok(())
}

async fn ownership_moves_on_purpose_alone(releases: &Releases) -> anyhow::Result<()> {
    let namespace = releases.testbed.namespace("moving").await?;
    releases.create(&namespace, &labelled("mover", "a")).await?.success()?;
    let to = |label: Value| json!({"labels": {LABEL: label}});
    let allowed =
        |label: Value, allow: Value| json!({"labels": {LABEL: label}, "annotations": {ALLOWED: allow}});

    // To another instance, to one that nobody knows, to an empty one, and to none: it is seen by the one that would lose
    // it, or first by the one that would get it, and the first refusal ends it.
    for (label, wanted) in
        [(json!("b"), [1, 0, 0]), (json!("c"), [1, 0, 0]), (json!(""), [1, 0, 0]), (Value::Null, [0, 0, 1])]
    {
        let (ran, reviews) = releases.judged(releases.patch(&namespace, "mover", to(label.clone()))).await?;
        refused(&ran, if label == "" { "WVA-VA-012" } else { "WVA-VA-014" })?;
        assert_rounds(reviews, wanted, &label.to_string());
        assert_eq!(releases.label_of(&namespace, "mover").await?, "a");
    }
    // With the annotation, set by the same update, it moves; an annotation that stands there already opens nothing.
    releases.patch(&namespace, "mover", allowed(json!("b"), json!("true"))).await?.success()?;
    assert_eq!(releases.label_of(&namespace, "mover").await?, "b");
    let (ran, reviews) = releases.judged(releases.patch(&namespace, "mover", to(json!("a")))).await?;
    refused(&ran, "WVA-VA-014")?;
    assert_rounds(reviews, [1, 0, 0], "back to a, which is asked first");
    releases.patch(&namespace, "mover", json!({"annotations": {ALLOWED: null}})).await?.success()?;
    releases.patch(&namespace, "mover", allowed(Value::Null, json!("true"))).await?.success()?;
    assert_eq!(releases.label_of(&namespace, "mover").await?, Value::Null);
    // Nobody's may be adopted by anybody, who then judges it alone.
    releases.patch(&namespace, "mover", to(json!("b"))).await?.success()?;
    let (ran, reviews) =
        releases.judged(releases.patch(&namespace, "mover", json!({"labels": {"team": "x"}}))).await?;
    ran.success()?;
    assert_rounds(reviews, [0, 2, 0], "adopted by b");
    Ok(())
}

fn map(name: &str, data: &Value, revision: &str) -> Value {
    let annotations = json!({"wva.llmd.ai/restart-revision": revision});
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "annotations": annotations}, "data": data,
    })
}

async fn all_say_the_same_of_local_maps(releases: &Releases) -> anyhow::Result<()> {
    let refusals = [r#"resource="configmaps""#, r#"allowed="false""#];
    let of_a = releases.namespace_of("a").await?;
    for (name, entry, code) in [
        (SATURATION_MAP_NAMES[0], "kvCacheThreshhold: 0.5", Some("WVA-CM-022")),
        (SATURATION_MAP_NAMES[0], "kvCacheThreshold: 0.5\nkvSpareTrigger: 0.9", Some("WVA-CM-026")),
        (SATURATION_MAP_NAMES[0], "kvSpareTrigger: 0.2", None),
        (SCALE_TO_ZERO_MAP_NAMES[0], "retention_period: soon", Some("WVA-CM-023")),
        (SCALE_TO_ZERO_MAP_NAMES[0], "retention_period: 5m", None),
    ] {
        let object = map(name, &json!({"default": entry}), "");
        let create = releases.create(&of_a, &object);
        let (ran, reviews) = releases.counted(&refusals, create).await?;
        match code {
            Some(code) => refused(&ran, code)?,
            None => drop(ran.success()?),
        }
        assert_eq!(reviews, [i64::from(code.is_some()); 3], "{name} {entry}");
    }
    Ok(())
}

async fn a_main_map_is_its_own_releases_matter(releases: &Releases) -> anyhow::Result<()> {
    let refusals = [r#"resource="configmaps""#, r#"allowed="false""#];
    let systems = ["wva-a", "wva-b", "plain"].map(|release| format!("{release}-system"));
    for (own, system) in systems.iter().enumerate() {
        let wrong = map(MAIN_MAP_NAME, &json!({"V": "loud", "GLOBAL_OPT_INTERVAL": "60"}), "one");
        let (ran, reviews) = releases.counted(&refusals, releases.create(system, &wrong)).await?;
        refused(&ran, "WVA-CM-002")?;
        let mut wanted = [0; 3];
        wanted[own] = 1;
        assert_eq!(reviews, wanted, "{system}: {}", ran.stderr);
        // The others say that they do not read it, and which one they read.
        let fine = map(MAIN_MAP_NAME, &json!({"V": "2"}), "one");
        let (ran, reviews) = releases.counted(&refusals, releases.create(system, &fine)).await?;
        ensure!(ran.ok && reviews == [0; 3], "{system}: {ran:?}");
        for other in systems.iter().filter(|other| *other != system) {
            let told = format!("[WVA-CM-053] metadata.namespace: not read here: {other}/{MAIN_MAP_NAME} is");
            ensure!(ran.stderr.contains(&told), "{system}: {told} is not said: {}", ran.stderr);
        }
        assert_eq!(ran.stderr.matches("WVA-CM-053").count(), 2, "{system}: {}", ran.stderr);
    }
    Ok(())
}

async fn each_manages_its_own(releases: &Releases) -> anyhow::Result<()> {
    let testbed = &releases.testbed;
    let (own, foreign) = (releases.namespace_of("a").await?, testbed.namespace("foreign").await?);
    releases.until_injected(&own).await?;
    testbed.apply(&VariantFixture::new(&own, "own").all()).await?;
    testbed.apply(&VariantFixture::new(&foreign, "foreign").all()).await?;
    // Where it was taken away it is injected again.
    releases.patch(&own, "own", json!({"labels": {LABEL: null}})).await?;
    assert_eq!(releases.label_of(&own, "own").await?, "a");
    releases.until_published(&releases.a, &own, "own").await?;
    let va = read(testbed, &["va", "own", "-n", &own]).await?;
    ensure!(is(&va, "TargetResolved", ("True", "TargetFound")), "{}", va["status"]);
    let (status, page) = get(&format!("http://{}/metrics", releases.a.address("metrics")?)).await?;
    ensure!(status == 200, "/metrics answered {status}");
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let times = line.matches("controller_instance=\"a\"").count();
        ensure!(times == 1, "it carries the instance {times} times: {line}");
    }

    releases.until_published(&releases.plain, &foreign, "foreign").await?;
    for (install, namespace) in [(&releases.a, &foreign), (&releases.plain, &own)] {
        let series = install.series("wva_desired_replicas", &[("namespace", namespace)]).await?;
        ensure!(series.is_none(), "two releases publish for {namespace}: {series:?}");
    }
    // Adopted by hand: it is managed from then on.
    releases.patch(&foreign, "foreign", json!({"labels": {LABEL: "a"}})).await?.success()?;
    releases.until_published(&releases.a, &foreign, "foreign").await
}

async fn the_opt_in_label_counts_with_the_value_of_a_release(releases: &Releases) -> anyhow::Result<()> {
    let testbed = &releases.testbed;
    let (other, opted_in) = (testbed.namespace("of-others").await?, testbed.namespace("opted-in").await?);
    for (namespace, value) in [(&other, "true"), (&opted_in, "a")] {
        let label = format!("wva.llmd.ai/config-enabled={value}");
        testbed.kubectl(&["label", "namespace", namespace, &label]).await?.success()?;
        let map = map(LOCAL_SATURATION_MAP_NAME, &json!({"default": "kvCacheThreshold: 0.6"}), "");
        releases.create(namespace, &map).await?.success()?;
    }
    let was_read = |namespace: &str| {
        let title = format!("{namespace}/{LOCAL_SATURATION_MAP_NAME}");
        let log = releases.a.process().log();
        log.lines().any(|line| line.contains("Updated saturation config") && line.contains(&title))
    };
    eventually("the map of the namespace that opted in to be read", DEADLINE, async || {
        ensure!(was_read(&opted_in), "it is not");
        Ok(())
    })
    .await?;
    ensure!(!was_read(&other), "a map was read whose namespace opted in to another controller");
    Ok(())
}

/// With an ordinary Service in front, as in a cluster: the release looks at its endpoints before it opens the webhooks.
async fn webhooks_stay_closed_while_the_service_has_no_endpoint(releases: &Releases) -> anyhow::Result<()> {
    let testbed = &releases.testbed;
    let [webhooks, service, system] = [WEBHOOKS, SERVICE, SYSTEM].map(|name| release_a().named(name));
    let kind = "validatingwebhookconfiguration";
    let rules = async || {
        let path = "jsonpath={.webhooks[*].rules[*].resources[*]}";
        testbed.kubectl(&["get", kind, &webhooks, "-o", path]).await?.success()
    };
    let ports = json!([{"name": "admission", "port": 443}]);
    let ordinary = json!({"spec": {"type": "ClusterIP", "externalName": null, "ports": ports}});
    merge(testbed, &system, &format!("service/{service}"), &ordinary).await?.success()?;
    // All four: variants, those without a label, the main map, the maps with entries.
    let closed: Vec<Value> =
        (0..4).map(|i| json!({"op": "remove", "path": format!("/webhooks/{i}/rules")})).collect();
    let closed = json!(closed).to_string();
    testbed.kubectl(&["patch", kind, &webhooks, "--type=json", "-p", &closed]).await?.success()?;
    eventually("the release to say that its Service has no endpoint", DEADLINE, async || {
        ensure!(releases.a.process().log().contains("has no ready endpoint yet"), "it has not");
        Ok(())
    })
    .await?;
    ensure!(rules().await?.is_empty(), "opened although its Service leads nowhere");
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "by-hand", "namespace": system, "labels": {"kubernetes.io/service-name": service}},
        "ports": [{"name": "admission", "port": 9443}],
        "endpoints": [{"addresses": ["10.1.2.3"], "conditions": {"ready": true}}],
    });
    testbed.apply(&slice.to_string()).await?;
    eventually("the webhooks to be opened", DEADLINE, async || {
        ensure!(rules().await?.contains("variantautoscalings"), "not yet");
        Ok(())
    })
    .await
}

async fn a_dead_release_stands_in_nobodys_way(releases: &Releases) -> anyhow::Result<()> {
    let namespace = releases.testbed.namespace("without-b").await?;
    releases.create(&namespace, &labelled("left", "b")).await?.success()?;
    releases.b.process().signal(Signal::Stop)?;
    let lives = [labelled("lives-a", "a"), variant("lives", &good("lives"))];
    for object in &lives {
        releases.create(&namespace, object).await?.success()?;
        let name = object["metadata"]["name"].as_str().context("no name")?;
        releases.patch(&namespace, name, json!({"labels": {"team": "x"}})).await?.success()?;
        let wrong = try_create(&releases.client, &namespace, &faulty(object.clone())).await?;
        ensure!(wrong.is_err_and(|status| causes(&status) == FAULTS), "{object}: it is not judged any more");
    }
    // What is b's is refused rather than let through; what was b's can go.
    let stuck = releases.create(&namespace, &labelled("stuck", "b")).await?;
    ensure!(!stuck.ok && stuck.stderr.contains("failed calling webhook"), "{stuck:?}");
    releases.testbed.kubectl(&["delete", "va", "left", "-n", &namespace]).await?.success()?;
    releases.b.process().signal(Signal::Cont)?;
    eventually("b to judge again", DEADLINE, async || {
        releases.create(&namespace, &labelled("again", "b")).await?.success()
    })
    .await?;
    Ok(())
}
