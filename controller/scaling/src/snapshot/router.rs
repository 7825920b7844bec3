//! Load of a model at its router. Requests in flight count while most replicas report nothing. Waiting requests are in
//! [`super::QueueFigures`].

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reason::format_figure;
use crate::units::Amount;

/// Load of a model. `None`: the router does not report the figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RouterLoad {
    /// Requests in flight: sent to a replica and not yet answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<Amount>,
    /// Saturation of the InferencePool. From 1 on, the router holds requests back. A pool without pods has 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saturation: Option<Amount>,
}

impl fmt::Display for RouterLoad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figure = |value: Amount| format_figure(value.get());
        let saturation = |value: Amount| {
            let effect = if value.get() >= 1.0 { ", so it holds requests back" } else { "" };
            format!("pool saturation {}{effect}", figure(value))
        };
        let parts = [
            self.running.map(|n| format!("{} request(s) in flight", figure(n))),
            self.saturation.map(saturation),
        ];
        f.write_str(&parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_only_what_is_known() {
        let amount = |value: f64| Amount::try_from(value).ok();
        let mut load = RouterLoad { running: amount(12.0), ..RouterLoad::default() };
        assert_eq!(load.to_string(), "12 request(s) in flight");
        load = RouterLoad { saturation: amount(0.75), ..load };
        assert_eq!(load.to_string(), "12 request(s) in flight, pool saturation 0.75");
        load = RouterLoad { saturation: amount(1.0), ..RouterLoad::default() };
        assert_eq!(load.to_string(), "pool saturation 1, so it holds requests back");
        assert_eq!(serde_json::to_string(&load).unwrap(), r#"{"saturation":1.0}"#);
    }
}
