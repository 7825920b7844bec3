//! The chain from a variant to its replicas, link by link, as a table: each row names a link and looks at what was read.
//! Pure. Where a link is broken without which the rest means nothing, the rest is not looked at.

use super::links;
use super::seen::Seen;

/// What was found at a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum State {
    /// As it should be.
    Fine,
    /// It cannot be told from here.
    Unknown,
    /// It works, and a person should know.
    Doubtful,
    /// Nothing gets past it.
    Broken,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) state: State,
    pub(super) what: String,
    /// What to do, mostly a command.
    pub(super) remedy: Option<String>,
}

impl Found {
    pub(super) fn fine(what: impl Into<String>) -> Self {
        Self { state: State::Fine, what: what.into(), remedy: None }
    }

    pub(super) fn unknown(what: impl Into<String>) -> Self {
        Self { state: State::Unknown, what: what.into(), remedy: None }
    }

    pub(super) fn doubtful(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { state: State::Doubtful, what: what.into(), remedy: Some(remedy.into()) }
    }

    pub(super) fn broken(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { state: State::Broken, what: what.into(), remedy: Some(remedy.into()) }
    }
}

/// One link.
struct Link {
    name: &'static str,
    /// Where it is broken the links after it are consequences.
    carries: bool,
    check: fn(&Seen<'_>) -> Vec<Found>,
}

static CHAIN: &[Link] = &[
    Link { name: "variant", carries: true, check: links::variant::check },
    Link { name: "workload", carries: true, check: links::workload::check },
    Link { name: "pods", carries: false, check: links::pods::check },
    Link { name: "scrape", carries: false, check: links::scrape::check },
    Link { name: "series", carries: false, check: links::series::check },
    Link { name: "decision", carries: false, check: links::decision::check },
    Link { name: "signal", carries: false, check: links::signal::check },
    Link { name: "metric", carries: false, check: links::metric::check },
    Link { name: "selector", carries: false, check: links::selector::check },
    Link { name: "bounds", carries: false, check: links::bounds::check },
];

/// What was found about one variant, in the order of the chain.
#[derive(Debug)]
pub(super) struct Followed {
    pub(super) variant: String,
    /// Each with the name of its link.
    pub(super) found: Vec<(&'static str, Found)>,
}

impl Followed {
    /// The worst that was found.
    pub(super) fn state(&self) -> State {
        self.found.iter().map(|(_, found)| found.state).max().unwrap_or(State::Fine)
    }

    /// The first link that is broken.
    pub(super) fn broken_at(&self) -> Option<&'static str> {
        self.found.iter().find(|(_, found)| found.state == State::Broken).map(|(link, _)| *link)
    }
}

/// Follows the chain of one variant.
pub(super) fn follow(seen: &Seen<'_>) -> Followed {
    let mut found = Vec::new();
    for link in CHAIN {
        let here = (link.check)(seen);
        let broken = here.iter().any(|f| f.state == State::Broken);
        found.extend(here.into_iter().map(|f| (link.name, f)));
        if broken && link.carries {
            break;
        }
    }
    Followed { variant: format!("{}/{}", seen.namespace, seen.name), found }
}
