//! Refusals of servers that speak the API of Prometheus, by what they say.

use wva_runtime::prometheus::QueryError;

use super::ChunkError;

/// Server, text of its refusal in lower case, and the limit to raise if the shortest span is still too long.
const LIMITS: [(&str, &str, &str); 12] = [
    ("Prometheus", "too many samples", "--query.max-samples"),
    ("Prometheus", "exceeded maximum resolution", "the limit of 11,000 points"),
    ("Prometheus", "query timed out", "--query.timeout"),
    ("Mimir", "err-mimir-max-chunks-per-query", "max_fetched_chunks_per_query"),
    ("Mimir", "err-mimir-max-series-per-query", "max_fetched_series_per_query"),
    ("Mimir", "err-mimir-max-query-length", "max_partial_query_length"),
    ("Mimir", "err-mimir-max-estimated", "max_estimated_memory_consumption_per_query"),
    ("Thanos", "exceeded samples limit", "--store.limits.request-samples"),
    ("Thanos", "exceeded series limit", "--store.limits.request-series"),
    ("Thanos", "exceeded bytes limit", "--store.grpc.downloaded-bytes-limit"),
    ("VictoriaMetrics", "-search.max", "the option that the message names"),
    ("Cortex", "the query hit the max number of", "the limit that the message names"),
];

/// Whether a shorter span may help.
pub(super) fn is_too_much(error: &ChunkError) -> bool {
    match error {
        ChunkError::Query(QueryError::Refused { message, .. }) => find(message).is_some(),
        ChunkError::Query(QueryError::TooLong { .. } | QueryError::TimedOut { .. }) => true,
        _ => false,
    }
}

/// What to do about a refusal. `None`: it is not one that is known.
pub(super) fn remedy(error: &QueryError) -> Option<String> {
    let QueryError::Refused { status, message, .. } = error else { return None };
    if let Some((server, option)) = find(message) {
        return Some(format!(
            "{server} refuses the query ({status}): {message}; raise {option}, or read less with -n or --model"
        ));
    }
    let text = message.to_lowercase();
    (text.contains("no org id") || text.contains("x-scope-orgid")).then(|| {
        format!("Mimir asks for a tenant ({status}): {message}; name it with --header X-Scope-OrgID=TENANT")
    })
}

fn find(message: &str) -> Option<(&'static str, &'static str)> {
    let text = message.to_lowercase();
    LIMITS.iter().find(|(_, part, _)| text.contains(part)).map(|(server, _, option)| (*server, *option))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(message: &str) -> QueryError {
        QueryError::Refused { url: "http://p".to_owned(), status: 422, message: message.to_owned() }
    }

    #[test]
    fn limits_of_each_server_are_known() {
        for (message, server) in [
            ("query processing would load too many samples into memory in query execution", "Prometheus"),
            ("the query exceeded the maximum number of series (err-mimir-max-series-per-query)", "Mimir"),
            ("rpc error: exceeded series limit: limit 1 violated (got 2)", "Thanos"),
            ("cannot select more than -search.maxSamplesPerQuery=1000 samples", "VictoriaMetrics"),
        ] {
            let error = refused(message);
            assert!(remedy(&error).unwrap().starts_with(server), "{message}");
            assert!(is_too_much(&ChunkError::Query(error)), "{message}");
        }
        assert!(remedy(&refused("no org id")).unwrap().contains("X-Scope-OrgID"));
        assert_eq!(remedy(&refused("parse error")), None);
        assert!(!is_too_much(&ChunkError::Query(refused("parse error"))));
    }
}
