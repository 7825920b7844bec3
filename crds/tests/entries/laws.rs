//! Schema and reader agree on random entries with known keys and almost valid values, and on random durations.

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use wva_crds::GoDuration;
use wva_crds::entries::{Kind, PositiveDuration};

use super::{check, read, validator};

/// Texts that are valid for some fields only.
const TEXTS: &[&str] = &[
    "", "m", "5m", "0s", "0", "10", "1h30m", "500ms", "-5s", "+1m", "1.5h", ".5s", "5 m", "auto", "on",
    "off", "99", "saturation", "throughput", "exact", "costAware", "Saturation", "true", "0.8",
];

/// Values that are valid for some fields only.
fn near_miss() -> impl Strategy<Value = Value> {
    prop_oneof![
        3 => (-2i32..12).prop_map(|n| json!(f64::from(n) / 4.0)),
        2 => (-1i64..7).prop_map(|n| json!(n)),
        1 => proptest::sample::select(&[89.9, 90.0, 99.0, 99.9, 99.91][..]).prop_map(|n| json!(n)),
        1 => prop_oneof![Just(json!(1e300)), Just(json!(-0.0)), Just(json!(u64::MAX)), Just(json!(5e-324))],
        4 => proptest::sample::select(TEXTS).prop_map(|t| json!(t)),
        1 => any::<bool>().prop_map(|b| json!(b)),
        1 => Just(Value::Null),
        1 => Just(json!([])),
        1 => Just(json!({})),
    ]
}

/// Maps with a few of these keys.
fn map_of(keys: &'static [&'static str]) -> impl Strategy<Value = Value> {
    proptest::collection::vec((proptest::sample::select(keys), near_miss()), 0..4)
        .prop_map(|pairs| pairs.into_iter().map(|(k, v)| (k.to_owned(), v)).collect::<Map<_, _>>().into())
}

const SATURATION: &[&str] = &[
    "model_id", "namespace", "kvCacheThreshold", "queueLengthThreshold", "kvSpareTrigger",
    "queueSpareTrigger", "enableLimiter", "analyzerName", "shadowAnalyzer", "scaleUpThreshold",
    "scaleDownBoundary", "itlSlo", "ttftSlo", "sloTarget", "utilization", "hold", "drain", "warmSpare",
    "optimizer", "modelID", "kvcachethreshold",
];
const SCALE_TO_ZERO: &[&str] = &[
    "model_id", "namespace", "enable_scale_to_zero", "allow_failed_requests", "retention_period", "modelId",
    "enableScaleToZero",
];
const ROW: &[&str] = &["slo-itl", "slo-ttw", "slo-tpot", "sloTarget", "priority", "name"];
const MODEL: &[&str] = &["slo-tpot", "slo-ttft", "slo-itl", "sloTarget", "model"];

/// A valid value with some fields replaced, so that required fields are mostly present.
fn with_changes(base: Value, keys: &'static [&'static str]) -> impl Strategy<Value = Value> {
    let removed = proptest::sample::select(keys);
    (map_of(keys), proptest::option::weighted(0.2, removed)).prop_map(move |(map, removed)| {
        let mut whole = base.clone();
        let fields = whole.as_object_mut().unwrap();
        fields.extend(map.as_object().unwrap().clone());
        removed.map(|key| fields.remove(key));
        whole
    })
}

fn entry() -> impl Strategy<Value = (Kind, Value)> {
    let row = || with_changes(json!({"name": "a", "model": "m", "priority": 1}), ROW);
    let model = || with_changes(json!({"model": "m"}), MODEL);
    let class = (proptest::collection::vec(model(), 0..3), map_of(&["name", "priority", "data", "model"]));
    prop_oneof![
        4 => map_of(SATURATION).prop_map(|v| (Kind::Saturation, v)),
        2 => map_of(SCALE_TO_ZERO).prop_map(|v| (Kind::ScaleToZero, v)),
        2 => proptest::collection::vec(row(), 0..3).prop_map(|v| (Kind::ServiceClassesList, v.into())),
        2 => class.prop_map(|(data, extra)| {
            let mut whole = json!({"name": "a", "priority": 1, "data": data});
            whole.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            (Kind::ServiceClass, whole)
        }),
        1 => near_miss().prop_flat_map(|v| proptest::sample::select(Kind::ALL.as_slice()).prop_map(move |k| (k, v.clone()))),
    ]
}

