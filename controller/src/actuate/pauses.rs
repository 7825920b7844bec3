//! Failed steps that wait for their next attempt. Only the same step is paused: requests may wait for another step of
//! its variant.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use wva_scaling::VariantKey;

use crate::model::step::{DirectionKey, DueStep, Step};

#[derive(Debug, Default)]
pub(super) struct Pauses(BTreeMap<DirectionKey, Pause>);

#[derive(Debug)]
struct Pause {
    step: Step,
    until: Instant,
}

impl Pauses {
    pub(super) fn add(&mut self, due: DueStep, pause: Duration) {
        let now = Instant::now();
        let until = now.checked_add(pause).unwrap_or(now);
        self.0.insert(DirectionKey::new(&due.variant, due.step.grows()), Pause { step: due.step, until });
    }

    pub(super) fn is_paused(&self, due: &DueStep) -> bool {
        let paused = self.0.get(&DirectionKey::new(&due.variant, due.step.grows()));
        paused.is_some_and(|paused| paused.step.is_same_change(&due.step) && Instant::now() < paused.until)
    }

    pub(super) fn retain(&mut self, is_published: impl Fn(&VariantKey) -> bool) {
        self.0.retain(|key, _| is_published(&key.variant));
    }

    /// Waits for the end of the first pause and removes it. Never returns without pauses.
    pub(super) async fn wait_for_end(&mut self) {
        let Some(first) = self.0.values().map(|paused| paused.until).min() else {
            return std::future::pending().await;
        };
        tokio::time::sleep_until(first).await;
        self.0.retain(|_, paused| paused.until > first);
    }
}
