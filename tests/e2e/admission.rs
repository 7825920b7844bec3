//! Admission end to end: the program runs on a real control plane, and its webhooks judge what kubectl and clients
//! send. All tests share one control plane and one install. Tests that change the webhook configurations take a lock.
//! Why a control plane of its own: the tests count the denials of one program, and freeze it.

mod callers;
mod client_ca;
mod configurations;
mod crd;
mod differential;
mod differential_maps;
mod frozen;
mod main_map;
mod main_objects;
mod map_objects;
mod objects;
mod policy;
mod refusals;
mod stopped;
mod warnings;
mod yaml;

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use tokio::sync::{Mutex, OnceCell, RwLock};
use wva_crds::names::SATURATION_MAP_NAMES;
use wva_testbed::install::{Install, WEBHOOKS};
use wva_testbed::{CommandOutput, Options, Testbed, eventually};

use crate::support::{
    DEADLINE, dry_run_create, get_object, install_options, invalid_variant, merge_patch, repository_path,
    valid_spec, variant,
};

/// Longest wait for an action of the program: most take seconds; the rest is for a loaded machine.
const SOON: Duration = DEADLINE;
/// Namespace of the objects that were stored before the program ran.
const EARLY: &str = "early";
const KINDS: [&str; 2] = ["mutatingwebhookconfiguration", "validatingwebhookconfiguration"];

/// The control plane with the program, and the state before the program ran.
struct Shared {
    testbed: Testbed,
    install: Install,
    /// `rules` of all webhooks before the program ran.
    rules_before: Vec<Value>,
    /// Output of kubectl for the objects of [`EARLY`].
    early: Vec<CommandOutput>,
}

static SHARED: OnceCell<Shared> = OnceCell::const_new();
/// Write-locked by tests that change the webhook configurations or stop the program, read-locked by tests that need
/// them.
static WEBHOOKS_LOCK: RwLock<()> = RwLock::const_new(());
/// Held by tests that create the main map, or validate one: there is one name.
static MAIN_MAP_LOCK: Mutex<()> = Mutex::const_new(());

async fn shared() -> anyhow::Result<&'static Shared> {
    SHARED.get_or_try_init(start).await
}

async fn start() -> anyhow::Result<Shared> {
    let plane = Options {
        name: "admission".to_owned(),
        nodes: Vec::new(),
        webhook_client: true,
        ..Options::default()
    };
    let testbed = Testbed::start(plane).await?;
    Install::crd(&testbed).await?;
    testbed.apply(&std::fs::read_to_string(repository_path("config/base/webhook.yaml"))?).await?;
    let mut rules_before = Vec::new();
    for kind in KINDS {
        for entry in entries(&testbed, kind).await? {
            rules_before.push(entry["rules"].clone());
        }
    }
    testbed.kubectl(&["create", "namespace", EARLY]).await?.success()?;
    let mut early = Vec::new();
    for object in [
        variant("first", &valid_spec("llama")),
        variant("second", &valid_spec("llama")),
        invalid_variant("odd"),
    ] {
        early.push(create(&testbed, EARLY, &object).await?);
    }
    let install = Install::start(&testbed, &install_options()).await?;
    wait_until_judging(&testbed).await?;
    testbed.apply(&policy::manifests()?).await?;
    Ok(Shared { testbed, install, rules_before, early })
}

/// Runs `kubectl create`, without a dry run.
async fn create(testbed: &Testbed, namespace: &str, object: &Value) -> anyhow::Result<CommandOutput> {
    testbed.kubectl_with(&["create", "-n", namespace, "-f", "-"], &object.to_string()).await
}

/// Patches a variant, without a dry run.
async fn patch(
    testbed: &Testbed,
    namespace: &str,
    name: &str,
    change: &Value,
) -> anyhow::Result<CommandOutput> {
    merge_patch(testbed, namespace, &format!("va/{name}"), change).await
}

/// Asserts that a request was denied, with all of these parts in the message.
fn assert_denied(ran: &CommandOutput, parts: &[&str]) -> anyhow::Result<()> {
    ensure!(!ran.ok, "admitted: {}", ran.stdout);
    ensure!(parts.iter().all(|part| ran.stderr.contains(part)), "{parts:?} are not in {}", ran.stderr);
    Ok(())
}

/// Reads a webhook configuration.
async fn configuration(testbed: &Testbed, kind: &str) -> anyhow::Result<Value> {
    get_object(testbed, &[kind, WEBHOOKS]).await
}

/// Reads the webhooks of a configuration.
async fn entries(testbed: &Testbed, kind: &str) -> anyhow::Result<Vec<Value>> {
    let object = configuration(testbed, kind).await?;
    object["webhooks"].as_array().cloned().with_context(|| format!("{kind} has no entries: {object}"))
}

/// Waits until the program denies an invalid object: the webhooks are open and answer. The mutating configuration
/// denies variants; only the validating one denies maps with entries.
async fn wait_until_judging(testbed: &Testbed) -> anyhow::Result<()> {
    let client = testbed.admin()?;
    let map =
        map_objects::map("default", SATURATION_MAP_NAMES[0], &json!({"default": "kvCacheThreshhold: 0.5"}));
    eventually("the program to deny an invalid object", SOON, async || {
        let refused = dry_run_create(&client, "default", &invalid_variant("probe"))
            .await?
            .err()
            .context("it was admitted")?;
        ensure!(refused.message.contains("[WVA-VA-017]"), "{}", refused.message);
        let create = ["create", "--dry-run=server", "-f", "-"];
        self::assert_denied(&testbed.kubectl_with(&create, &map.to_string()).await?, &["[WVA-CM-022]"])
    })
    .await
}
