//! `/metrics`, compressed for clients that accept it: Prometheus does. The text of 2,000 variants takes 16 times as much.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use axum::Router;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use flate2::Compression;
use flate2::write::GzEncoder;
use prometheus::proto::MetricFamily;
use prometheus::{Encoder, Registry, TextEncoder};

/// Bytes of text that are compressed at once.
const BUFFER: usize = 32 * 1024;

/// Calls the argument for each metric family.
pub(crate) type Series = Arc<dyn Fn(&mut dyn FnMut(MetricFamily)) + Send + Sync>;

/// Registered metrics, then the series of variants.
pub(crate) fn metrics_router(registry: Registry, series: Option<Series>) -> Router {
    let answer = move |headers: HeaderMap| std::future::ready(scrape(&registry, series.as_ref(), &headers));
    Router::new().route("/metrics", get(answer))
}

fn scrape(registry: &Registry, series: Option<&Series>, headers: &HeaderMap) -> Response {
    let is_packed = accepts_gzip(headers);
    let body = if is_packed {
        // The encoder of the text writes single words.
        let mut packed = BufWriter::with_capacity(BUFFER, GzEncoder::new(Vec::new(), Compression::fast()));
        let written = write_all(registry, series, &mut packed);
        written.and_then(|()| packed.into_inner().map_err(io::IntoInnerError::into_error)?.finish())
    } else {
        let mut text = Vec::new();
        write_all(registry, series, &mut text).map(|()| text)
    };
    let mut response = match body {
        Ok(body) => ([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], body).into_response(),
        Err(error) => return (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if is_packed {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

fn write_all(registry: &Registry, series: Option<&Series>, to: &mut dyn Write) -> io::Result<()> {
    let encoder = TextEncoder::new();
    let mut to = to;
    let mut written = encoder.encode(&registry.gather(), &mut to);
    if let Some(series) = series {
        series(&mut |family| {
            if written.is_ok() {
                written = encoder.encode(&[family], &mut to);
            }
        });
    }
    written.map_err(io::Error::other)
}

/// Whether `Accept-Encoding` names gzip without the weight 0.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, "q=1"));
        let weight = weight.trim().to_ascii_lowercase();
        let weight = weight.strip_prefix("q=").and_then(|weight| weight.parse::<f32>().ok());
        name.trim().eq_ignore_ascii_case("gzip") && weight.is_none_or(|weight| weight > 0.0)
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use axum::http::Request;
    use flate2::read::GzDecoder;
    use prometheus::IntGauge;
    use tower::ServiceExt as _;

    use super::*;

    #[tokio::test]
    async fn clients_that_accept_gzip_get_the_same_text_packed() {
        let registry = Registry::new();
        let gauge = IntGauge::new("wva_test", "Test.").unwrap();
        registry.register(Box::new(gauge.clone())).unwrap();
        let series: Series =
            Arc::new(move |take| prometheus::core::Collector::collect(&gauge).into_iter().for_each(take));
        let router = metrics_router(registry, Some(series));
        let text = "# HELP wva_test Test.\n# TYPE wva_test gauge\nwva_test 0\n".repeat(2);
        for (accepted, is_packed) in [
            (None, false),
            (Some("gzip"), true),
            (Some("br, GZIP;q=0.5"), true),
            (Some("identity"), false),
            (Some("gzip;Q=0, br"), false),
        ] {
            let mut request = Request::get("/metrics");
            if let Some(accepted) = accepted {
                request = request.header(header::ACCEPT_ENCODING, accepted);
            }
            let answer =
                router.clone().oneshot(request.body(axum::body::Body::empty()).unwrap()).await.unwrap();
            assert_eq!(answer.headers().get(header::CONTENT_ENCODING).is_some(), is_packed, "{accepted:?}");
            assert_eq!(answer.headers()[header::CONTENT_TYPE], "text/plain; version=0.0.4");
            let body = axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap();
            let mut read = String::new();
            if is_packed {
                GzDecoder::new(&body[..]).read_to_string(&mut read).unwrap();
            } else {
                read = String::from_utf8(body.to_vec()).unwrap();
            }
            assert_eq!(read, text, "{accepted:?}");
        }
    }
}
