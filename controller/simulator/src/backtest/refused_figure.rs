//! Figures of policies without a verdict, with their ranges and reasons.

use schemars::JsonSchema;
use serde::Serialize;

use super::compare::Outcome;
use super::verdict::{Doubt, Doubts};

/// Figures of a policy without a verdict.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RefusedFigure {
    /// Name of the policy.
    pub name: String,
    /// Refused figure. Absent: all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub figure: Option<Figure>,
    /// Least that the data allows: percent of the requests, or multiples of the cost of what ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<f64>,
    /// Greatest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<f64>,
    /// Why there is none.
    pub reason: String,
}

/// A figure of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Figure {
    /// The share of the requests within the objectives.
    Share,
    /// The cost.
    Cost,
}

impl RefusedFigure {
    /// Refused figures of an outcome.
    pub(super) fn all(outcome: &Outcome) -> Vec<Self> {
        let new = |figure, doubt: Doubt| {
            let range = match doubt {
                Doubt::Share { least, most } => Some((100.0 * least, 100.0 * most)),
                Doubt::Cost { least, most } => Some((least, most)),
                Doubt::Load { .. } => None,
            };
            let (from, to) = (range.map(|range| range.0), range.map(|range| range.1));
            Self { name: outcome.name.clone(), figure, from, to, reason: doubt.to_string() }
        };
        let Doubts { share, cost } = outcome.doubts;
        match (share, cost) {
            (Some(doubt @ Doubt::Load { .. }), _) => vec![new(None, doubt)],
            _ => [(Figure::Share, share), (Figure::Cost, cost)]
                .into_iter()
                .filter_map(|(figure, doubt)| Some(new(Some(figure), doubt?)))
                .collect(),
        }
    }
}

impl std::fmt::Display for RefusedFigure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let of = match self.figure {
            Some(Figure::Share) => "the share of ",
            Some(Figure::Cost) => "the cost of ",
            None => "",
        };
        write!(f, "{of}{}: {}", self.name, self.reason)
    }
}
