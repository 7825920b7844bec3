//! The settings that the program starts with, out of all sources. What is wrong in any of them is said in one message.

use anyhow::Context as _;
use clap::ArgMatches;
use wva_crds::settings::map::MapText;

use crate::settings::{self, Live, MainMap, MapName, Patience, Settings, Sources};
use crate::telemetry;

/// Settings from all sources, and what follows the main ConfigMap from here on. Where flags or environment are wrong
/// the program cannot start, so the map is asked for once, for what is wrong there.
pub(crate) async fn settings(arguments: &ArgMatches) -> anyhow::Result<(Settings, Live)> {
    let sources = Sources::collect(arguments, |key| std::env::var(key).ok());
    let without_map = sources.read(&MapText::default());
    let hopeless = without_map.as_ref().is_err_and(settings::SettingsError::is_of_the_command);
    let map = match main_map(&sources, if hopeless { Patience::Once } else { Patience::AsTheKubelet }).await {
        Ok(map) => map,
        Err(error) => {
            return Err(match without_map {
                Err(wrong) if hopeless => anyhow::Error::new(wrong)
                    .context(format!("settings (the main ConfigMap could not be read: {error})")),
                _ => error,
            });
        }
    };
    let mut settings = sources.read(&map.text).with_context(|| {
        let MapName { namespace, name } = sources.main_map();
        format!("settings (the main ConfigMap is {namespace}/{name})")
    })?;
    settings.running.restart_revision.clone_from(&map.restart_revision);
    settings.warnings.extend(map.warnings.iter().cloned());
    let live = Live::new(sources, map, settings.values.clone());
    Ok((settings, live))
}

/// The main ConfigMap as it is now.
pub(crate) async fn main_map(sources: &Sources, patience: Patience) -> anyhow::Result<MainMap> {
    // `block_on` keeps this on one thread.
    let _log = telemetry::start_here(&sources.first_log());
    settings::fetch(&wva_runtime::client::client(None).await?, &sources.main_map(), patience).await
}
