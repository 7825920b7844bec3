//! The picture of a simulated hour: the cycles of wva on the first seed, drawn as those of a recording.

use super::recording::{History, Selection};
use crate::policy::wva::Wva;
use crate::run::run;
use crate::scenario::Scenario;

/// Draws the first policy `wva` of a scenario as one SVG, for pages of documentation. `None` without such a policy.
#[must_use]
pub fn picture(scenario: &Scenario) -> Option<String> {
    let setting = &scenario.setting;
    let settings = scenario.policies.iter().find_map(|policy| policy.wva.as_ref())?;
    let mut wva = Wva::new(settings, &setting.variants).with_recording();
    let tally = run(setting, &mut wva, 1, |_| {});
    let mut history = History::new(Selection::default());
    wva.recorded().for_each(|cycle| history.add_cycle(cycle));
    let objectives = &setting.objectives;
    let caption = format!(
        "Simulated hour: {} requests, {:.1} % with\nthe first token within {} s and {} ms between tokens",
        tally.arrived(),
        100.0 * crate::fleet::engine::to_f64(tally.good) / crate::fleet::engine::to_f64(tally.arrived()),
        objectives.ttft,
        1000.0 * objectives.itl,
    );
    Some(history.picture(&caption))
}
