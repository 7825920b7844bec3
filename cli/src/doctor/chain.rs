//! Chain of checks from a variant to its replicas. Some checks end it, because later ones would only report
//! consequences.

use schemars::JsonSchema;
use serde::Serialize;

use super::checks;
use super::variant_state::VariantState;

/// Result of a check, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// Nothing to do.
    #[serde(rename = "ok")]
    Fine,
    /// The state is not readable with the given rights or options.
    Unknown,
    /// A person should look at it.
    Warning,
    /// The target does not take effect.
    Broken,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) state: State,
    pub(super) message: String,
    /// Mostly a command. Present for warnings and broken checks.
    pub(super) remedy: Option<String>,
}

impl Finding {
    pub(super) fn fine(message: impl Into<String>) -> Self {
        Self { state: State::Fine, message: message.into(), remedy: None }
    }

    pub(super) fn unknown(message: impl Into<String>) -> Self {
        Self { state: State::Unknown, message: message.into(), remedy: None }
    }

    pub(super) fn warning(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { state: State::Warning, message: message.into(), remedy: Some(remedy.into()) }
    }

    pub(super) fn broken(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { state: State::Broken, message: message.into(), remedy: Some(remedy.into()) }
    }
}

struct Check {
    name: &'static str,
    /// Later checks mean nothing if this one is broken.
    ends_chain: bool,
    run: fn(&VariantState<'_>) -> Vec<Finding>,
}

static CHAIN: &[Check] = &[
    Check { name: "variant", ends_chain: true, run: checks::variant::check },
    Check { name: "workload", ends_chain: true, run: checks::workload::check },
    Check { name: "pods", ends_chain: false, run: checks::pods::check },
    Check { name: "gpus", ends_chain: false, run: checks::gpus::check },
    Check { name: "scrape", ends_chain: false, run: checks::scrape::check },
    Check { name: "series", ends_chain: false, run: checks::series::check },
    Check { name: "picker", ends_chain: false, run: checks::picker::check },
    Check { name: "wake", ends_chain: false, run: checks::wake::check },
    Check { name: "decision", ends_chain: false, run: checks::decision::check },
    Check { name: "signal", ends_chain: false, run: checks::signal::check },
    Check { name: "autoscaler", ends_chain: false, run: checks::autoscaler::check },
    Check { name: "metric", ends_chain: false, run: checks::metric::check },
    Check { name: "selector", ends_chain: false, run: checks::selector::check },
    Check { name: "bounds", ends_chain: false, run: checks::bounds::check },
];

/// Findings about one variant, in the order of the chain.
#[derive(Debug)]
pub(super) struct VariantFindings {
    pub(super) variant: String,
    /// Each with the name of its check.
    pub(super) findings: Vec<(&'static str, Finding)>,
}

impl VariantFindings {
    pub(super) fn state(&self) -> State {
        self.findings.iter().map(|(_, finding)| finding.state).max().unwrap_or(State::Fine)
    }

    pub(super) fn broken_at(&self) -> Option<&'static str> {
        self.findings.iter().find(|(_, finding)| finding.state == State::Broken).map(|(check, _)| *check)
    }
}

pub(super) fn check_variant(variant: &VariantState<'_>) -> VariantFindings {
    let mut findings = Vec::new();
    for check in CHAIN {
        let new = (check.run)(variant);
        let is_broken = new.iter().any(|finding| finding.state == State::Broken);
        findings.extend(new.into_iter().map(|finding| (check.name, finding)));
        if is_broken && check.ends_chain {
            break;
        }
    }
    VariantFindings { variant: format!("{}/{}", variant.namespace, variant.name), findings }
}
