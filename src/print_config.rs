//! `wva run --print-config`: every setting with its value and where it comes from, for whoever wonders why the program
//! does what it does. It needs no cluster, and says so where the main ConfigMap could not be read.

use std::fmt::Write as _;

use anyhow::Context as _;
use clap::ArgMatches;
use wva_cli::print;

use crate::settings::{MainMap, MapName, Patience, Sources};
use crate::start::main_map;

/// Prints the settings that the program would start with.
///
/// # Errors
/// All settings that are wrong.
pub(crate) async fn print_config(arguments: &ArgMatches) -> anyhow::Result<()> {
    let sources = Sources::collect(arguments, |key| std::env::var(key).ok());
    let MapName { namespace, name } = sources.main_map();
    let (map, state) = match main_map(&sources, Patience::Once).await {
        Ok(map) if map.uid.is_none() => (map, "there is none".to_owned()),
        Ok(map) => (map, "read".to_owned()),
        Err(error) => (MainMap::default(), format!("not read, so its keys are missing here: {error}")),
    };
    let settings = sources
        .read(&map.text)
        .with_context(|| format!("settings (main ConfigMap {namespace}/{name}: {state})"))?;
    let warnings = settings.warnings.iter().chain(&map.warnings);
    let mut told = format!("# main ConfigMap {namespace}/{name}: {state}\n");
    for warning in warnings {
        let _ = writeln!(told, "# warning: {warning}");
    }
    print(&(told + &settings.lines()))?;
    Ok(())
}
