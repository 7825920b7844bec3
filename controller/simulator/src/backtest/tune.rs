//! Settings for a model, chosen on the first part of its history and shown on the rest. Never the best in hindsight.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::compare::{Counts, WVA, count, run_one, wva_policy};
use super::history::ModelKey;
use crate::measure::Objectives;
use crate::run::Setting;
use crate::scenario::spec;
use crate::study::run_on_all_cores;

/// Share of the judged hours on which the settings are chosen.
const FIRST: f64 = 0.6;
/// Fewest judged hours of each part.
const FEWEST_HOURS: usize = 2;

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
    /// wva by default on those.
    pub default_there: Part,
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

/// Tunes wva for `goal` percent of the requests. `None`: too few hours are judged.
///
/// # Errors
/// A policy cannot be read: the objectives are out of range.
pub fn tune(
    key: &ModelKey,
    setting: &Setting,
    is_judged: &[bool],
    goal: f64,
) -> Result<Option<Tuned>, serde_json::Error> {
    let Some([first, rest]) = parts(is_judged) else { return Ok(None) };
    let entries = entries(setting.objectives);
    let policies: Vec<spec::Policy> =
        entries.iter().map(|entry| wva_policy("tuned", entry)).collect::<Result<_, _>>()?;
    let tallies = run_on_all_cores(&policies, |policy| {
        let tally = run_one(setting, policy, None, 1);
        [count(&tally, &first), count(&tally, &rest)]
    });
    let keeps = |counts: &[Counts; 2]| 100.0 * counts[0].share() >= goal;
    let cheapest = (0..entries.len())
        .filter(|i| keeps(&tallies[*i]))
        .min_by(|a, b| tallies[*a][0].replica_hours.total_cmp(&tallies[*b][0].replica_hours));
    let best = (0..entries.len()).max_by(|a, b| tallies[*a][0].share().total_cmp(&tallies[*b][0].share()));
    let Some(chosen) = cheapest.or(best) else { return Ok(None) };
    let default = run_one(setting, &wva_policy(WVA, &json!({"analyzerName": "throughput"}))?, None, 1);
    Ok(Some(Tuned {
        goal,
        is_kept: cheapest.is_some(),
        config_map: config_map(key, &entries[chosen]),
        chosen_on: Part::new(&tallies[chosen][0], &first),
        shown_on: Part::new(&tallies[chosen][1], &rest),
        default_there: Part::new(&count(&default, &rest), &rest),
    }))
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
                let mut entry = super::compare::stated(objectives);
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
