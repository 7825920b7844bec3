//! `wva run --print-config`. It works without a cluster.

use std::fmt::Write as _;

use anyhow::Context as _;
use clap::ArgMatches;
use wva_runtime::terminal::{harmless, print_unchecked};

use crate::settings::{MainMap, MapName, Retry, Sources};
use crate::start::read_main_map;

/// Prints every setting with its source, even if some are invalid.
///
/// # Errors
/// All invalid settings.
pub(crate) async fn print_config(arguments: &ArgMatches) -> anyhow::Result<()> {
    let sources = Sources::collect(arguments, |key| std::env::var(key).ok());
    let MapName { namespace, name } = sources.main_map();
    let (map, state) = match read_main_map(&sources, Retry::Never).await {
        Ok(map) if map.uid.is_none() => (map, "does not exist".to_owned()),
        Ok(map) => (map, "read".to_owned()),
        Err(error) => (MainMap::default(), format!("not read, so its keys are missing here: {error}")),
    };
    let settings = sources.read(&map.text);
    let mut text = format!("# main ConfigMap {namespace}/{name}: {state}\n");
    let of_settings = settings.as_ref().map(|settings| &*settings.given.warnings).unwrap_or_default();
    for warning in of_settings.iter().chain(&map.warnings) {
        let _ = writeln!(text, "# warning: {warning}");
    }
    // The table helps most if a setting is wrong or missing.
    print_unchecked(&harmless(&(text + &sources.values(&map.text).lines()), false))
        .context("cannot write to standard output")?;
    settings.map(|_| ()).with_context(|| format!("settings (main ConfigMap {namespace}/{name}: {state})"))
}
