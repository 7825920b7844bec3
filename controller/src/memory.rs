//! What the engine carries from one cycle to the next about each variant: its target and how long it has stood, and
//! since when replicas have been missing. Starts from the object's status, so that a restart changes no target.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};

use wva_crds::GoDuration;
use wva_scaling::{VariantKey, VariantState};

use crate::variants::Managed;
use crate::workloads::Replicas;

/// A status older than this is no memory: then the present replicas are the base.
pub(crate) const STATUS_MEMORY: SignedDuration = SignedDuration::from_mins(15);

/// The memory of all variants. Owned by the engine.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    variants: BTreeMap<VariantKey, Remembered>,
}

/// What is remembered of one variant.
#[derive(Debug)]
pub(crate) struct Remembered {
    uid: String,
    /// The last target and when it was decided, if an analysis or the status ever gave one.
    desired: Option<(VariantState, Instant)>,
    /// The workload was seen in this life of the process, or by the one before.
    pub target_seen: bool,
    replicas: Option<Replicas>,
    ready_rose: Option<Instant>,
    /// Since when each missing replica has been missing, the longest first.
    missing_since: Vec<Instant>,
}

impl Memory {
    /// What is remembered of a variant, made from its status at first sight.
    pub(crate) fn of(&mut self, managed: &Managed, now: Instant, wall: Timestamp) -> &mut Remembered {
        let fresh = || Remembered::from_status(managed, now, wall);
        let entry = self.variants.entry(managed.key.clone()).or_insert_with(fresh);
        if entry.uid != managed.uid {
            // Deleted and created again between two cycles: another object that has the same name.
            *entry = fresh();
        }
        entry
    }

    /// Forgets variants that are gone.
    pub(crate) fn retain(&mut self, keep: impl Fn(&VariantKey) -> bool) {
        self.variants.retain(|key, _| keep(key));
    }
}

impl Remembered {
    fn from_status(managed: &Managed, now: Instant, wall: Timestamp) -> Self {
        let alloc = managed.status.desired_optimized_alloc.as_ref();
        let recent = alloc
            .filter(|a| a.last_run_time.as_ref().is_some_and(|t| wall.duration_since(t.0) < STATUS_MEMORY));
        let target = recent.and_then(|a| u32::try_from(a.num_replicas).ok());
        Self {
            uid: managed.uid.clone(),
            desired: target.map(|desired| {
                (
                    VariantState {
                        desired,
                        current: desired,
                        desired_age: GoDuration::default(),
                        capacity: None,
                    },
                    now,
                )
            }),
            target_seen: alloc.is_some() || managed.status.current_replicas.is_some(),
            replicas: None,
            ready_rose: None,
            missing_since: Vec::new(),
        }
    }

    /// Takes in the workload as it is now; `None` where it does not exist.
    pub(crate) fn observe(&mut self, replicas: Option<Replicas>, now: Instant) {
        let Some(new) = replicas else {
            self.replicas = None;
            self.missing_since.clear();
            self.desired = None;
            return;
        };
        self.target_seen = true;
        if self.replicas.is_some_and(|old| new.ready > old.ready) {
            self.ready_rose = Some(now);
        }
        let missing = usize::try_from(new.current.saturating_sub(new.ready)).unwrap_or(0);
        // The ones that became ready were the oldest to be waited for.
        let surplus = self.missing_since.len().saturating_sub(missing);
        self.missing_since.drain(..surplus);
        self.missing_since.resize(missing, now);
        self.replicas = Some(new);
    }

