//! Admission end to end: the program is installed on a real control plane and its webhooks judge what kubectl and
//! clients send. One control plane and one install serve all tests; those that break the doors have them alone.

mod callers;
mod client_ca;
mod differential;
mod differential_maps;
mod doors;
mod duplicates;
mod frozen;
mod guard;
mod main_map;
mod main_objects;
mod map_objects;
mod objects;
mod policy;
mod refusals;
mod stopped;
mod updates;
mod warnings;
mod yaml;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use tokio::sync::{Mutex, OnceCell, RwLock};
use wva_testbed::install::{Install, InstallOptions, WEBHOOKS};
use wva_testbed::{Options, Ran, Testbed, eventually};

use crate::support::{good, try_create, variant};

/// Longest wait for anything the program does by itself: the promise is "within seconds".
const SOON: Duration = Duration::from_secs(15);
/// Namespace of the objects that were stored before the program ran.
const EARLY: &str = "early";
const KINDS: [&str; 2] = ["mutatingwebhookconfiguration", "validatingwebhookconfiguration"];

/// The control plane, the program on it, and what was seen before the program ran.
struct Shared {
    testbed: Testbed,
    install: Install,
    /// `rules` of all entries before the program ran.
    rules_before: Vec<Value>,
    /// What kubectl said to the objects of [`EARLY`].
    early: Vec<Ran>,
}

static SHARED: OnceCell<Shared> = OnceCell::const_new();
/// Written by the tests that break the doors or the program, read by those that need them.
static DOORS: RwLock<()> = RwLock::const_new(());
/// Held by the tests that make the main map, or ask whether they may: there is one.
static MAIN_MAP: Mutex<()> = Mutex::const_new(());

async fn shared() -> anyhow::Result<&'static Shared> {
    SHARED.get_or_try_init(start).await
}

async fn start() -> anyhow::Result<Shared> {
    let options = Options {
        name: "admission".to_owned(),
        nodes: Vec::new(),
        webhook_client: true,
        ..Options::default()
    };
    let testbed = Testbed::start(options).await?;
    Install::crd(&testbed).await?;
    let doors = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/base/webhook.yaml");
    testbed.apply(&std::fs::read_to_string(&doors)?).await?;
    let mut rules_before = Vec::new();
    for kind in KINDS {
        for entry in entries(&testbed, kind).await? {
            rules_before.push(entry["rules"].clone());
        }
    }
    testbed.kubectl(&["create", "namespace", EARLY]).await?.success()?;
    let mut odd = variant("odd", &good("odd"));
    odd["metadata"]["annotations"] = json!({"wva.llmd.ai/mode": "sometimes"});
    let mut early = Vec::new();
    for object in [variant("first", &good("llama")), variant("second", &good("llama")), odd] {
        early.push(create(&testbed, EARLY, &object).await?);
    }
    testbed.kubectl(&["create", "namespace", guard::NAMESPACE]).await?.success()?;
    for object in guard::unseen() {
        create(&testbed, guard::NAMESPACE, &object).await?.success()?;
    }
    let install = Install::start(&testbed, &InstallOptions::quick(env!("CARGO_BIN_EXE_wva"))).await?;
    testbed.apply(&policy::manifests()?).await?;
    Ok(Shared { testbed, install, rules_before, early })
}

/// `kubectl create`, really.
async fn create(testbed: &Testbed, namespace: &str, object: &Value) -> anyhow::Result<Ran> {
    testbed.kubectl_with(&["create", "-n", namespace, "-f", "-"], &object.to_string()).await
}

/// `kubectl patch --type=merge`, really.
async fn patch(testbed: &Testbed, namespace: &str, name: &str, change: &Value) -> anyhow::Result<Ran> {
    testbed.kubectl(&["patch", "va", name, "-n", namespace, "--type=merge", "-p", &change.to_string()]).await
}

/// A webhook configuration as it is stored.
async fn configuration(testbed: &Testbed, kind: &str) -> anyhow::Result<Value> {
    let stored = testbed.kubectl(&["get", kind, WEBHOOKS, "-o", "json"]).await?.success()?;
    Ok(serde_json::from_str(&stored)?)
}

/// The entries of a webhook configuration.
async fn entries(testbed: &Testbed, kind: &str) -> anyhow::Result<Vec<Value>> {
    let object = configuration(testbed, kind).await?;
    object["webhooks"].as_array().cloned().with_context(|| format!("{kind} has no entries: {object}"))
}

/// Waits until a fault that only the program can know is refused by it: the doors are open and it answers.
async fn judged_again(testbed: &Testbed) -> anyhow::Result<()> {
    let client = testbed.admin()?;
    let mut odd = variant("probe", &good("probe"));
    odd["metadata"]["annotations"] = json!({"wva.llmd.ai/mode": "sometimes"});
    eventually("the program to refuse a fault", SOON, async || {
        let refused = try_create(&client, "default", &odd).await?.err().context("it was admitted")?;
        ensure!(refused.message.contains("[WVA-VA-017]"), "{}", refused.message);
        Ok(())
    })
    .await
}
