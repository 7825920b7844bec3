//! Text of a decision: replicas, target, and the stages with figures. It computes no figure itself.

mod signals;

use std::collections::BTreeMap;
use std::fmt;

use crate::decision::{Action, Decision, Outcome, Shadow, Stage, Step};
use crate::snapshot::{Attainment, Snapshot, Variant, percent};

pub use signals::Signals;

/// Decision as complete lines.
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
        writeln!(f, "{}/{} ({}, model {})", d.key.namespace, d.key.name, d.report.accelerator, d.model_id)?;
        writeln!(f, "  {} -> {}  {verb}  {}", d.current, d.target(), d.reason().code())?;
        write!(
            f,
            "  {} ready, {} reporting, bounds {}..",
            d.report.replicas.ready, d.report.replicas.reporting, d.report.bounds.min
        )?;
        match d.report.bounds.max {
            Some(max) => write!(f, "{max}")?,
            None => f.write_str("no limit")?,
        }
        writeln!(f, ", mode {}", d.report.mode)?;
        if d.base != d.current {
            writeln!(
                f,
                "  the decision starts from the last target, {}; {} replica(s) exist",
                d.base, d.current
            )?;
        }
        if let Some(waiting) = &d.report.replicas.waiting_for_quota {
            writeln!(f, "  {waiting}")?;
        }
        write_steps(f, &d.steps, "  ")?;
        if let Some(why) = d.report.model.not_wakeable() {
            writeln!(f, "  {why}")?;
        } else if let Some(activity) = &d.report.model.activity {
            writeln!(f, "  not at zero: {activity}")?;
        }
        if let Some(router) = d.report.model.router {
            writeln!(f, "  at the router: {router}")?;
        }
        write_attainment(f, d.report.model.attainment)?;
        let Some(shadow) = &d.shadow else { return Ok(()) };
        let Shadow { analyzer, steps } = &**shadow;
        let (word, code) = (analyzer.label(), shadow.reason().code());
        writeln!(f, "  not acting: {word}, {} -> {}  {code}", d.current, shadow.target())?;
        write_steps(f, steps, "    ")
    }
}

/// A line for each objective with a measured share.
fn write_attainment(f: &mut fmt::Formatter<'_>, attainment: Attainment) -> fmt::Result {
    for (objective, shares) in attainment.by_objective() {
        let shares = shares.by_window().map(|(window, share)| format!("{:.1} % ({window})", percent(share)));
        let shares: Vec<String> = shares.collect();
        if !shares.is_empty() {
            let place = if objective == "ttft" && attainment.is_at_router { " at the router" } else { "" };
            writeln!(f, "  {objective} objective met{place}: {}", shares.join(", "))?;
        }
    }
    Ok(())
}

fn write_steps(f: &mut fmt::Formatter<'_>, steps: &[Step], indent: &str) -> fmt::Result {
    steps.iter().filter(|step| is_shown(step)).try_for_each(|step| {
        let (stage, code) = (step.stage.as_str(), step.reason.code());
        writeln!(f, "{indent}{stage:<8} {} -> {}  {code}: {}", step.before, step.after, step.reason)
    })
}

/// The analyze stage always, others with a reason.
fn is_shown(step: &Step) -> bool {
    step.stage == Stage::Analyze || !step.reason.is_no_change()
}

/// Text of all decisions of a cycle, then its warnings.
#[cfg(test)]
pub(crate) fn render(outcome: &Outcome) -> String {
    let decisions = outcome.decisions.iter().map(|d| Trace(d).to_string());
    let warnings = outcome.warnings.iter().map(|w| format!("warning: {w}\n"));
    decisions.chain(warnings).collect::<Vec<_>>().join("\n")
}

/// Key: namespace and name.
#[must_use]
pub fn variants_by_name(snapshot: &Snapshot) -> BTreeMap<(&str, &str), &Variant> {
    let models = snapshot.models.iter();
    models.flat_map(|m| m.variants.iter().map(|v| ((m.namespace.as_str(), v.name.as_str()), v))).collect()
}

/// Text of all decisions of a cycle with the signals below each, then its warnings.
#[must_use]
pub fn render_with_signals(snapshot: &Snapshot, outcome: &Outcome) -> String {
    let variants = variants_by_name(snapshot);
    let decisions = outcome.decisions.iter().map(|d| {
        let signals = variants.get(&(d.key.namespace.as_str(), d.key.name.as_str())).map(|v| Signals(v));
        format!("{}{}", Trace(d), signals.map(|s| s.to_string()).unwrap_or_default())
    });
    let warnings = outcome.warnings.iter().map(|w| format!("warning: {w}\n"));
    decisions.chain(warnings).collect::<Vec<_>>().join("\n")
}
