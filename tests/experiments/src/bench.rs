//! Benches of idle consumption and of review latency. Each runs the real program on a real control plane and fails if
//! a bound is exceeded.

pub(crate) mod admission;
pub(crate) mod cycle;
mod exporter;
pub(crate) mod idle;
pub(crate) mod idle_fleet;
mod load;
mod pairs;
mod review;
pub(crate) mod sizes;
mod stored;
pub(crate) mod tenants;

pub(crate) use stored::{Fleet, NAMESPACES, ServingCluster, VARIANTS, count, create};

use std::path::Path;

use anyhow::Context as _;
use serde_json::Value;

use crate::command::print_line;

/// Writes the figures as JSON and prints the path.
pub(crate) fn write_json(path: &Path, figures: &Value) -> anyhow::Result<()> {
    let folder = path.parent().context("a file without a folder")?;
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    std::fs::write(path, format!("{figures:#}\n"))
        .with_context(|| format!("cannot write {}", path.display()))?;
    print_line(&format!("\nthe same as JSON: {}", path.display()))
}
