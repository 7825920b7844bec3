//! `wva backtest`: what policies would have done with the traffic that a Prometheus has recorded.

mod costs;
mod fetch;
mod judge;
mod matrix;
mod options;
mod store;
mod variants;

use std::process::ExitCode;

use anyhow::Context;
use clap::{ArgMatches, Command};
use wva_crds::envelope::{self, FileKind};
use wva_simulator::backtest::answer::{BacktestReport, ModelAnswer};
use wva_simulator::backtest::text::text;

use self::options::Options;
use self::store::Store;
use self::variants::Variants;
use crate::arguments::output_format;
use crate::output::{self, print};

pub(crate) fn command() -> Command {
    options::command()
}

pub(crate) fn backtest(arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    let options = match Options::read(arguments) {
        Ok(options) => options,
        Err(error) => return Ok(output::wrong_usage(error)),
    };
    // Before the queries, which may take minutes.
    let variants = if variants::is_asked_for(arguments) {
        crate::block_on(variants::read(arguments, &options))?
    } else {
        Variants::new()
    };
    let store = match &options.from {
        Some(file) => Store::read(file)?.only(&options.selector, file)?,
        None => crate::block_on(fetch::fetch(arguments, &options))?,
    };
    anyhow::ensure!(!store.histories.is_empty(), options.nothing_found());
    if let Err(error) = options.costs.ensure_known(store.histories.values()) {
        return Ok(output::wrong_usage(error));
    }
    if let Some(file) = &options.export {
        store.export(file, options.is_anonymous)?;
    }
    let report = judge::judge(&store, &variants, &options)?;
    print(&match output_format(arguments) {
        format @ ("json" | "yaml") => output::report(FileKind::BacktestReport, &report.0, format)?,
        _ => text(&report.0),
    })?;
    if let Some(file) = &options.report {
        std::fs::write(file, report.1.html()?).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(if has_verdict(&report.0) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Schema of the first line of an export.
pub(crate) fn history_schema() -> serde_json::Value {
    envelope::schema::<store::Header>(FileKind::BacktestHistory, true)
}

fn has_verdict(report: &BacktestReport) -> bool {
    report.models.iter().any(ModelAnswer::has_verdict)
}