    /// Ages of the replicas that are not ready, the oldest first. A pod's own age counts where it is known
    /// (`pod_ages`, all pods of the workload), first sight otherwise; a replica that became ready starts all anew.
    #[must_use]
    pub(crate) fn pending_ages(&self, mut pod_ages: Vec<Duration>, now: Instant) -> Vec<Duration> {
        // Which pod is not ready cannot be told from its metadata; the youngest are the ones still to come.
        pod_ages.sort_unstable();
        let since_rise = self.ready_rose.map_or(Duration::MAX, |t| now.saturating_duration_since(t));
        let mut ages: Vec<Duration> = self
            .missing_since
            .iter()
            .rev()
            .enumerate()
            .map(|(i, since)| {
                pod_ages
                    .get(i)
                    .copied()
                    .unwrap_or_else(|| now.saturating_duration_since(*since))
                    .min(since_rise)
            })
            .collect();
        ages.sort_unstable_by(|a, b| b.cmp(a));
        ages
    }

    /// Whether an analysis, or the status, ever gave a target.
    #[must_use]
    pub(crate) fn has_target(&self) -> bool {
        self.desired.is_some()
    }

    /// The last target and its age without progress, the workload having `current` replicas now.
    #[must_use]
    pub(crate) fn desired(&self, current: u32, now: Instant) -> Option<(u32, GoDuration)> {
        let (state, at) = self.desired.as_ref()?;
        Some((state.desired, state.age_after(now.saturating_duration_since(*at), current)))
    }

    /// Takes in what the next cycle has to know. A target that only echoes the present replicas, for want of any
    /// analysis, is none: it must not outlive the replicas it echoed.
    pub(crate) fn decided(&mut self, state: VariantState, echo: bool, now: Instant) {
        if !(echo && self.desired.is_none()) {
            self.desired = Some((state, now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remembered() -> Remembered {
        Remembered {
            uid: String::new(),
            desired: None,
            target_seen: false,
            replicas: None,
            ready_rose: None,
            missing_since: Vec::new(),
        }
    }

    const fn at(current: u32, ready: u32) -> Replicas {
        Replicas { current, ready }
    }

    const MINUTE: Duration = Duration::from_mins(1);

    fn state(desired: u32, current: u32) -> VariantState {
        VariantState { desired, current, desired_age: GoDuration::default(), capacity: None }
    }

    #[test]
    fn a_decision_ages_until_the_workload_comes_nearer() {
        let mut r = remembered();
        let t0 = Instant::now();
        r.decided(state(4, 2), false, t0);
        assert_eq!(r.desired(2, t0 + MINUTE), Some((4, GoDuration::from_secs(60))));
        assert_eq!(r.desired(3, t0 + MINUTE), Some((4, GoDuration::default())));
    }

    #[test]
    fn what_only_echoes_the_present_is_no_memory() {
        let mut r = remembered();
        let now = Instant::now();
        r.decided(state(2, 2), true, now);
        assert_eq!(r.desired(2, now), None);
        r.decided(state(3, 2), false, now);
        r.decided(state(3, 2), true, now);
        assert_eq!(r.desired(3, now).map(|d| d.0), Some(3));
    }

    #[test]
    fn a_missing_replica_ages_from_first_sight_or_from_its_pod() {
        let mut r = remembered();
        let t0 = Instant::now();
        r.observe(Some(at(3, 1)), t0);
        let later = t0 + MINUTE;
        r.observe(Some(at(3, 1)), later);
        assert_eq!(r.pending_ages(vec![], later), [MINUTE, MINUTE]);
        let pods = vec![100 * MINUTE, MINUTE / 2];
        assert_eq!(r.pending_ages(pods, later), [100 * MINUTE, MINUTE / 2]);
        r.observe(Some(at(3, 2)), later + MINUTE);
        assert_eq!(r.pending_ages(vec![], later + MINUTE), [Duration::ZERO], "a replica became ready");
    }

    #[test]
    fn a_workload_that_goes_takes_its_target_along() {
        let mut r = remembered();
        let now = Instant::now();
        r.observe(Some(at(1, 1)), now);
        r.decided(state(2, 1), false, now);
        r.observe(None, now);
        assert_eq!(r.desired(2, now), None);
        assert!(r.target_seen);
    }
}
