//! What the leader last read of endpoint pickers, for `wva doctor`: the JSON of `/pickers` on the debug address.

use serde::{Deserialize, Serialize};

/// Content of `/pickers`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PickerReports {
    /// Endpoint pickers that the leader reads.
    pub pickers: Vec<PickerReport>,
}

/// An endpoint picker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PickerReport {
    /// Namespace of the picker.
    pub namespace: String,
    /// Service or labels of the picker, as in an [`crate::entries::EndpointPicker`].
    pub picker: String,
    /// Models for which the picker is read.
    pub models: Vec<String>,
    /// Pods of the picker, by name.
    pub pods: Vec<PickerPodReport>,
}

/// A pod of an endpoint picker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PickerPodReport {
    /// Name of the pod.
    pub pod: String,
    /// URL of the pod's metrics.
    pub url: String,
    /// Seconds since the last answer.
    pub age_seconds: u64,
    /// What the last page cost of the budget, in bytes: as it arrived, or a 32nd of its text if that is more.
    pub bytes: usize,
    /// Why its last page could not be read.
    pub error: Option<String>,
    /// Remedy of the error.
    pub advice: Option<String>,
    /// The last page is that of an endpoint picker.
    pub is_picker: bool,
    /// The picker is llm-d router from 0.9 on.
    pub router: bool,
    /// Metrics on the last page that wva reads, without their prefix.
    pub families: Vec<String>,
    /// `On`, `Off`, or `NotYetShown` by pickers from before llm-d router 0.9 without a request.
    pub flow_control: String,
    /// Model names on the last page: those for which it is read, and some others.
    pub names: Vec<String>,
}
