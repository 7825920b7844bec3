//! The metrics page with the names and labels of `SGLang` 0.5.

/// Names of vLLM without `vllm:` and of `SGLang` without `sglang:`. Other series are left out.
const NAMES: [(&str, &str); 10] = [
    ("kv_cache_usage_perc", "token_usage"),
    ("num_requests_running", "num_running_reqs"),
    ("num_requests_waiting", "num_queue_reqs"),
    ("cache_config_info", "max_total_num_tokens"),
    ("request_success_total", "num_requests_total"),
    ("prompt_tokens_total", "prompt_tokens_total"),
    ("generation_tokens_total", "generation_tokens_total"),
    ("prefix_cache_hits_total", "cached_tokens_total"),
    ("time_to_first_token_seconds", "time_to_first_token_seconds"),
    ("inter_token_latency_seconds", "inter_token_latency_seconds"),
];

/// Renames a page of vLLM. A tensor-parallel rank labels the gauges, and a source the cached tokens.
#[must_use]
pub fn as_sglang(page: &str) -> String {
    page.lines().filter_map(line).collect()
}

fn line(line: &str) -> Option<String> {
    if let Some(comment) = line.strip_prefix("# TYPE vllm:") {
        let (name, kind) = comment.split_once(' ')?;
        return Some(format!("# TYPE sglang:{} {kind}\n", rename(name)?));
    }
    let (name, rest) = line.strip_prefix("vllm:")?.split_once('{')?;
    let (labels, value) = rest.rsplit_once("} ")?;
    let labels = labels.replace("engine=\"0\"", "engine_type=\"unified\"");
    let suffix =
        ["_bucket", "_sum", "_count"].into_iter().find(|suffix| name.ends_with(suffix)).unwrap_or_default();
    let own = rename(name.strip_suffix(suffix)?)?;
    Some(match own {
        "max_total_num_tokens" => {
            let tokens = label(&labels, "num_gpu_blocks")? * label(&labels, "block_size")?;
            format!("sglang:{own}{{engine_type=\"unified\",tp_rank=\"0\"}} {tokens}\n")
        }
        "token_usage" | "num_running_reqs" | "num_queue_reqs" => {
            format!("sglang:{own}{{{labels},tp_rank=\"0\"}} {value}\n")
        }
        "cached_tokens_total" => format!("sglang:{own}{{{labels},cache_source=\"device\"}} {value}\n"),
        _ => format!("sglang:{own}{suffix}{{{labels}}} {value}\n"),
    })
}

fn rename(name: &str) -> Option<&'static str> {
    NAMES.iter().find(|(vllm, _)| *vllm == name).map(|(_, own)| *own)
}

fn label(labels: &str, name: &str) -> Option<u64> {
    let (_, rest) = labels.split_once(&format!("{name}=\""))?;
    rest.split('"').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renames_a_page() {
        let page = "# HELP vllm:kv_cache_usage_perc Share.\n\
            # TYPE vllm:kv_cache_usage_perc gauge\n\
            vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"a} b\"} 0.5\n\
            vllm:cache_config_info{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"4096\"} 1\n\
            vllm:request_success_total{engine=\"0\",model_name=\"m\",finished_reason=\"stop\"} 7\n\
            vllm:prefix_cache_hits_total{engine=\"0\",model_name=\"m\"} 9\n\
            vllm:request_prompt_tokens_sum{engine=\"0\",model_name=\"m\"} 1\n\
            vllm:time_to_first_token_seconds_bucket{engine=\"0\",model_name=\"m\",le=\"+Inf\"} 3\n";
        let want = "# TYPE sglang:token_usage gauge\n\
            sglang:token_usage{engine_type=\"unified\",model_name=\"a} b\",tp_rank=\"0\"} 0.5\n\
            sglang:max_total_num_tokens{engine_type=\"unified\",tp_rank=\"0\"} 65536\n\
            sglang:num_requests_total{engine_type=\"unified\",model_name=\"m\",finished_reason=\"stop\"} 7\n\
            sglang:cached_tokens_total{engine_type=\"unified\",model_name=\"m\",cache_source=\"device\"} 9\n\
            sglang:time_to_first_token_seconds_bucket{engine_type=\"unified\",model_name=\"m\",le=\"+Inf\"} 3\n";
        assert_eq!(as_sglang(page), want);
    }
}
