//! Reads config file and main ConfigMap. A start waits for the map, because the defaults could scale all models
//! differently.

use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use wva_crds::names::RESTART_REVISION_ANNOTATION;
use wva_crds::settings::map::{MapText, parse_nested};
use wva_rules::{MapFacts, MapRole, MapScope, Severity, validate_map};

const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest pause between two attempts; the first is a tenth of it.
const MAX_PAUSE: Duration = Duration::from_secs(20);
/// Larger than the limit of a ConfigMap.
const MAX_FILE_BYTES: u64 = 2 << 20;

/// How long to retry reading the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    /// One attempt.
    Never,
    /// Attempts until the API server answers. A restart would not help, and would add load to a server that starts.
    UntilAnswered,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MainMap {
    pub(crate) text: MapText,
    pub(crate) restart_revision: Option<String>,
    /// `None` if the object does not exist.
    pub(crate) uid: Option<String>,
    pub(crate) version: Option<String>,
    /// Warnings of the rules, which admission may not have checked.
    pub(crate) warnings: Vec<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct MapName {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// Reads the main map; a missing one is empty.
///
/// # Errors
/// Forbidden, or not read by the only attempt.
pub(crate) async fn fetch(
    client: &Client,
    MapName { namespace, name }: &MapName,
    retry: Retry,
) -> anyhow::Result<MainMap> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let mut attempts = 0;
    loop {
        attempts += 1;
        let problem = match tokio::time::timeout(ATTEMPT_TIMEOUT, api.get_opt(name)).await {
            Ok(Ok(found)) => return Ok(found.map(|map| MainMap::from_object(&map)).unwrap_or_default()),
            // A retry does not help.
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
                anyhow::bail!(
                    "{}: the service account needs get, list and watch on this ConfigMap. Add it to \
                     resourceNames of the Role and to the matchCondition is-main-map of the webhook \
                     main.configmap.llmd.ai, or use the installed CONFIG_MAP_NAME \
                     (docs/getting-started/install.md, Other names)",
                    status.message
                )
            }
            Ok(Err(error)) => format!("{:#}", anyhow::Error::new(error)),
            Err(_) => format!("no answer within {} s", ATTEMPT_TIMEOUT.as_secs()),
        };
        let failure = format!("cannot read the ConfigMap {namespace}/{name}");
        anyhow::ensure!(retry == Retry::UntilAnswered, "{failure}: {problem}");
        tracing::warn!(attempts, problem, "Waiting for the API server: {failure}; retrying");
        tokio::time::sleep(MAX_PAUSE.min(attempts * MAX_PAUSE / 10)).await;
    }
}

impl MainMap {
    /// Parses and validates the object.
    pub(crate) fn from_object(map: &ConfigMap) -> Self {
        let object = serde_json::to_value(map).unwrap_or_default();
        let metadata = &map.metadata;
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let verdict = validate_map(&MapFacts::new(&object, namespace, MapRole::Main, MapScope::Global));
        // Invalid values are reported elsewhere.
        let is_reported = |code: &str| ["WVA-CM-003", "WVA-CM-008"].contains(&code);
        let reported =
            verdict.violations.iter().filter(|v| v.severity == Severity::Warn || is_reported(v.code));
        let data = object.get("data").and_then(serde_json::Value::as_object);
        let annotations = metadata.annotations.as_ref();
        Self {
            text: data.map(MapText::from_data).unwrap_or_default(),
            restart_revision: annotations.and_then(|a| a.get(RESTART_REVISION_ANNOTATION).cloned()),
            uid: metadata.uid.clone(),
            version: metadata.resource_version.clone(),
            warnings: reported
                .map(|v| format!("main ConfigMap: [{}] {}: {}", v.code, v.field, v.message))
                .collect(),
        }
    }
}

/// Reads the config file.
///
/// # Errors
/// Not readable, too large, or not a YAML map.
pub(super) fn config_file(path: &str) -> anyhow::Result<MapText> {
    let context = || {
        format!(
            "{path:?} is not a valid config file; use a YAML map with keys of the main ConfigMap, or unset CONFIG_FILE"
        )
    };
    let size = std::fs::metadata(path).with_context(context)?.len();
    anyhow::ensure!(size <= MAX_FILE_BYTES, "{}: it has {size} bytes, more than {MAX_FILE_BYTES}", context());
    let text = std::fs::read_to_string(path).with_context(context)?;
    let keys = parse_nested(&text).with_context(context)?;
    Ok(MapText { keys, nested_error: None })
}