/// Almost valid durations: up to five parts, with valid and invalid units.
fn duration_text() -> impl Strategy<Value = String> {
    let number = prop_oneof![
        6 => "[0-9]{1,4}",
        1 => "0{1,4}",
        2 => r"[0-9]{0,3}\.[0-9]{0,13}",
        1 => r"0?\.0{0,12}[0-9]",
        1 => Just(String::new()),
    ];
    let unit = proptest::sample::select(
        ["h", "m", "s", "ms", "us", "µs", "μs", "ns", "d", "", " s", "S", "m "].as_slice(),
    );
    let sign = proptest::sample::select(["", "", "", "", "+", "-", "++", " "].as_slice());
    (sign, proptest::collection::vec((number, unit), 0..5)).prop_map(|(sign, parts)| {
        parts.into_iter().fold(sign.to_owned(), |text, (number, unit)| text + &number + unit)
    })
}

fn retention(text: &str) -> Value {
    json!({"retention_period": text})
}

#[test]
fn schema_and_parser_agree_on_durations() {
    for text in [
        "10m", "1h30m", "500ms", "1.5h", ".5s", "5.s", "+5s", "0h1m", "1m0s", "007s", "1ns", "1µs", "1μs",
        "0.001us", "0.000000000001h", "0.0000000001m", "99999h", "1h0m0.5s", "720h",
    ] {
        assert!(text.parse::<PositiveDuration>().is_ok(), "{text}");
        check(Kind::ScaleToZero, &retention(text).to_string(), true);
    }
    for text in [
        "", "0", "0s", "-0s", "0.1ns", "0.0001us", "0.0000000000001h", "-5s", "5", "5 s", "1d", "1..5s", "s",
        ".s", "+-5s", "--5s", "10M", "9999999h", "1m\n", "１s",
    ] {
        assert!(!validator(Kind::ScaleToZero).is_valid(&retention(text)), "{text}");
    }
}

/// Digits below a nanosecond are truncated, and the rest must be above 0.
#[test]
fn schema_and_parser_agree_on_the_last_digit() {
    for (unit, digits) in [("h", 12), ("m", 10), ("s", 9), ("ms", 6), ("us", 3), ("µs", 3), ("ns", 0)] {
        let text = |zeros: usize| format!(".{}1{unit}", "0".repeat(zeros));
        for zeros in 0..digits + 2 {
            let accepted = validator(Kind::ScaleToZero).is_valid(&retention(&text(zeros)));
            assert_eq!(accepted, zeros < digits, "{}", text(zeros));
            assert_eq!(accepted, text(zeros).parse::<PositiveDuration>().is_ok(), "{}", text(zeros));
        }
    }
}

proptest! {
    #[test]
    fn schema_and_reader_agree((kind, value) in entry()) {
        let validator = validator(kind);
        let errors: Vec<_> = validator.iter_errors(&value).map(|e| e.to_string()).collect();
        let found = read(kind, &value);
        prop_assert_eq!(errors.is_empty(), found.is_ok(), "{:?} {}: {:?}, {:?}", kind, value, errors, found);
    }

    #[test]
    fn pattern_and_parser_agree(text in duration_text()) {
        let accepted = validator(Kind::ScaleToZero).is_valid(&retention(&text));
        let parsed = text.parse::<PositiveDuration>();
        // The pattern may refuse longer ones.
        if accepted || parsed.as_ref().is_ok_and(|d| d.get() < GoDuration::from_secs(99_999 * 3600)) {
            prop_assert_eq!(accepted, parsed.is_ok(), "{:?}: {:?}", text, parsed);
        }
    }

    #[test]
    fn pattern_accepts_only_valid_durations(text in r"\+?([0-9]{1,22}(\.[0-9]{0,5})?(h|m|s|ms|us|µs|ns)){1,14}") {
        if validator(Kind::ScaleToZero).is_valid(&retention(&text)) {
            prop_assert!(text.parse::<PositiveDuration>().is_ok(), "{}", text);
        }
    }

    #[test]
    fn printed_durations_match_the_pattern(seconds in 1u64..300_000_000, nanos in 0u32..1_000_000_000) {
        let text = GoDuration::from(std::time::Duration::new(seconds, nanos)).to_string();
        prop_assert!(validator(Kind::ScaleToZero).is_valid(&retention(&text)), "{}", text);
    }
}
