//! A decision in a few lines that a tired operator understands: where it stands, where it goes, and each stage that
//! had something to say, with figures. `explain`, `decide` and the debug log print it; nothing is computed anew.

mod signals;

use std::collections::BTreeMap;
use std::fmt;

use crate::decision::{Action, Decision, Outcome, Shadow, Stage, Step};
use crate::snapshot::{Snapshot, Variant};

pub use signals::Signals;

/// Displays a decision over several lines, each ended.
#[derive(Clone, Copy, Debug)]
pub struct Trace<'a>(pub &'a Decision);

impl fmt::Display for Trace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let d = self.0;
        let verb = match d.action() {
            Action::Up => "up",
            Action::Down => "down",
            Action::None => "stays",
        };
        writeln!(f, "{}/{} ({}, model {})", d.namespace, d.variant, d.accelerator, d.model_id)?;
        writeln!(f, "  {} -> {}  {verb}  {}", d.current, d.target(), d.reason().code())?;
        write!(f, "  {} ready, {} reporting, bounds {}..", d.ready, d.reporting, d.bounds.min)?;
        match d.bounds.max {
            Some(max) => write!(f, "{max}")?,
            None => f.write_str("no limit")?,
        }
        writeln!(f, ", mode {}", d.mode)?;
        lines(f, &d.steps, "  ")?;
        if let Some(obstacle) = d.wake_obstacle {
            writeln!(f, "  scale to zero is on, but {obstacle}")?;
        }
        let Some(shadow) = &d.shadow else { return Ok(()) };
        let Shadow { analyzer, steps } = &**shadow;
        let (word, code) = (analyzer.label(), shadow.reason().code());
        writeln!(f, "  not acting: {word}, {} -> {}  {code}", d.current, shadow.target())?;
        lines(f, steps, "    ")
    }
}

fn lines(f: &mut fmt::Formatter<'_>, steps: &[Step], indent: &str) -> fmt::Result {
    steps.iter().filter(|step| speaks(step)).try_for_each(|step| {
        let (stage, code) = (step.stage.as_str(), step.reason.code());
        writeln!(f, "{indent}{stage:<8} {} -> {}  {code}: {}", step.before, step.after, step.reason)
    })
}

/// What the analyzer saw is always worth a line; another stage without anything to say is not.
fn speaks(step: &Step) -> bool {
    step.stage == Stage::Analyze || !step.reason.is_no_change()
}

/// All decisions of a cycle, then its warnings.
#[must_use]
pub fn render(outcome: &Outcome) -> String {
    let decisions = outcome.decisions.iter().map(|d| Trace(d).to_string());
    let warnings = outcome.warnings.iter().map(|w| format!("warning: {w}\n"));
    decisions.chain(warnings).collect::<Vec<_>>().join("\n")
}

/// What a snapshot says of each variant, by namespace and name.
#[must_use]
pub fn variants(snapshot: &Snapshot) -> BTreeMap<(&str, &str), &Variant> {
    let models = snapshot.models.iter();
    models.flat_map(|m| m.variants.iter().map(|v| ((m.namespace.as_str(), v.name.as_str()), v))).collect()
}

/// The same as [`render`], each decision with the signals it rests on.
#[must_use]
pub fn report(snapshot: &Snapshot, outcome: &Outcome) -> String {
    let variants = variants(snapshot);
    let decisions = outcome.decisions.iter().map(|d| {
        let signals = variants.get(&(d.namespace.as_str(), d.variant.as_str())).map(|v| Signals(v));
        format!("{}{}", Trace(d), signals.map(|s| s.to_string()).unwrap_or_default())
    });
    let warnings = outcome.warnings.iter().map(|w| format!("warning: {w}\n"));
    decisions.chain(warnings).collect::<Vec<_>>().join("\n")
}
