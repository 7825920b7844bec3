//! Rollouts of a workload, as a Deployment with `maxUnavailable: 0` carries them out: it creates new pods up to its surge,
//! and removes an old one for each that is ready. Until the end the workload has more pods than `spec.replicas`.

use super::{Events, Fleet};

/// A rollout of a variant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rollout {
    /// Start, seconds.
    pub at: f64,
    /// `maxSurge` as a share of the replicas, rounded up.
    pub surge: f64,
}

/// A rollout that is not over.
#[derive(Clone, Copy, Debug)]
pub(super) struct ActiveRollout {
    /// `spec.replicas`.
    pub(super) replicas: u32,
    /// Pods up to this number are old.
    last_old: u64,
    surge: f64,
}

impl Fleet {
    /// Begins the rollouts that are due, and takes the next steps of those that are not over.
    pub fn roll_out(&mut self, now: f64, events: &mut Events) {
        for variant in 0..self.variants.len() {
            let due = |rollout: &&Rollout| rollout.at > self.rolled_out_at && rollout.at <= now;
            if let Some(Rollout { surge, .. }) = self.variants[variant].rollouts.iter().find(due).copied() {
                let (replicas, last_old) = (self.current(variant), self.serial);
                self.active_rollouts[variant] = Some(ActiveRollout { replicas, last_old, surge });
            }
            self.continue_rollout(variant, now, events);
        }
        self.rolled_out_at = now;
    }

    pub(super) fn continue_rollout(&mut self, variant: usize, now: f64, events: &mut Events) {
        let Some(rollout) = self.active_rollouts[variant] else { return };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
        let surge = (f64::from(rollout.replicas) * rollout.surge).ceil().max(1.0) as u32;
        let is_old = |serial: u64| serial <= rollout.last_old;
        let old = |fleet: &Self| {
            let mut old = fleet.replicas.iter().filter(|r| r.variant == variant && r.is_wanted());
            old.find(|r| is_old(r.serial)).map(|r| r.serial)
        };
        let new = self.created(variant) - self.count_wanted(variant, is_old);
        let most = rollout.replicas.saturating_add(surge).saturating_sub(self.created(variant));
        for _ in 0..rollout.replicas.saturating_sub(new).min(most) {
            self.create(variant, now);
        }
        while self.ready_replicas(variant) > rollout.replicas
            && let Some(serial) = old(self)
        {
            self.remove_pod(serial, now, events);
        }
        if old(self).is_none() {
            self.active_rollouts[variant] = None;
            self.scale(variant, rollout.replicas, now, events);
        } else {
            self.schedule(now);
        }
    }
}
