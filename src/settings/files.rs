//! The sources besides flags and environment: the config file, and the main ConfigMap.
//! A map that cannot be read is no reason to run with the defaults, which could scale everything differently.

use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use tokio::time::Instant;
use wva_crds::names::RESTART_REVISION_ANNOTATION;
use wva_crds::settings::map::{MapText, parse_nested};
use wva_rules::{MapFacts, MapRole, MapScope, Severity, validate_map};

/// How long one try to read the map may take.
const TRY: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_secs(2);
/// A config file is as large as a ConfigMap can be.
const MOST_FILE_BYTES: u64 = 2 << 20;

/// How long it is tried to read the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Once: nothing depends on it but a message.
    Once,
    /// As long as the kubelet waits: nobody answers probes until the map is read, and who waits for longer is ended.
    /// After the last try the process is started anew.
    AsTheKubelet,
}

impl Patience {
    const fn all(self) -> Duration {
        match self {
            Self::Once => TRY,
            Self::AsTheKubelet => Duration::from_secs(22),
        }
    }
}

/// The main ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MainMap {
    pub(crate) text: MapText,
    pub(crate) restart_revision: Option<String>,
    /// Of the object; `None` where there is none.
    pub(crate) uid: Option<String>,
    pub(crate) version: Option<String>,
    /// What the rules say of it, to be logged: admission is not trusted to have run.
    pub(crate) warnings: Vec<String>,
}

/// Names a ConfigMap.
#[derive(Clone, Debug)]
pub(crate) struct MapName {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// Reads the main map; an absent one is empty.
///
/// # Errors
/// When it cannot be read in time. Each try that failed is logged but the last.
pub(crate) async fn fetch(
    client: &Client,
    MapName { namespace, name }: &MapName,
    patience: Patience,
) -> anyhow::Result<MainMap> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let started = Instant::now();
    let mut tries = 0;
    loop {
        tries += 1;
        let problem = match tokio::time::timeout(TRY, api.get_opt(name)).await {
            Ok(Ok(found)) => return Ok(found.map(|map| MainMap::of(&map)).unwrap_or_default()),
            // It is not for lack of time that this is forbidden.
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
                anyhow::bail!(
                    "{}: the service account needs get, list and watch on this ConfigMap. Name it in \
                     resourceNames of the Role and in the matchCondition is-main-map of the webhook \
                     main.configmap.llmd.ai, or leave CONFIG_MAP_NAME as it was installed (docs/install.md, Other names)",
                    status.message
                )
            }
            Ok(Err(error)) => format!("{:#}", anyhow::Error::new(error)),
            Err(_) => format!("no answer within {} s", TRY.as_secs()),
        };
        let what = format!("cannot read the ConfigMap {namespace}/{name}");
        // A try that would end after the time is not begun.
        if started.elapsed() + PAUSE + TRY > patience.all() {
            anyhow::bail!("{what} after {tries} tries: {problem}");
        }
        tracing::warn!(tries, problem, "The start waits: {what}");
        tokio::time::sleep(PAUSE).await;
    }
}

impl MainMap {
    /// Reads the object.
    pub(crate) fn of(map: &ConfigMap) -> Self {
        let object = serde_json::to_value(map).unwrap_or_default();
        let metadata = &map.metadata;
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let verdict = validate_map(&MapFacts::new(&object, namespace, (MapRole::Main, MapScope::Global)));
        // What does not parse is told in other words, with what holds instead.
        let told =
            verdict.violations.iter().filter(|v| v.severity == Severity::Warn || v.code == "WVA-CM-003");
        let data = object.get("data").and_then(serde_json::Value::as_object);
        let annotations = metadata.annotations.as_ref();
        Self {
            text: data.map(MapText::from_data).unwrap_or_default(),
            restart_revision: annotations.and_then(|a| a.get(RESTART_REVISION_ANNOTATION).cloned()),
            uid: metadata.uid.clone(),
            version: metadata.resource_version.clone(),
            warnings: told
                .map(|v| format!("main ConfigMap: [{}] {}: {}", v.code, v.field, v.message))
                .collect(),
        }
    }
}

/// Reads the config file.
///
/// # Errors
/// When it cannot be read, is too large, or is no map from keys to values.
pub(super) fn config_file(path: &str) -> anyhow::Result<MapText> {
    let context = || {
        format!(
            "found {path:?}: the file cannot be read: name one with the keys of the main ConfigMap, or none"
        )
    };
    let size = std::fs::metadata(path).with_context(context)?.len();
    anyhow::ensure!(
        size <= MOST_FILE_BYTES,
        "{}: it has {size} bytes, more than {MOST_FILE_BYTES}",
        context()
    );
    let text = std::fs::read_to_string(path).with_context(context)?;
    let keys = parse_nested(&text).with_context(context)?;
    Ok(MapText { keys, nested_error: None })
}
