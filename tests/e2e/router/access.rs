//! What wva makes of a picker that refuses it, and of certificates. Each model wakes once the cause is gone.

use std::time::Instant;

use anyhow::ensure;
use serde_json::{Value, json};
use wva_crds::names::{LOCAL_SCALE_TO_ZERO_MAP_NAME, PICKER_TOKEN_LABEL};
use wva_crds::picker_report::PickerPodReport;
use wva_testbed::fixtures::{config_map, scale_to_zero_entry};
use wva_testbed::free_port;

use super::RouterTestbed;
use super::envoy::HttpsProxy;
use super::epp::{PICKER, review_right};
use super::site::{AT_ZERO, RETENTION, Site, SiteOptions};
use crate::support::{has_condition, run_wva};

/// 401 without a token, 403 with a token of an account without the right, then the page.
pub(super) async fn a_token_needs_label_and_right(testbed: &RouterTestbed) -> anyhow::Result<String> {
    let site = Site::start(testbed, "router-token", SiteOptions { has_token: false, ..AT_ZERO }).await?;
    site.wait_for_refusal("401 Unauthorized", PICKER_TOKEN_LABEL).await?;
    wait_until_not_wakeable(&site).await?;
    let errors = logged_errors(&site)?;
    ensure!(errors.len() == 1 && errors[0].contains("401 Unauthorized"), "logged: {errors:?}");
    testbed.label(&site.namespace).await?;
    site.wait_for_refusal("403 Forbidden", "may not get the URL /metrics").await?;
    let granted = Instant::now();
    testbed.allow_metrics().await?;
    // The picker remembers a refusal for 30 s.
    site.wait_until_read().await?;
    let read = granted.elapsed().as_secs();
    site.wait_at_zero().await?;
    let woken = site.wake(&site.model.model).await?;
    Ok(format!("401 and 403, read {read} s after the right was granted; {woken}"))
}

/// A picker without the right to check tokens answers 500 to everyone, as with the default values of its chart.
pub(super) async fn a_picker_that_checks_no_token_answers_500(
    testbed: &RouterTestbed,
) -> anyhow::Result<String> {
    let options = SiteOptions { may_review: false, ..AT_ZERO };
    let site = Site::start(testbed, "router-reviews", options).await?;
    let status = "500 Internal Server Error";
    site.wait_for_refusal(status, "create tokenreviews and subjectaccessreviews").await?;
    wait_until_not_wakeable(&site).await?;
    let address = site.cluster.install.address("debug")?;
    let doctor = ["doctor", "-n", &site.namespace, "-o", "json", "--address", address];
    let doctor = run_wva(&site.cluster.testbed, &doctor, "").await?;
    ensure!(
        doctor.stdout.contains(status) && doctor.stdout.contains("subjectaccessreviews"),
        "wva doctor names no cause: {doctor:?}"
    );
    site.cluster.testbed.apply(&review_right(&site.namespace)).await?;
    site.wait_until_read().await?;
    site.wait_at_zero().await?;
    let woken = site.wake(&site.model.model).await?;
    Ok(format!("500, then {woken}"))
}

/// The entry of the model names scheme and port. A certificate of another CA is refused; one of the CA that wva trusts,
/// for the Service of the picker, is accepted.
pub(super) async fn a_picker_behind_https_is_verified(testbed: &RouterTestbed) -> anyhow::Result<String> {
    let namespace = testbed.https.name.clone();
    let site = Site::start_in(testbed, namespace, AT_ZERO).await?;
    site.wait_at_zero().await?;
    let (control_plane, port) = (&site.cluster.testbed, free_port()?);
    let host = format!("{PICKER}.{}.svc", site.namespace);
    let stranger = control_plane.serving_certificate("https-stranger", &[host.as_str()])?;
    let proxy = HttpsProxy::start(testbed, port, &stranger, &site.epp).await?;
    let entry = format!(
        "model_id: {}\nendpoint_picker: https://{PICKER}:{port}\n{}",
        site.model.model,
        scale_to_zero_entry(RETENTION)
    );
    let map = config_map(&site.namespace, LOCAL_SCALE_TO_ZERO_MAP_NAME, &json!({"model": entry}));
    control_plane.apply(&map).await?;
    let is_refused =
        |pod: &PickerPodReport| pod.error.as_deref().is_some_and(|error| error.contains("certificate"));
    site.wait_for_report("be refused for its certificate", is_refused).await?;
    wait_until_not_wakeable(&site).await?;
    drop(proxy);
    let _proxy = HttpsProxy::start(testbed, port, &testbed.https.certificate, &site.epp).await?;
    let report = site.wait_until_read().await?;
    ensure!(report.url == format!("https://127.0.0.1:{port}/metrics"), "{report:?}");
    site.wait_at_zero().await?;
    let woken = site.wake(&site.model.model).await?;
    Ok(format!("refused a certificate of another CA, then {woken}"))
}

/// Waits until the variant says that requests do not wake the model.
async fn wait_until_not_wakeable(site: &Site<'_>) -> anyhow::Result<()> {
    let is_reported = |va: &Value| has_condition(va, "OptimizationReady", ("False", "NotWakeable"));
    site.wait_for("say that requests do not wake it", is_reported).await?;
    site.wait_for_message("the controller cannot read its endpoint picker").await
}

/// Errors of the picker in wva's log.
fn logged_errors(site: &Site<'_>) -> anyhow::Result<Vec<String>> {
    let log = std::fs::read_to_string(site.cluster.install.process().log_path())?;
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let ours = |line: &Value| {
        line["msg"] == "Cannot read the metrics of an endpoint picker pod"
            && line["namespace"] == site.namespace.as_str()
    };
    Ok(lines.filter(ours).map(|line| line["error"].to_string()).collect())
}
