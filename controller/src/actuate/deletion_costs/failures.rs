//! Failures to mark pods, and which of them become events.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use wva_scaling::VariantKey;

use super::MarkError;
use crate::model::published::Published;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Report {
    /// The next mark may succeed.
    Awaited,
    Due,
    Done,
}

#[derive(Debug)]
struct Failure {
    cause: String,
    report: Report,
}

/// Failures of the last mark, by variant.
#[derive(Debug, Default)]
pub(super) struct Failures(Mutex<BTreeMap<VariantKey, Failure>>);

impl Failures {
    /// A missing permission is due at once, another failure once the next mark fails too.
    pub(super) fn record(&self, variant: &VariantKey, marked: Result<(), MarkError>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let error = match marked {
            Ok(()) | Err(MarkError::NotLeading(_)) => {
                all.remove(variant);
                return;
            }
            Err(error) => error,
        };
        let report = match all.get(variant).map(|failure| failure.report) {
            Some(Report::Done) => Report::Done,
            None if !matches!(error, MarkError::Forbidden(_)) => Report::Awaited,
            _ => Report::Due,
        };
        all.insert(variant.clone(), Failure { cause: error.to_string(), report });
    }

    /// Once for each variant until a mark of it succeeds.
    pub(super) fn take_due(&self, published: &Published) -> Vec<(VariantKey, String)> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|variant, _| published.variants.contains_key(variant));
        let due = all.iter_mut().filter(|(_, failure)| failure.report == Report::Due);
        due.map(|(variant, failure)| {
            failure.report = Report::Done;
            (variant.clone(), failure.cause.clone())
        })
        .collect()
    }
}
