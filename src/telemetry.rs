//! Logs and process metrics. Log lines are JSON in a container (`ts`, `level`, `msg`, as runbooks of llm-d WVA expect)
//! and text on a terminal. They go to stderr.

use std::fmt;
use std::io::IsTerminal;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value};
use tracing::{Event, Subscriber};
use tracing_serde::fields::AsMap as _;
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

pub(crate) struct LogLevel(Handle<EnvFilter, Registry>);

impl LogLevel {
    pub(crate) fn set(&self, level: tracing::Level) {
        let filter = filter(level, &rust_log()).unwrap_or_else(|_| default_filter(level));
        if let Err(error) = self.0.reload(filter) {
            tracing::warn!(%error, "Cannot change the log level");
        }
    }
}

/// Lasts for the life of the process.
pub(crate) fn init(log: &Log) -> LogLevel {
    let (subscriber, level) = subscriber(log);
    drop(subscriber.try_init()); // A second call in one process keeps the first logger.
    let rust_log = rust_log();
    if let Err(error) = filter(log.level, &rust_log) {
        tracing::warn!(
            RUST_LOG = rust_log,
            error,
            "Invalid RUST_LOG ignored; use directives such as `wva_controller=debug` or `[review]=debug`, separated by commas"
        );
    }
    level
}

/// Lasts until the guard is dropped, for the time before all settings are known.
pub(crate) fn init_for_thread(log: &Log) -> tracing::subscriber::DefaultGuard {
    subscriber(log).0.set_default()
}

/// Other messages of libraries do not help operators. The last two log every failed request without its context.
const LIBRARIES: &str = "hyper=warn,hyper_util=warn,rustls=warn,tower=warn,kube_client=warn,\
                         kube_client::client::builder=off,kube_runtime::watcher=error";

/// Last, so that they override others that are not more specific.
fn rust_log() -> String {
    std::env::var("RUST_LOG").unwrap_or_default()
}

fn filter(level: tracing::Level, directives: &str) -> Result<EnvFilter, String> {
    EnvFilter::try_new(format!("{level},{LIBRARIES},{directives}")).map_err(|error| error.to_string())
}

fn default_filter(level: tracing::Level) -> EnvFilter {
    EnvFilter::new(format!("{level},{LIBRARIES}"))
}

fn subscriber(log: &Log) -> (tracing::Dispatch, LogLevel) {
    let json = match log.format {
        LogFormat::Json => true,
        LogFormat::Text => false,
        LogFormat::Auto => !std::io::stderr().is_terminal(),
    };
    let filter = filter(log.level, &rust_log()).unwrap_or_else(|_| default_filter(log.level));
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

/// Lines that `run` logs.
#[cfg(test)]
pub(crate) fn capture_json(run: impl FnOnce()) -> String {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    let lines = Lines::default();
    let writer = lines.clone();
    let layer = tracing_subscriber::fmt::layer().event_format(JsonLines).fmt_fields(JsonFields::new());
    let subscriber = tracing_subscriber::registry().with(layer.with_writer(move || writer.clone()));
    tracing::subscriber::with_default(subscriber, run);
    let bytes = lines.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
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
        line.insert("ts".to_owned(), Value::String(Timestamp::now().to_string()));
        if let Ok(Value::Object(fields)) = serde_json::to_value(event.field_map()) {
            for (name, value) in fields {
                line.insert(if name == "message" { "msg".to_owned() } else { name }, value);
            }
        }
        let spans: Vec<Value> =
            context.event_scope().into_iter().flatten().map(|span| span_json::<S, N>(&span)).collect();
        if !spans.is_empty() {
            line.insert("spans".to_owned(), spans.into());
        }
        writeln!(writer, "{}", Value::Object(line))
    }
}

fn span_json<S, N>(span: &SpanRef<'_, S>) -> Value
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

/// Release, commit and compiler.
pub const LONG_VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (revision ",
    env!("WVA_REVISION"),
    ", rustc ",
    env!("WVA_RUSTC"),
    ")"
);

pub(crate) fn build_info() -> Result<prometheus::IntGaugeVec, prometheus::Error> {
    let opts = prometheus::Opts::new("wva_build_info", "Version, revision and compiler of this process.");
    let info = prometheus::IntGaugeVec::new(opts, &["version", "revision", "rustc"])?;
    info.with_label_values(&[env!("CARGO_PKG_VERSION"), env!("WVA_REVISION"), env!("WVA_RUSTC")]).set(1);
    Ok(info)
}

/// Read at each scrape.
pub(crate) struct CertificateExpiry {
    certs: Vec<(&'static str, Certs)>,
    gauge: prometheus::GaugeVec,
}

impl CertificateExpiry {
    /// Each with a prefix for its names.
    pub(crate) fn new(certs: Vec<(&'static str, Certs)>) -> Result<Self, prometheus::Error> {
        let opts = prometheus::Opts::new(
            "wva_certificate_expiry_timestamp_seconds",
            "Expiry of a certificate in use (Unix time); ca is the CA of the serving certificates.",
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
