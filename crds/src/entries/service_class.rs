//! Service classes: latency objectives of user classes for each model. The map has two layouts: a list under the key
//! `serviceClasses`, or one key for each class. Both give the same objectives, and name them as the saturation entry does.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fields::non_null;
use super::units::{Millis, Priority, SloTarget};

/// One row of the list `serviceClasses`: one class and one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(
    title = "Service class of one model",
    description = "The objectives of one service class for one model."
)]
pub struct ServiceClassRow {
    /// Name of the class, such as `Premium`.
    #[schemars(length(min = 1))]
    #[serde(deserialize_with = "not_empty")]
    pub name: String,
    /// Model, as in `spec.modelID` of its variants.
    #[schemars(length(min = 1))]
    #[serde(deserialize_with = "not_empty")]
    pub model: String,
    /// Priority of the class, a whole number; 1 is the highest priority.
    pub priority: Priority,
    /// Namespaces that the class is bound to: it applies only there, and its priority counts against models of every namespace. Default: it applies everywhere, and its priority counts within a namespace.
    #[schemars(length(min = 1), inner(length(min = 1)))]
    #[serde(default, deserialize_with = "names", skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<Vec<String>>,
    /// Objective for the inter-token latency in milliseconds, above 0. Default: none.
    #[serde(default, deserialize_with = "non_null", skip_serializing_if = "Option::is_none")]
    pub itl_slo: Option<Millis>,
    /// Objective for the time to first token in milliseconds, above 0. Default: none.
    #[serde(default, deserialize_with = "non_null", skip_serializing_if = "Option::is_none")]
    pub ttft_slo: Option<Millis>,
    /// Share of the requests within the objectives that is to be kept, in percent, from 90 to 99.9. Default: no reserve.
    #[serde(default, deserialize_with = "non_null", skip_serializing_if = "Option::is_none")]
    pub slo_target: Option<SloTarget>,
    /// Old name of `itlSlo`.
    #[serde(rename = "slo-itl", default)]
    #[serde(deserialize_with = "non_null", skip_serializing_if = "Option::is_none")]
    pub slo_itl: Option<Millis>,
    /// Old name of `ttftSlo`.
    #[serde(rename = "slo-ttw", default)]
    #[serde(deserialize_with = "non_null", skip_serializing_if = "Option::is_none")]
    pub slo_ttw: Option<Millis>,
}

/// Value of the key `serviceClasses`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(
    title = "Service classes list",
    description = "The entry `serviceClasses` of a service-class ConfigMap: one item for each class and model."
)]
pub struct ServiceClassList(pub Vec<ServiceClassRow>);

/// Entry of one class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(
    title = "Service class entry",
    description = "One entry of a service-class ConfigMap: a class with its objectives for each model."
)]
pub struct ServiceClassEntry {
    /// Name of the class, such as `Premium`.
    #[schemars(length(min = 1))]
    #[serde(deserialize_with = "not_empty")]
    pub name: String,
    /// Priority of the class, a whole number; 1 is the highest priority.
    pub priority: Priority,
    /// Namespaces that the class is bound to: it applies only there, and its priority counts against models of every namespace. Default: it applies everywhere, and its priority counts within a namespace.
    #[schemars(length(min = 1), inner(length(min = 1)))]
    #[serde(default, deserialize_with = "names", skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<Vec<String>>,
    /// Objectives, one item for each model.
    pub data: Vec<ServiceClassModel>,
}

/// Objectives of a class for one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(title = "Objectives for one model", description = "Objectives of the class for one model.")]
pub struct ServiceClassModel {
    /// Model, as in `spec.modelID` of its variants.
    #[schemars(length(min = 1))]
    #[serde(deserialize_with = "not_empty")]
    pub model: String,
    /// Objective for the inter-token latency in milliseconds, above 0. Default: none.
    #[serde(default, deserialize_with = "non_null", skip_serializing_if = "Option::is_none")]
    pub itl_slo: Option<Millis>,
    /// Objective for the time to first token in milliseconds, above 0. Default: none.
    #[serde(default, deserialize_with = "non_null", skip_serializing_if = "Option::is_none")]
    pub ttft_slo: Option<Millis>,
    /// Share of the requests within the objectives that is to be kept, in percent, from 90 to 99.9. Default: no reserve.
    #[serde(default, deserialize_with = "non_null", skip_serializing_if = "Option::is_none")]
    pub slo_target: Option<SloTarget>,
    /// Old name of `itlSlo`.
    #[serde(rename = "slo-tpot", default)]
    #[serde(deserialize_with = "non_null", skip_serializing_if = "Option::is_none")]
    pub slo_tpot: Option<Millis>,
    /// Old name of `ttftSlo`.
    #[serde(rename = "slo-ttft", default)]
    #[serde(deserialize_with = "non_null", skip_serializing_if = "Option::is_none")]
    pub slo_ttft: Option<Millis>,
}

/// Old names of objectives in the two layouts, and their present names, which win.
pub const OLD_OBJECTIVES: [(&str, &str); 4] =
    [("slo-itl", "itlSlo"), ("slo-ttw", "ttftSlo"), ("slo-tpot", "itlSlo"), ("slo-ttft", "ttftSlo")];

/// Reads at least one name; refuses `""`.
fn names<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    let names = Vec::<String>::deserialize(deserializer)?;
    if names.is_empty() || names.iter().any(String::is_empty) {
        return Err(serde::de::Error::custom("name at least one namespace, none of them empty"));
    }
    Ok(Some(names))
}

/// Reads the name of a class or model; refuses `""`.
fn not_empty<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.is_empty() { Err(serde::de::Error::custom("the name must not be empty")) } else { Ok(text) }
}
