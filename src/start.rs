//! Loads the settings at the start, and reports all errors in one message.

use anyhow::Context as _;
use clap::ArgMatches;
use tokio_util::sync::CancellationToken;
use wva_crds::settings::map::MapText;

use crate::settings::{self, LiveSettings, MainMap, MapName, Retry, Settings, Sources};
use crate::{endpoints, telemetry};

/// Loads the settings, and the state for changes of the main ConfigMap. With invalid flags or environment the start
/// fails anyway, so the map is read only once, to report its errors too.
pub(crate) async fn load_settings(arguments: &ArgMatches) -> anyhow::Result<(Settings, LiveSettings)> {
    let sources = Sources::collect(arguments, |key| std::env::var(key).ok());
    let without_map = sources.read(&MapText::default());
    let is_command_invalid = without_map.as_ref().is_err_and(settings::SettingsError::is_from_command);
    let read = if is_command_invalid {
        read_main_map(&sources, Retry::Never).await
    } else {
        wait_for_main_map(&sources).await
    };
    let map = match read {
        Ok(map) => map,
        Err(error) => {
            return Err(match without_map {
                Err(invalid) if is_command_invalid => anyhow::Error::new(invalid)
                    .context(format!("settings (main ConfigMap not read: {error})")),
                _ => error,
            });
        }
    };
    let mut settings = sources.read(&map.text).with_context(|| {
        let MapName { namespace, name } = sources.main_map();
        format!("settings (main ConfigMap {namespace}/{name})")
    })?;
    settings.maps.running.restart_revision.clone_from(&map.restart_revision);
    settings.given.warnings.extend(map.warnings.iter().cloned());
    let live = LiveSettings::new(sources, map, settings.given.values.clone());
    Ok((settings, live))
}

/// Answers the kubelet meanwhile: alive, and not ready. The address is free again at the end.
async fn wait_for_main_map(sources: &Sources) -> anyhow::Result<MainMap> {
    let Some(address) = sources.first_health_address() else {
        return read_main_map(sources, Retry::UntilAnswered).await;
    };
    let listener = wva_runtime::server::bind("/healthz and /readyz", address)?;
    let found = CancellationToken::new();
    let serving = endpoints::serve(
        endpoints::limits("health"),
        listener,
        None,
        endpoints::waiting_router(),
        found.clone(),
    );
    let reading = async {
        let map = read_main_map(sources, Retry::UntilAnswered).await;
        found.cancel();
        map
    };
    let (map, served) = tokio::join!(reading, serving);
    served.map_err(anyhow::Error::msg)?;
    map
}

pub(crate) async fn read_main_map(sources: &Sources, retry: Retry) -> anyhow::Result<MainMap> {
    // The logger is set for this thread only; `block_on` stays on it.
    let _log = telemetry::init_for_thread(&sources.first_log());
    settings::fetch(&wva_runtime::client::client(None).await?, &sources.main_map(), retry).await
}

/// Outside a pod, a controller without leader election would act next to the one that is installed.
///
/// # Errors
/// That case, without `--standalone`.
pub(crate) fn ensure_leading_is_safe(arguments: &ArgMatches, settings: &Settings) -> anyhow::Result<()> {
    let is_in_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    anyhow::ensure!(
        is_in_pod || settings.election.is_some() || arguments.get_flag("standalone"),
        "refusing to lead outside a pod without leader election, because another controller can be installed: pass \
         --leader-elect, or --standalone if there is no other"
    );
    Ok(())
}
