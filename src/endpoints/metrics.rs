//! `/metrics`, compressed for clients that accept it: Prometheus does. The text of 2,000 variants takes 16 times as much.

use std::io;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures::stream;
use prometheus::{Encoder, Registry, TextEncoder};
use wva_controller::PackedText;

/// Text of the series of variants; `None` if this replica publishes none.
pub(crate) type VariantPage = Arc<dyn Fn() -> io::Result<Option<PackedText>> + Send + Sync>;

/// Registered metrics, then the series of variants.
pub(crate) fn metrics_router(registry: Registry, variants: Option<VariantPage>) -> Router {
    let answer = move |headers: HeaderMap| {
        let page = scrape(&registry, variants.as_ref());
        std::future::ready(page.map_or_else(refuse, |parts| respond(parts, accepts_gzip(&headers))))
    };
    Router::new().route("/metrics", get(answer))
}

fn scrape(registry: &Registry, variants: Option<&VariantPage>) -> io::Result<Vec<PackedText>> {
    let registered = PackedText::new(|to| {
        let mut to = to;
        TextEncoder::new().encode(&registry.gather(), &mut to).map_err(io::Error::other)
    })?;
    let of_variants = variants.map(|page| page()).transpose()?.flatten();
    Ok([registered].into_iter().chain(of_variants).collect())
}

fn respond(parts: Vec<PackedText>, is_packed: bool) -> Response {
    let body = if is_packed {
        Body::from(PackedText::gzip(&parts))
    } else {
        // A piece at a time: the whole text takes megabytes.
        Body::from_stream(stream::iter(parts.into_iter().flat_map(PackedText::pieces)))
    };
    let mut response = ([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], body).into_response();
    let headers = response.headers_mut();
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if is_packed {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

#[expect(clippy::needless_pass_by_value, reason = "the signature of `map_or_else`")]
fn refuse(error: io::Error) -> Response {
    (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response()
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
        let of_variants: VariantPage =
            Arc::new(|| PackedText::new(|to| to.write_all(b"wva_desired_replicas 2\n")).map(Some));
        let router = metrics_router(registry, Some(of_variants));
        let text = "# HELP wva_test Test.\n# TYPE wva_test gauge\nwva_test 0\nwva_desired_replicas 2\n";
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
