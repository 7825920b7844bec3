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
        assert_eq!(page.flow_control == FlowControlState::On, text != EXTENSION_1_0, "{text}");
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

/// Pages of real pickers, as recorded.
mod recorded {
    use std::io::Read as _;

    use super::*;

    macro_rules! page {
        ($name:literal) => {
            include_str!(concat!("../../../../../tests/fixtures/pickers/", $name))
        };
    }

    const MODEL: &str = "acme/llama";

    #[test]
    fn flow_control_is_on_off_or_not_yet_shown() {
        use FlowControlState::{NotYetShown, Off, On};
        for (what, text, state) in [
            ("1.5.0 with it, before a request", page!("gaie-1.5.0-flowcontrol-fresh.prom"), NotYetShown),
            ("1.5.0 without it, before a request", page!("gaie-1.5.0-idle.prom"), NotYetShown),
            ("1.5.0 without it", page!("gaie-1.5.0-no-flowcontrol-refused.prom"), Off),
            ("1.5.0, a request waits", page!("gaie-1.5.0-waiting-excerpt.prom"), On),
            ("router 0.10.0, before a request", page!("router-0.10.0-flowcontrol-idle.prom"), On),
        ] {
            assert_eq!(read(text, &[MODEL], None).flow_control, state, "{what}");
        }
    }

    #[test]
    fn waiting_and_refused_requests_count_for_the_target_model() {
        let waiting = read(page!("gaie-1.5.0-waiting-excerpt.prom"), &[MODEL], None).waiting;
        assert_eq!(waiting[MODEL], QueueTotals { size: 1.0, bytes: 66.0 });
        let refused =
            read(page!("gaie-1.5.0-no-flowcontrol-refused.prom"), &[MODEL, "my-lora"], None).refused;
        assert_eq!(refused.by_model, [(MODEL.to_owned(), 2.0), ("my-lora".to_owned(), 1.0)].into());
        assert!(refused.started.is_some());
    }

    #[test]
    fn page_of_fifty_tenants_and_adapters_is_read() {
        let packed =
            include_bytes!("../../../../../tests/fixtures/pickers/gaie-1.5.0-50tenants-50models.prom.gz");
        let mut text = String::new();
        flate2::read::GzDecoder::new(&packed[..]).read_to_string(&mut text).unwrap();
        let page = read(&text, &[MODEL], None);
        assert_eq!((text.len() > 2_000_000, page.flow_control), (true, FlowControlState::On));
        assert_eq!(page.refused.by_model, [(MODEL.to_owned(), 50.0)].into());
        assert!(!page.waiting[MODEL].has_requests());
    }
}
