//! Settings for a model, chosen on the first part of its history and shown on the rest. Never the best in hindsight.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::compare::{self, Counts, Reconstructions, count, run_one};
use super::history::ModelKey;
use super::policies::{WVA, stated, wva_policy};
use super::refused_figure::RefusedFigure;
use crate::measure::Objectives;
use crate::scenario::spec;
use crate::study::run_on_all_cores;

/// Share of the judged hours on which the settings are chosen.
const FIRST: f64 = 0.6;
/// Fewest judged hours of each part.
const FEWEST_HOURS: usize = 2;

/// What tuning came to.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Settings.
    Proposal(Box<Tuned>),
    /// None, with the reason.
    Refusal(String),
}

/// Settings that were chosen, and what they keep.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tuned {
    /// Share of the requests to keep, percent.
    pub goal: f64,
    /// Whether they kept it on the hours that they were chosen on. Otherwise they are those that kept most.
    pub is_kept: bool,
    /// A `ConfigMap` with the entry, as YAML.
    pub config_map: String,
    /// Hours that they were chosen on.
    pub chosen_on: Part,
    /// Hours that they have not seen.
    pub shown_on: Part,
    /// wva by default on those. Absent: its figures have no verdict.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_there: Option<Part>,
}

/// Results on some hours.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Part {
    /// Judged hours.
    pub hours: usize,
    /// Share of the requests within the objectives, percent.
    pub attainment: f64,
    /// Hours of replicas.
    pub replica_hours: f64,
}

impl Part {
    fn new(counts: &Counts, is_judged: &[bool]) -> Self {
        let hours = is_judged.iter().filter(|judged| **judged).count();
        Self { hours, attainment: 100.0 * counts.share(), replica_hours: counts.replica_hours }
    }
}

/// Tunes wva for `goal` percent of the requests, on the best reconstruction. The proposal is refused if its figures on the
/// rest have no verdict. `ran`: outcome of the replicas that ran.
///
/// # Errors
/// A policy cannot be read: the objectives are out of range.
pub fn tune(
    key: &ModelKey,
    reconstructions: &Reconstructions<'_>,
    ran: &compare::Outcome,
    is_judged: &[bool],
    goal: f64,
) -> Result<Outcome, serde_json::Error> {
    let too_few = || Ok(Outcome::Refusal("fewer than four hours are judged".to_owned()));
    let (Some([first, rest]), Some(setting)) = (parts(is_judged), reconstructions.best()) else {
        return too_few();
    };
    let entries = entries(setting.objectives);
    let policies: Vec<spec::Policy> =
        entries.iter().map(|entry| wva_policy("tuned", entry)).collect::<Result<_, _>>()?;
    let counts = run_on_all_cores(&policies, |policy| count(&run_one(setting, policy, None, 1), &first));
    let cheapest = (0..entries.len())
        .filter(|i| 100.0 * counts[*i].share() >= goal)
        .min_by(|a, b| counts[*a].replica_hours.total_cmp(&counts[*b].replica_hours));
    let best = (0..entries.len()).max_by(|a, b| counts[*a].share().total_cmp(&counts[*b].share()));
    let Some(chosen) = cheapest.or(best) else { return too_few() };
    let shown = [
        wva_policy("the proposal", &entries[chosen])?,
        wva_policy(WVA, &json!({"analyzerName": "throughput"}))?,
    ];
    let shown = reconstructions.outcomes(&shown, &rest, ran);
    let [proposal, default] = &*shown else { return too_few() };
    if let Some(refused) = RefusedFigure::all(proposal).first() {
        return Ok(Outcome::Refusal(format!("no verdict on {refused}, on the hours that it has not seen")));
    }
    Ok(Outcome::Proposal(Box::new(Tuned {
        goal,
        is_kept: cheapest.is_some(),
        config_map: config_map(key, &entries[chosen]),
        chosen_on: Part::new(&counts[chosen], &first),
        shown_on: Part::new(&proposal.counts, &rest),
        default_there: default.doubts.is_sure().then(|| Part::new(&default.counts, &rest)),
    })))
}

/// The judged hours in two parts.
fn parts(is_judged: &[bool]) -> Option<[Vec<bool>; 2]> {
    let judged = is_judged.iter().filter(|judged| **judged).count();
    let all = crate::fleet::engine::to_f64(judged as u64);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "hours")]
    let first = (FIRST * all).round() as usize;
    if first < FEWEST_HOURS || judged - first < FEWEST_HOURS {
        return None;
    }
    let mut seen = 0;
    let mut both = [Vec::new(), Vec::new()];
    for judged in is_judged {
        let is_first = seen < first;
        seen += usize::from(*judged);
        both[0].push(*judged && is_first);
        both[1].push(*judged && !is_first);
    }
    Some(both)
}

/// Entries to choose from, the default with objectives first.
fn entries(objectives: Objectives) -> Vec<Value> {
    let mut all = Vec::new();
    for target in [None, Some(95.0), Some(98.0), Some(99.0), Some(99.5)] {
        for utilization in [None, Some(0.7)] {
            for hold in [None, Some("15m")] {
                let mut entry = stated(objectives);
                for (field, value) in [
                    ("sloTarget", target.map(|target| json!(target))),
                    ("utilization", utilization.map(|share| json!(share))),
                    ("hold", hold.map(|time| json!(time))),
                ] {
                    if let Some(value) = value {
                        entry[field] = value;
                    }
                }
                all.push(entry);
            }
        }
    }
    all
}

fn config_map(key: &ModelKey, entry: &Value) -> String {
    let model = Value::String(key.model.clone());
    let mut text = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: wva-saturation-scaling-config\n{}data:\n  tuned: |\n    model_id: {model}\n",
        if key.namespace.is_empty() {
            String::new()
        } else {
            format!("  namespace: {}\n", Value::String(key.namespace.clone()))
        }
    );
    for (field, value) in entry.as_object().into_iter().flatten() {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        text.extend(["    ", field, ": ", &value, "\n"]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_has_no_hour_of_the_first_part() {
        let is_judged = [true, false, true, true, true, true];
        let [first, rest] = parts(&is_judged).unwrap();
        assert_eq!(first, [true, false, true, true, false, false]);
        assert_eq!(rest, [false, false, false, false, true, true]);
        assert!(parts(&[true, true, true]).is_none());
    }
}
