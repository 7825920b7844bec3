//! Reloads settings when the main ConfigMap changes.

use std::pin::pin;

use futures::StreamExt;
use k8s_openapi::jiff::Timestamp;
use tokio::sync::watch;
use wva_controller::{ConfigReloads, EngineConfig, LeaderEvents};
use wva_crds::events::{EventSource, immutable_change};
use wva_crds::runbook_lines::{
    CONFIGURATION_UPDATED, IMMUTABLE_PARAMETERS_CHANGED, OPTIMIZATION_INTERVAL_UPDATED,
};
use wva_crds::settings::keys;
use wva_rules::MapRole;

use super::Process;
use crate::settings::{LiveSettings, MainMap, MapName, SettingsUpdate, changed_keys};
use crate::telemetry::LogLevel;

pub(super) struct ReloadTargets {
    pub(super) engine: watch::Sender<EngineConfig>,
    pub(super) level: LogLevel,
    pub(super) reloads: ConfigReloads,
}

impl Process {
    pub(super) fn watch_main_map(&mut self, mut live: LiveSettings, targets: ReloadTargets) {
        let map = live.main_map();
        let maps = wva_controller::main_map(self.clients.client.clone(), &map.namespace, &map.name);
        let logger = ConfigChangeLogger {
            leader_events: self.leader_state.leader_events.clone(),
            map,
            source: self.settings.event_source(),
        };
        let shutdown = self.signals.shutdown.clone();
        self.spawn("watch of the main ConfigMap", async move {
            let mut maps = pin!(maps);
            while let Some(Some(map)) = shutdown.run_until_cancelled(maps.next()).await {
                if let Some(update) = live.apply(MainMap::from_object(&map)) {
                    targets.apply(&update);
                    logger.log(&update);
                }
            }
            Ok(())
        });
    }
}

impl ReloadTargets {
    fn apply(&self, update: &SettingsUpdate) {
        self.reloads.count(MapRole::Main, update.is_valid);
        self.level.set(update.level);
        self.engine.send_if_modified(|config| std::mem::replace(config, update.engine) != update.engine);
    }
}

struct ConfigChangeLogger {
    leader_events: LeaderEvents,
    map: MapName,
    source: EventSource,
}

impl ConfigChangeLogger {
    fn log(&self, update: &SettingsUpdate) {
        for change in &update.changed {
            log_change(change.key, &change.old, &change.new, &change.source.to_string());
        }
        for invalid in &update.invalid {
            let (key, source) = (invalid.key, invalid.value_source.to_string());
            tracing::warn!(
                key,
                source,
                problem = invalid.problem,
                "Invalid setting ignored; keeping the previous value"
            );
        }
        for warning in &update.warnings {
            tracing::warn!("{warning}");
        }
        if !update.refused.is_empty() {
            self.log_refused(update);
        }
    }

    /// Every replica logs the change; the leader, or the next one, also writes an event.
    fn log_refused(&self, update: &SettingsUpdate) {
        let keys = changed_keys(&update.refused);
        if update.announces_restart {
            tracing::info!(keys, "Changed settings take effect after the announced restart");
            return;
        }
        let changes = update.refused.iter().map(|c| format!("{}: {:?} -> {:?}", c.key, c.old, c.new));
        let changes = changes.collect::<Vec<_>>().join(", ");
        let MapName { namespace, name } = &self.map;
        tracing::warn!(namespace, name, keys, changes, "{IMMUTABLE_PARAMETERS_CHANGED}");
        let note = format!(
            "Ignored a change of {keys}: these settings take effect only after a restart of the controller"
        );
        let uid = update.uid.as_deref();
        let event = immutable_change(namespace, name, uid, &note, &self.source, Timestamp::now());
        // Replicas that see the same version of the map queue the same event.
        let [uid, version] = [&update.uid, &update.version].map(|text| text.as_deref().unwrap_or_default());
        self.leader_events.add(event, &[uid, version, &changes]);
    }
}

fn log_change(key: &str, old: &str, new: &str, source: &str) {
    if key == keys::GLOBAL_OPT_INTERVAL.name() {
        // The guides of llm-d WVA search for `Updated.*config`; fields follow the message by their names.
        tracing::info!(old, new, source, role = "main config", "{OPTIMIZATION_INTERVAL_UPDATED}");
    } else {
        tracing::info!(key, old, new, source, "{CONFIGURATION_UPDATED}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::capture_json;

    #[test]
    fn guides_of_llm_d_wva_find_a_change_of_the_interval() {
        for key in ["GLOBAL_OPT_INTERVAL", "WVA_DECISION_HOLD"] {
            let line = capture_json(|| log_change(key, "60s", "30s", &format!("ConfigMap key {key}")));
            let updated = line.find("Updated").and_then(|at| line[at..].find("config"));
            assert!(updated.is_some(), "grep \"Updated.*config\" does not find {line}");
        }
    }
}
