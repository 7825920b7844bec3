//! Tests of pages: queues, flow control, names and invalid text.

use super::*;
use crate::collect::page::{InvalidPage, Page};

fn models() -> BTreeSet<String> {
    ["m", "meta/llama", "a\"b\\c\nd", "t"].map(str::to_owned).into()
}

fn page(text: &[u8], chunk: usize) -> Result<Vec<(String, f64, f64)>, InvalidPage> {
    let query = PickerQuery { models: models(), ..PickerQuery::default() };
    let mut page = Page::new(QueueReader::new(&query));
    for chunk in text.chunks(chunk) {
        page.feed(chunk)?;
    }
    let waiting = page.finish()?.into_page().waiting.into_iter().filter(|(_, w)| w.has_requests());
    Ok(waiting.map(|(model, w)| (model, w.size, w.bytes)).collect())
}

fn read(text: &str, query: &PickerQuery) -> PickerPage {
    let mut page = Page::new(QueueReader::new(query));
    page.feed(text.as_bytes()).unwrap();
    page.finish().unwrap().into_page()
}

#[track_caller]
fn check(text: &str, want: &[(&str, f64, f64)]) {
    let want: Vec<_> = want.iter().map(|(model, size, bytes)| ((*model).to_owned(), *size, *bytes)).collect();
    // The chunk size must not matter.
    for chunk in [1, 7, 64, usize::MAX] {
        assert_eq!(page(text.as_bytes(), chunk), Ok(want.clone()), "chunks of {chunk}: {text}");
    }
}

#[test]
fn reads_queues_under_both_names_and_both_labels() {
    check(
        "# HELP inference_extension_flow_control_queue_size Requests.\n\
         # TYPE inference_extension_flow_control_queue_size gauge\n\
         inference_extension_flow_control_queue_size{fairness_id=\"x\",priority=\"0\",model_name=\"m\"} 2\n\
         inference_extension_flow_control_queue_size{fairness_id=\"y\",model_name=\"m\",} 1\n\
         inference_extension_flow_control_queue_bytes{model_name=\"m\"} 300 1700000000000\n\
         go_goroutines 12\n",
        &[("m", 3.0, 300.0)],
    );
    check(
        "llm_d_epp_flow_control_queue_size{model_name=\"alias\",target_model_name=\"t\"} 4\n\
         llm_d_epp_flow_control_queue_bytes{ target_model_name = \"t\" , model_name = \"alias\" } 1e3",
        &[("t", 4.0, 1000.0)],
    );
    // Both metric names show the same queue.
    check(
        "inference_extension_flow_control_queue_size{model_name=\"m\"} 2\r\n\
         llm_d_epp_flow_control_queue_size{model_name=\"m\",target_model_name=\"\"} 3\r\n",
        &[("m", 3.0, 0.0)],
    );
    check("llm_d_epp_flow_control_queue_size{model_name=\"a\\\"b\\\\c\\nd\"} 1", &[("a\"b\\c\nd", 1.0, 0.0)]);
}

#[test]
fn skips_other_models_and_invalid_values() {
    check("llm_d_epp_flow_control_queue_size{model_name=\"other\"} 9\n", &[]);
    check(
        "llm_d_epp_flow_control_queue_size 9\nllm_d_epp_flow_control_queue_size_total{model_name=\"m\"} 9\n",
        &[],
    );
    for value in ["NaN", "+Inf", "-Inf", "-1", "1e999"] {
        check(&format!("llm_d_epp_flow_control_queue_size{{model_name=\"m\"}} {value}\n"), &[]);
    }
    let greatest = format!("llm_d_epp_flow_control_queue_size{{model_name=\"m\"}} {}\n", f64::MAX);
    check(&greatest.repeat(2), &[("m", f64::MAX, 0.0)]);
    check("# EOF\n\n", &[]);
}

#[test]
fn missing_series_means_empty_and_invalid_value_unknown() {
    let size = |text: &str| {
        let query = PickerQuery { models: ["m".to_owned()].into(), ..PickerQuery::default() };
        read(text, &query).waiting.remove("m").map(|w| w.size)
    };
    let series = |value: &str| format!("llm_d_epp_flow_control_queue_size{{model_name=\"m\"}} {value}\n");
    assert_eq!(size("go_goroutines 12\n"), Some(0.0));
    assert_eq!(size(&series("0")), Some(0.0));
    for value in ["NaN", "+Inf", "-1"] {
        assert_eq!(size(&series(value)), None, "{value}");
        assert_eq!(size(&(series("0") + &series(value))), None, "0 and {value}");
        assert_eq!(size(&(series("2") + &series(value))), Some(2.0), "2 and {value}");
    }
}

