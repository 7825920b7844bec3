//! Tokens for endpoint pickers.

use super::*;

#[test]
fn refuses_invalid_picker_token() {
    for token in ["", "\n", "hun\nter2", "hun ter2"] {
        let error = refusal(&[("EPP_METRIC_READER_BEARER_TOKEN", token)]);
        let named =
            error.contains("EPP_METRIC_READER_BEARER_TOKEN (environment EPP_METRIC_READER_BEARER_TOKEN)");
        assert!(named && error.contains("use one line"), "{token:?}: {error}");
        assert!(!error.contains("ter2"), "{error}");
    }
}

#[test]
fn picker_token_is_off_by_default() {
    use wva_controller::PickerToken;
    let account = ("EPP_METRIC_READER_SERVICE_ACCOUNT", "reader");
    let token = |env: &[(&str, &str)]| {
        settings(&[&[("POD_NAMESPACE", "ns")], env].concat()).controller.unwrap().zero.picker_token
    };
    assert!(token(&[]) == PickerToken::None);
    assert!(token(&[account]) == PickerToken::Account { namespace: "ns".into(), name: "reader".into() });
    let fixed = PickerToken::Fixed("hunter2".to_owned());
    assert!(token(&[account, ("EPP_METRIC_READER_BEARER_TOKEN", "hunter2\n")]) == fixed);
}
