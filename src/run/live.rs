//! Follows the main ConfigMap while the process runs: what may change holds at once, what may not is told, and nothing
//! that is wrong takes a good value away.

use std::pin::pin;

use futures::StreamExt;
use k8s_openapi::jiff::Timestamp;
use tokio::sync::watch;
use wva_controller::{ConfigKind, ConfigReloads, EngineConfig, Notices};
use wva_crds::events::{ImmutableChange, immutable_change};

use super::Process;
use crate::settings::{Live, MainMap, MapName, Update, keys};
use crate::telemetry::LogLevel;

/// Those whom a change of settings reaches.
pub(super) struct ReloadTargets {
    pub(super) engine: watch::Sender<EngineConfig>,
    pub(super) level: LogLevel,
    pub(super) reloads: ConfigReloads,
}

impl Process {
    /// Takes in each change of the main ConfigMap.
    pub(super) fn follow_main_map(&mut self, mut live: Live, reached: ReloadTargets) {
        let map = live.main_map();
        let maps = wva_controller::main_map(self.clients.client.clone(), &map.namespace, &map.name);
        let told = ConfigChangeLogger {
            notices: self.leading.notices.clone(),
            map,
            reporter: self.settings.pod_name.clone(),
        };
        let shutdown = self.end.shutdown.clone();
        self.spawn("watch of the main ConfigMap", async move {
            let mut maps = pin!(maps);
            while let Some(Some(map)) = shutdown.run_until_cancelled(maps.next()).await {
                if let Some(update) = live.take_in(MainMap::of(&map)) {
                    reached.take_over(&update);
                    told.tell(&update);
                }
            }
            Ok(())
        });
    }
}

impl ReloadTargets {
    fn take_over(&self, update: &Update) {
        self.reloads.count(ConfigKind::Main, update.valid);
        self.level.set(update.level);
        self.engine.send_if_modified(|config| std::mem::replace(config, update.engine) != update.engine);
    }
}

/// What is needed to tell of a change.
struct ConfigChangeLogger {
    /// For the events, which a leader writes.
    notices: Notices,
    map: MapName,
    reporter: Option<String>,
}

impl ConfigChangeLogger {
    fn tell(&self, update: &Update) {
        for change in &update.changed {
            let (key, old, new) = (change.key, &change.old, &change.new);
            let source = change.source.to_string();
            // The line that runbooks of the original look for.
            if key == "GLOBAL_OPT_INTERVAL" {
                tracing::info!(%old, %new, source, "Updated optimization interval");
            } else {
                tracing::info!(%key, %old, %new, source, "Updated configuration");
            }
        }
        for wrong in &update.wrong {
            let (key, source) = (wrong.key, wrong.source_of_value.to_string());
            tracing::warn!(
                key,
                source,
                problem = wrong.problem,
                "A setting of the main ConfigMap is wrong: the value it had holds on"
            );
        }
        for warning in &update.warnings {
            tracing::warn!("{warning}");
        }
        if !update.refused.is_empty() {
            self.tell_refused(update);
        }
    }

    /// Logged by every replica, and an event of the one that leads, now or soon.
    fn tell_refused(&self, update: &Update) {
        let keys = keys(&update.refused);
        if update.restart_stated {
            tracing::info!(
                keys,
                "Settings that are read at the start alone have changed: they hold from the restart on"
            );
            return;
        }
        let changes = update.refused.iter().map(|c| format!("{}: {:?} -> {:?}", c.key, c.old, c.new));
        let changes = changes.collect::<Vec<_>>().join(", ");
        let MapName { namespace, name } = &self.map;
        tracing::warn!(namespace, name, keys, changes, "Attempted to change immutable parameters");
        let event = immutable_change(&ImmutableChange {
            namespace,
            name,
            uid: update.uid.as_deref(),
            note: &format!(
                "Ignored a change of {keys}: read at the start alone, so the running values hold. Restart the \
                 controller to have the new ones"
            ),
            reporter: self.reporter.as_deref(),
            at: Timestamp::now(),
        });
        // The same change, as long as the replicas see the same version of the map.
        let [uid, version] = [&update.uid, &update.version].map(|text| text.as_deref().unwrap_or_default());
        self.notices.add(event, &[uid, version, &changes]);
    }
}
