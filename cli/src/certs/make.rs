//! `wva certs make`: certificates for clusters in which the controller creates none.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::ArgMatches;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use wva_certs::CertsConfig;
use wva_certs::ca::{Ca, PemPair};
use wva_certs::set::CaSet;
use wva_crds::GoDuration;

use crate::arguments::{path_value, value};
use crate::output::{print, yaml};

const MIN_LIFETIME: Duration = Duration::from_mins(1);
const PRIVATE: u32 = 0o600;
const PUBLIC: u32 = 0o644;

pub(super) fn make(arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    let text = |name: &str| value(arguments, name);
    let namespace = text("namespace").context("--namespace is missing")?;
    let span = |name: &str| arguments.get_one::<GoDuration>(name).map_or(Duration::ZERO, |span| span.get());
    let now = Timestamp::now();
    let ca = Ca::generate(span("ca-lifetime"), now)?;
    if let Some(secret) = text("secret") {
        print(&manifest(namespace, secret, ca)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let service = text("service").context("--service is missing")?;
    let folder = path_value(arguments, "out").context("--out is missing")?;
    let names = CertsConfig::service_names(service, namespace);
    let PemPair { cert, key } = ca.sign_serving_pem(&names, span("cert-lifetime"), now)?;
    let files =
        [("tls.crt", cert.as_str(), PUBLIC), ("tls.key", &key, PRIVATE), ("ca.crt", ca.cert().pem(), PUBLIC)];
    write_all(folder, &files)?;
    let made: Vec<_> = files.iter().map(|(name, ..)| folder.join(name).display().to_string()).collect();
    print(&format!("{}\n", made.join("\n")))?;
    Ok(ExitCode::SUCCESS)
}

/// Secret of mode `self` with a CA only.
fn manifest(namespace: &str, name: &str, ca: Ca) -> anyhow::Result<String> {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": name, "namespace": namespace},
        "data": CaSet::new(ca).to_secret_data(),
    });
    yaml(&secret)
}

/// Parses the lifetime of a certificate.
pub(super) fn lifetime(text: &str) -> Result<GoDuration, String> {
    let span: GoDuration = text.parse().map_err(|error| format!("{error}"))?;
    if span.get() < MIN_LIFETIME { Err(format!("{text} is too short; use at least 1m")) } else { Ok(span) }
}

fn write_all(folder: &Path, files: &[(&str, &str, u32)]) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot create the directory {}", folder.display()))?;
    for (name, ..) in files {
        let path = folder.join(name);
        // Finds dangling links too.
        ensure!(
            std::fs::symlink_metadata(&path).is_err_and(|e| e.kind() == ErrorKind::NotFound),
            "{} exists already and is not overwritten: remove it or choose another directory",
            path.display()
        );
    }
    for (name, content, mode) in files {
        let path = folder.join(name);
        let written = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(*mode)
            .open(&path)
            .and_then(|mut file| file.write_all(content.as_bytes()));
        written.with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
