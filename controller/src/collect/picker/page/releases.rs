//! Refused requests on the pages of released pickers: names, labels and error codes of their source, own values.

use super::*;
use crate::collect::page::Page;

const EXTENSION_1_0: &str = include_str!("releases/gateway-api-inference-extension-v1.0.0.prom");
const EXTENSION_1_5: &str = include_str!("releases/gateway-api-inference-extension-v1.5.0.prom");
const ROUTER_0_10: &str = include_str!("releases/llm-d-router-v0.10.0.prom");

fn read(text: &str, models: &[&str], sole_model: Option<&str>) -> PickerPage {
    let query = PickerQuery {
        models: models.iter().map(|model| (*model).to_owned()).collect(),
        sole_model: sole_model.map(str::to_owned),
        ..PickerQuery::default()
    };
    let mut page = Page::new(QueueReader::new(&query));
    page.feed(text.as_bytes()).unwrap();
    page.finish().unwrap().into_page()
}

/// Refused requests of models `m`, `n` and `unused`.
fn refused(text: &str, sole_model: Option<&str>) -> Vec<(String, f64)> {
    read(text, &["m", "n", "unused"], sole_model).refused.by_model.into_iter().collect()
}

fn counts(m: f64, n: f64) -> Vec<(String, f64)> {
    [("m", m), ("n", n), ("unused", 0.0)].map(|(model, count)| (model.to_owned(), count)).into()
}

#[test]
fn every_release_counts_refused_requests() {
    for text in [EXTENSION_1_0, EXTENSION_1_5, ROUTER_0_10] {
        assert_eq!(refused(text, None), counts(3.0, 64.0), "{text}");
        let page = read(text, &["m"], None);
        assert!(page.is_picker && page.refused.started.is_some(), "{text}");
        assert_eq!(page.has_flow_control, text != EXTENSION_1_0, "{text}");
        assert!(page.waiting.values().all(|waiting| !waiting.has_requests()), "{text}");
    }
}

#[test]
fn request_without_a_model_name_does_not_count() {
    // Models of any name count for the sole one.
    for text in [EXTENSION_1_0, EXTENSION_1_5, ROUTER_0_10] {
        assert_eq!(refused(text, Some("m")), counts(67.0, 0.0), "{text}");
    }
}

#[test]
fn an_invalid_count_is_unknown() {
    for value in ["NaN", "+Inf", "-1"] {
        let text = format!(
            "{ROUTER_0_10}llm_d_epp_request_error_total{{error_code=\"Internal\",model_name=\"m\"}} {value}\n"
        );
        assert_eq!(refused(&text, None), counts(0.0, 64.0)[1..], "{value}");
    }
}

#[test]
fn a_page_of_another_program_is_no_picker() {
    let page = read("process_start_time_seconds 1\nvllm:num_requests_running 0\n", &["m"], None);
    assert!(!page.is_picker);
    for start in ["NaN", "+Inf"] {
        let page = read(&format!("process_start_time_seconds {start}\n"), &["m"], None);
        assert_eq!(
            page.refused.started, None,
            "a start that differs from itself would be a restart at each poll"
        );
    }
}
