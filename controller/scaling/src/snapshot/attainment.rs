//! Share of latencies within their objectives, as histograms show it. Only the notes about `sloTarget` read it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::Fraction;

/// Measured attainment of a model's objectives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Attainment {
    /// Requests whose first token came within `ttftSlo`.
    #[serde(skip_serializing_if = "WindowShares::is_empty")]
    pub ttft: WindowShares,
    /// Times between two tokens within `itlSlo`.
    #[serde(skip_serializing_if = "WindowShares::is_empty")]
    pub itl: WindowShares,
    /// The newest first tokens were observed by the router, with the time in its queue; else by the model servers.
    #[serde(rename = "atRouter", skip_serializing_if = "std::ops::Not::not")]
    pub is_at_router: bool,
}

/// Share within an objective, 0 to 1, by window. `None`: nothing was counted in the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct WindowShares {
    /// Last five minutes.
    #[serde(rename = "5m", skip_serializing_if = "Option::is_none")]
    pub five_minutes: Option<Fraction>,
    /// Last hour.
    #[serde(rename = "1h", skip_serializing_if = "Option::is_none")]
    pub hour: Option<Fraction>,
    /// Last day.
    #[serde(rename = "1d", skip_serializing_if = "Option::is_none")]
    pub day: Option<Fraction>,
}

impl Attainment {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Shares by objective, each with its name in metrics.
    #[must_use]
    pub fn by_objective(&self) -> [(&'static str, WindowShares); 2] {
        [("ttft", self.ttft), ("itl", self.itl)]
    }
}

impl WindowShares {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Known shares, each with the length of its window.
    pub fn by_window(&self) -> impl Iterator<Item = (&'static str, Fraction)> + use<> {
        let all = [("5m", self.five_minutes), ("1h", self.hour), ("1d", self.day)];
        all.into_iter().filter_map(|(window, share)| Some((window, share?)))
    }
}

/// A share in percent, rounded down to a tenth: only a share without any late request is 100.
#[must_use]
pub fn percent(share: Fraction) -> f64 {
    // 0.29 * 1000 and others lie just below the whole number.
    (share.get() * 1000.0 + 1e-6).floor() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_never_rounds_up_to_100() {
        for (share, wanted) in [(0.0, 0.0), (0.29, 29.0), (0.993, 99.3), (0.999_96, 99.9), (1.0, 100.0)] {
            let found = percent(Fraction::try_from(share).unwrap());
            assert!((found - wanted).abs() < 1e-9, "{share}: {found}");
        }
    }

    #[test]
    fn file_has_only_known_shares() {
        let attainment = Attainment {
            ttft: WindowShares { hour: Fraction::try_from(0.5).ok(), ..WindowShares::default() },
            ..Attainment::default()
        };
        let text = serde_json::to_string(&attainment).unwrap();
        assert_eq!(text, r#"{"ttft":{"1h":0.5}}"#);
        assert_eq!(serde_json::from_str::<Attainment>(&text).unwrap(), attainment);
        assert!(Attainment::default().is_empty() && !attainment.is_empty());
    }
}
