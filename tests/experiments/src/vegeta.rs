//! Reviews at a constant rate, sent by vegeta directly to the program's admission port.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use tokio::process::Command;
use wva_testbed::install::{Install, WEBHOOKS};
use wva_testbed::{Testbed, Tools, within};

/// Load generator with target port and working folder.
pub(crate) struct Vegeta {
    program: PathBuf,
    pub(crate) port: u16,
    folder: PathBuf,
    /// CA of the admission port, PEM.
    pub(crate) ca: Vec<u8>,
}

/// One load.
pub(crate) struct Attack<'a> {
    /// Stem of its file names.
    pub(crate) name: &'a str,
    /// Paths that receive each body.
    pub(crate) paths: &'a [&'a str],
    pub(crate) bodies: &'a [Value],
    /// Requests per second.
    pub(crate) rate: u32,
    pub(crate) lasts: Duration,
    /// Additional flags of `vegeta attack`.
    pub(crate) flags: &'a [&'a str],
}

/// Results of vegeta.
#[derive(Debug, Deserialize)]
pub(crate) struct AttackResult {
    pub(crate) requests: f64,
    pub(crate) rate: f64,
    /// Share of answers with code 200, 0..=1.
    pub(crate) success: f64,
    pub(crate) latencies: Latencies,
    pub(crate) status_codes: Value,
    pub(crate) errors: Value,
}

/// Answer times, in milliseconds.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Latencies {
    #[serde(rename(deserialize = "50th"), deserialize_with = "milliseconds")]
    pub(crate) p50: f64,
    #[serde(rename(deserialize = "90th"), deserialize_with = "milliseconds")]
    pub(crate) p90: f64,
    #[serde(rename(deserialize = "99th"), deserialize_with = "milliseconds")]
    pub(crate) p99: f64,
    #[serde(deserialize_with = "milliseconds")]
    pub(crate) max: f64,
}

/// vegeta reports nanoseconds.
fn milliseconds<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    f64::deserialize(from).map(|nanoseconds| nanoseconds / 1e6)
}

impl Vegeta {
    /// Builds vegeta if it is missing, and reads the address of the admission port.
    pub(crate) async fn new(testbed: &Testbed, install: &Install, folder: &Path) -> anyhow::Result<Self> {
        let program = tokio::task::spawn_blocking(|| Tools::on_request("vegeta")).await??;
        let address = install.address("admission")?;
        let port = address.rsplit_once(':').context("an address without a port")?.1.parse()?;
        let path = "go-template={{(index .webhooks 0).clientConfig.caBundle | base64decode}}";
        let get = ["get", "validatingwebhookconfiguration", WEBHOOKS, "-o", path];
        let ca = testbed.kubectl(&get).await?.success()?.into_bytes();
        let vegeta = Self { program, port, folder: folder.to_owned(), ca };
        vegeta.write("ca.pem", &vegeta.ca)?;
        Ok(vegeta)
    }

    /// Sends the bodies round robin for the whole duration.
    pub(crate) async fn attack(&self, attack: &Attack<'_>) -> anyhow::Result<AttackResult> {
        let Attack { name, paths, bodies, rate, lasts, flags } = attack;
        let mut targets = String::new();
        for (i, body) in bodies.iter().enumerate() {
            let body = self.write(&format!("{name}-{i}.json"), body.to_string())?;
            for path in *paths {
                // A name in the serving certificate that resolves to loopback.
                writeln!(targets, "POST https://localhost:{}{path}", self.port)?;
                writeln!(targets, "Content-Type: application/json\n@{}\n", body.display())?;
            }
        }
        let targets = self.write(&format!("{name}.targets"), targets)?;
        let results = self.folder.join(format!("{name}.bin"));
        let arguments = [
            "attack".to_owned(),
            format!("-rate={rate}/s"),
            format!("-duration={}s", lasts.as_secs()),
            // Time-out of a webhook call: 5 seconds.
            "-timeout=5s".to_owned(),
            format!("-root-certs={}", self.folder.join("ca.pem").display()),
            format!("-targets={}", targets.display()),
            format!("-output={}", results.display()),
        ];
        let flags = flags.iter().map(|flag| (*flag).to_owned());
        self.run(arguments.into_iter().chain(flags), *lasts + Duration::from_secs(30)).await?;
        let report = ["report".to_owned(), "-type=json".to_owned(), results.display().to_string()];
        let report = self.run(report, Duration::from_mins(1)).await?;
        serde_json::from_slice(&report).context("cannot parse vegeta's report")
    }

    async fn run(
        &self,
        arguments: impl IntoIterator<Item = String>,
        limit: Duration,
    ) -> anyhow::Result<Vec<u8>> {
        let mut command = Command::new(&self.program);
        command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
        let out = within("vegeta", limit, command.output()).await?;
        ensure!(out.status.success(), "vegeta: {}: {}", out.status, String::from_utf8_lossy(&out.stderr));
        Ok(out.stdout)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> anyhow::Result<PathBuf> {
        let path = self.folder.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}
