//! Steps that failed a moment ago and are not tried again yet. A pause holds nothing but the very step that failed: what
//! else its variant is to be given, requests may be waiting for.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use wva_scaling::VariantKey;

use crate::model::step::{DirectionKey, DueStep, Step};

/// Of each variant the last step up and the last step down that failed.
#[derive(Debug, Default)]
pub(super) struct Pauses(BTreeMap<DirectionKey, Pause>);

#[derive(Debug)]
struct Pause {
    step: Step,
    until: Instant,
}

impl Pauses {
    /// A step has failed and is not to be tried again for so long.
    pub(super) fn add(&mut self, due: DueStep, pause: Duration) {
        let now = Instant::now();
        let until = now.checked_add(pause).unwrap_or(now);
        self.0.insert(DirectionKey::new(&due.variant, due.step.grows()), Pause { step: due.step, until });
    }

    /// Whether this step is to wait.
    pub(super) fn hold(&self, due: &DueStep) -> bool {
        let paused = self.0.get(&DirectionKey::new(&due.variant, due.step.grows()));
        paused.is_some_and(|paused| paused.step.is_like(&due.step) && Instant::now() < paused.until)
    }

    /// Forgets those of variants that are gone.
    pub(super) fn retain(&mut self, is_there: impl Fn(&VariantKey) -> bool) {
        self.0.retain(|key, _| is_there(&key.variant));
    }

    /// Waits for the end of one of them and forgets it; for ever where there is none.
    pub(super) async fn end(&mut self) {
        let Some(first) = self.0.values().map(|paused| paused.until).min() else {
            return std::future::pending().await;
        };
        tokio::time::sleep_until(first).await;
        self.0.retain(|_, paused| paused.until > first);
    }
}