#[test]
fn detects_flow_control_by_its_own_metrics() {
    let shows = |text: &str| read(&format!("go_goroutines 12\n{text}\n"), &PickerQuery::default());
    for family in [
        "llm_d_epp_flow_control_pool_saturation{inference_pool=\"p\",stage=\"effective\"} 1",
        "inference_extension_flow_control_pool_saturation{inference_pool=\"p\"} 0",
        "llm_d_epp_flow_control_dispatch_cycle_duration_seconds_count 7",
        "inference_extension_flow_control_request_queue_duration_seconds_count{model_name=\"x\"} 1",
        "llm_d_epp_flow_control_queue_size{model_name=\"x\"} 0",
        "inference_extension_flow_control_queue_bytes 0",
    ] {
        assert_eq!(shows(family).flow_control, FlowControlState::On, "{family}");
    }
    for family in [
        "",
        "# TYPE llm_d_epp_flow_control_queue_size gauge",
        // From the saturation detector of a picker without flow control.
        "llm_d_epp_flow_control_stale_endpoints{detector=\"utilization-detector\"} 0",
        "llm_d_epp_flow_control_queue_size{model_name=\"x\"} NaN",
        "other_flow_control_pool_saturation 1",
    ] {
        assert_ne!(shows(family).flow_control, FlowControlState::On, "{family}");
    }
}

#[test]
fn all_queues_of_a_single_model_picker_count_for_it() {
    let series = |model: &str, size: u32| {
        format!("llm_d_epp_flow_control_queue_size{{target_model_name=\"{model}\"}} {size}\n")
    };
    let page = series("m", 1) + &series("adapter", 2) + &series("other", 4);
    let models: BTreeSet<String> = ["m".to_owned()].into();
    for (sole_model, size) in [(Some("m".to_owned()), 7.0), (None, 1.0)] {
        let query = PickerQuery { models: models.clone(), sole_model, ..PickerQuery::default() };
        let waiting = read(&page, &query).waiting;
        assert_eq!(waiting.get("m").map(|waiting| waiting.size), Some(size));
    }
}

#[test]
fn model_beyond_the_name_limit_is_unnamed() {
    let unnamed = |names: &[&str], sole: Option<&str>| {
        let candidates = ["m".to_owned()].into();
        let query = PickerQuery { candidates, sole_model: sole.map(str::to_owned), ..PickerQuery::default() };
        let series = |name: &&str| format!("llm_d_epp_flow_control_queue_size{{model_name=\"{name}\"}} 0\n");
        !read(&names.iter().map(series).collect::<String>(), &query).unnamed.is_empty()
    };
    assert!(unnamed(&["n", "other"], None));
    assert!(!unnamed(&["m", "other"], None), "it is one of the first 1,000");
    assert!(!unnamed(&["n"], None), "the page does not overflow");
    assert!(!unnamed(&["n", "other"], Some("m")), "all queues are of this model");
}

#[test]
fn rejects_pages_that_are_not_metrics() {
    for text in [
        "",
        "\n\n",
        "<html><body>hello</body></html>\n",
        "{\"error\": \"no\"}\n",
        "upstream connect error or disconnect\n",
        "go_goroutines 12\n\u{0}\u{1}\u{2}\n",
        "go_goroutines\n",
        "llm_d_epp_flow_control_queue_size{model_name=\"m\"}\n",
        "llm_d_epp_flow_control_queue_size{model_name=\"m\"} many\n",
        "llm_d_epp_flow_control_queue_size{model_name=\"m} 1\n",
        "llm_d_epp_flow_control_queue_size{model_name=m} 1\n",
        "llm_d_epp_flow_control_queue_size{model_name=\"m\"x=\"y\"} 1\n",
        "llm_d_epp_flow_control_queue_size{model_name} 1\n",
    ] {
        assert!(page(text.as_bytes(), 8).is_err(), "{text:?}");
    }
    assert!(page(b"go_goroutines 12\nm\xff 1\n", 8).is_err());
    assert!(page(&vec![b'a'; (64 << 10) + 1], 4096).is_err());
    let error = page("go_goroutines 12\n<html>\n".as_bytes(), 8).unwrap_err().to_string();
    assert_eq!(error, "line 2 is not a metric: \"<html>\"");
}
