//! The sources besides flags and environment: the config file, and the main ConfigMap as it is when the process starts.
//! A map that cannot be read is no reason to run with the defaults, which could scale everything differently.

use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use tokio::time::Instant;
use wva_crds::names::RESTART_REVISION_ANNOTATION;
use wva_crds::settings::Setting;
use wva_crds::settings::map::{MapText, nested};
use wva_rules::{MapFacts, MapRole, Place, Severity, validate_map};

/// How long one try to read the map may take, and how long it is tried in all: nobody answers probes until it is read,
/// and who waits for longer is ended by the kubelet. After the last try it starts the process anew.
const TRY: Duration = Duration::from_secs(5);
const ALL: Duration = Duration::from_secs(22);
const PAUSE: Duration = Duration::from_secs(2);
/// A config file is as large as a ConfigMap can be.
const MOST_FILE_BYTES: u64 = 2 << 20;

/// The main ConfigMap as it is at the start.
#[derive(Debug, Default)]
pub(crate) struct MainMap {
    pub(crate) text: MapText,
    pub(crate) restart_revision: Option<String>,
    /// What the rules say of it, to be logged: admission is not trusted to have run.
    pub(crate) warnings: Vec<String>,
}

/// Where the main map is. That alone is read from the environment alone.
pub(crate) fn namespace_and_name(environment: impl Fn(&str) -> Option<String>) -> (String, String) {
    let read = |key: &str| {
        let set = environment(key).filter(|text| !text.is_empty());
        set.or_else(|| Setting::by_key(key)?.default.map(str::to_owned)).unwrap_or_default()
    };
    (read("POD_NAMESPACE"), read("CONFIG_MAP_NAME"))
}

/// Reads the main map; an absent one is empty.
///
/// # Errors
/// When it cannot be read within half a minute. Each try that failed is logged.
pub(crate) async fn fetch(client: &Client, namespace: &str, name: &str) -> anyhow::Result<MainMap> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let started = Instant::now();
    let mut tries = 0;
    loop {
        tries += 1;
        let problem = match tokio::time::timeout(TRY, api.get_opt(name)).await {
            Ok(Ok(found)) => return Ok(found.map(|map| read(&map, namespace)).unwrap_or_default()),
            // It is not for lack of time that this is forbidden.
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
                anyhow::bail!("{}: the service account needs get on this ConfigMap", status.message)
            }
            Ok(Err(error)) => format!("{:#}", anyhow::Error::new(error)),
            Err(_) => format!("no answer within {} s", TRY.as_secs()),
        };
        let what = format!("cannot read the ConfigMap {namespace}/{name}");
        // A try that would end after the time is not begun.
        if started.elapsed() + PAUSE + TRY > ALL {
            anyhow::bail!("{what} after {tries} tries: {problem}");
        }
        tracing::warn!(tries, problem, "The start waits: {what}");
        tokio::time::sleep(PAUSE).await;
    }
}

fn read(map: &ConfigMap, namespace: &str) -> MainMap {
    let object = serde_json::to_value(map).unwrap_or_default();
    let verdict = validate_map(&MapFacts::of(&object, namespace, (MapRole::Main, Place::Global)));
    // What does not parse ends the start, with its own words.
    let told = verdict.violations.iter().filter(|v| v.severity == Severity::Warn || v.code == "WVA-CM-003");
    let data = object.get("data").and_then(serde_json::Value::as_object);
    MainMap {
        text: data.map(MapText::of).unwrap_or_default(),
        restart_revision: map
            .metadata
            .annotations
            .as_ref()
            .and_then(|a| a.get(RESTART_REVISION_ANNOTATION).cloned()),
        warnings: told.map(|v| format!("main ConfigMap: [{}] {}: {}", v.code, v.field, v.message)).collect(),
    }
}

/// Reads the config file.
///
/// # Errors
/// When it cannot be read, is too large, or is no map from keys to values.
pub(crate) fn config_file(path: &str) -> anyhow::Result<MapText> {
    let context = || format!("the config file {path:?} (--config-file, CONFIG_FILE)");
    let size = std::fs::metadata(path).with_context(context)?.len();
    anyhow::ensure!(
        size <= MOST_FILE_BYTES,
        "{}: it has {size} bytes, more than {MOST_FILE_BYTES}",
        context()
    );
    let text = std::fs::read_to_string(path).with_context(context)?;
    let written = nested(&text).with_context(context)?;
    Ok(MapText { written, nested_error: None })
}
