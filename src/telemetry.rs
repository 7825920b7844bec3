//! Logs: JSON in a container (`ts`, `level`, `msg` and the event's own fields, which is what runbooks of the original
//! look for), readable lines on a terminal. Standard output is for what a command prints, so logs go to stderr.

use std::fmt;
use std::io::IsTerminal;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Registry;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt;
use wva_certs::Certs;

use crate::settings::{Log, LogFormat};

/// The level of the running log.
pub(crate) struct LogLevel(Handle<Targets, Registry>);

impl LogLevel {
    /// Changes it at once.
    pub(crate) fn set(&self, level: tracing::Level) {
        if let Err(error) = self.0.reload(filter(level)) {
            tracing::warn!(%error, "The log level could not be changed");
        }
    }
}

/// Starts logging for the life of the process.
pub(crate) fn start(log: &Log) -> LogLevel {
    let (subscriber, level) = subscriber(log);
    drop(subscriber.try_init()); // A second call in one process keeps the first logger.
    level
}

/// Logs what this thread says until the guard is dropped: what happens before all settings are known.
pub(crate) fn start_here(log: &Log) -> tracing::subscriber::DefaultGuard {
    subscriber(log).0.set_default()
}

/// What is logged at a level. The libraries below say much at debug level that is nobody's concern here.
fn filter(level: tracing::Level) -> Targets {
    Targets::new()
        .with_default(LevelFilter::from_level(level))
        .with_target("hyper", LevelFilter::WARN)
        .with_target("hyper_util", LevelFilter::WARN)
        .with_target("rustls", LevelFilter::WARN)
        .with_target("tower", LevelFilter::WARN)
        .with_target("kube_client", LevelFilter::WARN)
        // These two print every failed request without what it was about. The part of this program that asked logs it in full.
        .with_target("kube_client::client::builder", LevelFilter::OFF)
        .with_target("kube_runtime::watcher", LevelFilter::ERROR)
}

fn subscriber(log: &Log) -> (tracing::Dispatch, LogLevel) {
    let json = match log.format {
        LogFormat::Json => true,
        LogFormat::Text => false,
        LogFormat::Auto => !std::io::stderr().is_terminal(),
    };
    let (filter, level) = reload::Layer::new(filter(log.level));
    let registry = tracing_subscriber::registry().with(filter);
    let dispatch = if json {
        registry
            .with(tracing_subscriber::fmt::layer().event_format(JsonLines).with_writer(std::io::stderr))
            .into()
    } else {
        registry.with(tracing_subscriber::fmt::layer().with_target(false).with_writer(std::io::stderr)).into()
    };
    (dispatch, LogLevel(level))
}

struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = Map::new();
        let level = event.metadata().level().to_string().to_lowercase();
        line.insert("level".to_owned(), Value::String(level));
        line.insert("ts".to_owned(), Value::String(wva_controller::now_rfc3339()));
        event.record(&mut Fields(&mut line));
        writeln!(writer, "{}", Value::Object(line))
    }
}

struct Fields<'a>(&'a mut Map<String, Value>);

impl Fields<'_> {
    fn put(&mut self, field: &Field, value: Value) {
        let name = if field.name() == "message" { "msg" } else { field.name() };
        self.0.insert(name.to_owned(), value);
    }
}

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, Value::String(format!("{value:?}")));
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, Value::String(value.to_owned()));
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }
}

/// Version, revision and compiler, as `wva --version` prints them.
pub(crate) const LONG_VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (revision ",
    env!("WVA_REVISION"),
    ", rustc ",
    env!("WVA_RUSTC"),
    ")"
);

/// Version, revision and compiler, as a metric.
pub(crate) fn build_info() -> Result<prometheus::IntGaugeVec, prometheus::Error> {
    let opts = prometheus::Opts::new("wva_build_info", "What runs here.");
    let info = prometheus::IntGaugeVec::new(opts, &["version", "revision", "rustc"])?;
    info.with_label_values(&[env!("CARGO_PKG_VERSION"), env!("WVA_REVISION"), env!("WVA_RUSTC")]).set(1);
    Ok(info)
}

/// `wva_certificate_expiry_timestamp_seconds{name}`: when each certificate in use ends, read at each scrape.
pub(crate) struct CertificateExpiry {
    /// Before each name, and whose certificates.
    certs: Vec<(&'static str, Certs)>,
    gauge: prometheus::GaugeVec,
}

impl CertificateExpiry {
    /// For several sets of certificates; the prefix tells their names apart.
    pub(crate) fn new(certs: Vec<(&'static str, Certs)>) -> Result<Self, prometheus::Error> {
        let opts = prometheus::Opts::new(
            "wva_certificate_expiry_timestamp_seconds",
            "When a certificate in use ends (Unix time): ca signs or vouches for the serving ones.",
        );
        Ok(Self { certs, gauge: prometheus::GaugeVec::new(opts, &["name"])? })
    }
}

impl prometheus::core::Collector for CertificateExpiry {
    fn desc(&self) -> Vec<&prometheus::core::Desc> {
        self.gauge.desc()
    }

    fn collect(&self) -> Vec<prometheus::proto::MetricFamily> {
        for (prefix, certs) in &self.certs {
            for (name, ends) in certs.expiries() {
                let gauge = self.gauge.with_label_values(&[&format!("{prefix}{name}")]);
                #[expect(clippy::cast_precision_loss, reason = "seconds of this millennium are exact")]
                gauge.set(ends.as_second() as f64);
            }
        }
        self.gauge.collect()
    }
}
