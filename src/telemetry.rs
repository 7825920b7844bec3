//! Logs: JSON in a container (`ts`, `level`, `msg` and the event's own fields, which is what runbooks of the original
//! look for), readable lines on a terminal. Standard output is for what a command prints, so logs go to stderr.

use std::fmt;
use std::io::IsTerminal;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Registry;
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::fmt::format::JsonFields;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::{LookupSpan, SpanRef};
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt;
use wva_certs::Certs;

use crate::settings::{Log, LogFormat};

/// The level of the running log.
pub(crate) struct LogLevel(Handle<EnvFilter, Registry>);

impl LogLevel {
    /// Changes it at once.
    pub(crate) fn set(&self, level: tracing::Level) {
        let filter = filter(level, &rust_log()).unwrap_or_else(|_| plain(level));
        if let Err(error) = self.0.reload(filter) {
            tracing::warn!(%error, "The log level could not be changed");
        }
    }
}

/// Starts logging for the life of the process.
pub(crate) fn start(log: &Log) -> LogLevel {
    let (subscriber, level) = subscriber(log);
    drop(subscriber.try_init()); // A second call in one process keeps the first logger.
    let rust_log = rust_log();
    if let Err(error) = filter(log.level, &rust_log) {
        tracing::warn!(
            RUST_LOG = rust_log,
            error,
            "RUST_LOG is ignored: write directives such as `wva_controller=debug` or `[review]=debug`, with commas"
        );
    }
    level
}

/// Logs what this thread says until the guard is dropped: what happens before all settings are known.
pub(crate) fn start_here(log: &Log) -> tracing::subscriber::DefaultGuard {
    subscriber(log).0.set_default()
}

/// What is logged at every level of the libraries below, which say much that is nobody's concern here. The last two print
/// every failed request without what it was about: the part of this program that asked logs it in full.
const LIBRARIES: &str = "hyper=warn,hyper_util=warn,rustls=warn,tower=warn,kube_client=warn,\
                         kube_client::client::builder=off,kube_runtime::watcher=error";

/// Directives that come after all others, and count before them where they are as narrow or narrower.
fn rust_log() -> String {
    std::env::var("RUST_LOG").unwrap_or_default()
}

/// What is logged at a level.
///
/// # Errors
/// Why the directives are none, for people.
fn filter(level: tracing::Level, directives: &str) -> Result<EnvFilter, String> {
    EnvFilter::try_new(format!("{level},{LIBRARIES},{directives}")).map_err(|error| error.to_string())
}

/// The same, without directives.
fn plain(level: tracing::Level) -> EnvFilter {
    EnvFilter::new(format!("{level},{LIBRARIES}"))
}

fn subscriber(log: &Log) -> (tracing::Dispatch, LogLevel) {
    let json = match log.format {
        LogFormat::Json => true,
        LogFormat::Text => false,
        LogFormat::Auto => !std::io::stderr().is_terminal(),
    };
    let filter = filter(log.level, &rust_log()).unwrap_or_else(|_| plain(log.level));
    let (filter, level) = reload::Layer::new(filter);
    let registry = tracing_subscriber::registry().with(filter);
    let dispatch = if json {
        let lines = tracing_subscriber::fmt::layer().event_format(JsonLines).fmt_fields(JsonFields::new());
        registry.with(lines.with_writer(std::io::stderr)).into()
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
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = Map::new();
        let level = event.metadata().level().to_string().to_lowercase();
        line.insert("level".to_owned(), Value::String(level));
        line.insert("ts".to_owned(), Value::String(wva_controller::now_rfc3339()));
        event.record(&mut Fields(&mut line));
        let spans: Vec<Value> =
            context.event_scope().into_iter().flatten().map(|span| shown::<S, N>(&span)).collect();
        if !spans.is_empty() {
            line.insert("spans".to_owned(), spans.into());
        }
        writeln!(writer, "{}", Value::Object(line))
    }
}

/// A span with its fields, which its formatter wrote as JSON.
fn shown<S, N>(span: &SpanRef<'_, S>) -> Value
where
    S: for<'a> LookupSpan<'a>,
    N: 'static,
{
    let written = span.extensions();
    let fields = written.get::<FormattedFields<N>>().and_then(|fields| serde_json::from_str(fields).ok());
    let mut fields: Map<String, Value> = fields.unwrap_or_default();
    fields.insert("name".to_owned(), span.name().into());
    fields.into()
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
