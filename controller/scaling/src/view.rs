//! View of a snapshot for the rules: sorted, with defaults, and with samples classified by age.

mod unready;

use std::collections::BTreeMap;

use self::unready::UnreadyState;
use crate::base::{self, Base, Progress};
use crate::decision::{Bounds, SignalGaps};
use crate::limit::{BudgetIndex, Claim};
use crate::reason::{Reason, WaitingReplicas};
use crate::replica_state::ReplicaState;
use crate::resolve::{Saturation, ScaleToZero};
use crate::snapshot::{ComputeBounds, Config, Mode, Model, Replica, ThroughputMemory, Variant};

pub(crate) struct ModelView<'a> {
    pub(crate) model: &'a Model,
    pub(crate) config: &'a Config,
    pub(crate) remembered: &'a [&'a ComputeBounds],
    pub(crate) learned: Option<&'a ThroughputMemory>,
    pub(crate) settings: Saturation,
    pub(crate) to_zero: ScaleToZero,
    pub(crate) variants: Vec<VariantView<'a>>,
}

#[derive(Clone)]
pub(crate) struct VariantView<'a> {
    pub(crate) variant: &'a Variant,
    /// Empty: not limited.
    pub(crate) claims: Vec<Claim<'a>>,
    pub(crate) current: u32,
    pub(crate) ready: u32,
    pub(crate) pending: u32,
    pub(crate) stuck: u32,
    /// Replicas that a scheduling gate or a ResourceQuota holds back: neither stuck nor soon ready.
    pub(crate) waiting_for_quota: u32,
    pub(crate) bounds: Bounds,
    pub(crate) base: Base,
    /// Sorted by pod, without replicas that sleep.
    pub(crate) counted: Vec<Sample<'a>>,
    /// Replicas that report, and serve nothing because their engines sleep.
    pub(crate) asleep: u32,
    pub(crate) stale: u32,
    /// A missing signal counts as 0 for growth, and forbids scale-down.
    pub(crate) signal_gaps: SignalGaps,
}

#[derive(Clone)]
pub(crate) struct Sample<'a> {
    pub(crate) replica: &'a Replica,
    pub(crate) state: ReplicaState,
    /// 0 if the replica is idle: prefixes in its cache are not load.
    pub(crate) kv: f64,
    pub(crate) queue: f64,
    /// Waiting requests of the newest scrape; without counters, the maximum of the last minute.
    pub(crate) waiting: f64,
    /// Too old for scale-down.
    pub(crate) is_late: bool,
}

/// Whether the model may go to 0, and whether all its targets are 0.
#[derive(Clone, Copy)]
struct ZeroSteps {
    is_allowed: bool,
    is_underway: bool,
}

/// Forbids scale-down of the model.
pub(crate) enum MetricsGap {
    MissingPods {
        ready: u32,
        reporting: u32,
    },
    Stale {
        stale: u32,
    },
    /// A main signal of these replicas is missing.
    Unknown {
        replicas: u32,
    },
    /// Requests of these pods make no progress.
    Stalled {
        pods: Vec<String>,
    },
}

impl<'a> ModelView<'a> {
    pub(crate) fn new(
        model: &'a Model,
        config: &'a Config,
        budgets: &BudgetIndex<'a>,
        remembered: &'a [&'a ComputeBounds],
        learned: Option<&'a ThroughputMemory>,
        settings: Saturation,
        to_zero: ScaleToZero,
    ) -> Self {
        let claims = |v: &'a Variant| budgets.claims(&model.namespace, v);
        let last = |v: &Variant| v.desired.unwrap_or(v.current).min(v.max.unwrap_or(u32::MAX));
        let zero = ZeroSteps {
            is_allowed: to_zero.enabled,
            is_underway: model.variants.iter().all(|v| last(v) == 0),
        };
        let view = |v: &'a Variant| VariantView::new(v, config, claims(v), zero);
        let mut variants: Vec<_> = model.variants.iter().map(view).collect();
        variants.sort_by(|a, b| a.variant.name.cmp(&b.variant.name));
        Self { model, config, remembered, learned, settings, to_zero, variants }
    }

    pub(crate) fn subset(&self, indices: &[usize]) -> Self {
        Self { variants: indices.iter().map(|i| self.variants[*i].clone()).collect(), ..*self }
    }

    /// The model serves only if each group has a replica: one group per role if every variant has one, else one group.
    pub(crate) fn role_groups(&self) -> Vec<Vec<usize>> {
        let serves_whole_requests = self.variants.iter().any(|v| v.variant.role.is_none());
        let mut groups: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for (i, view) in self.variants.iter().enumerate() {
            groups.entry(view.variant.role.filter(|_| !serves_whole_requests)).or_default().push(i);
        }
        groups.into_values().collect()
    }

    pub(crate) fn is_at_zero(&self) -> bool {
        self.variants.iter().all(|v| v.current == 0)
    }

    pub(crate) fn metrics_gap(&self) -> Option<MetricsGap> {
        let sum =
            |figure: fn(&VariantView) -> u32| self.variants.iter().map(figure).fold(0, u32::saturating_add);
        // By variant: a surge pod of one must not hide a gap in another.
        if self.variants.iter().any(|v| v.reporting().saturating_add(v.stale) < v.ready) {
            let reporting = sum(|v| v.reporting().saturating_add(v.stale).min(v.ready));
            return Some(MetricsGap::MissingPods { ready: sum(|v| v.ready), reporting });
        }
        let stale =
            sum(|v| v.stale.saturating_add(saturating_u32(v.counted.iter().filter(|s| s.is_late).count())));
        if stale > 0 {
            return Some(MetricsGap::Stale { stale });
        }
        let in_state = |state| self.variants.iter().flat_map(move |v| v.in_state(state));
        let replicas = saturating_u32(in_state(ReplicaState::Unknown).count());
        if replicas > 0 {
            return Some(MetricsGap::Unknown { replicas });
        }
        let pods: Vec<String> = in_state(ReplicaState::Stalled).map(|s| s.replica.pod.clone()).collect();
        (!pods.is_empty()).then_some(MetricsGap::Stalled { pods })
    }

    /// Ascending cost, then name.
    pub(crate) fn by_cost(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.variants.len()).collect();
        // The sort is stable, and the variants are sorted by name.
        order.sort_by(|a, b| self.variants[*a].cost().total_cmp(&self.variants[*b].cost()));
        order
    }
}

impl<'a> VariantView<'a> {
    fn new(variant: &'a Variant, config: &Config, claims: Vec<Claim<'a>>, zero: ZeroSteps) -> Self {
        let current = variant.current;
        let ready = variant.ready.unwrap_or(current).min(current);
        let unready = current - ready;
        let count = |state| UnreadyState::count(variant, config, state);
        // `pending` may list surge pods of a rollout, which do not count.
        let stuck = count(UnreadyState::Stuck).min(unready);
        let waiting_for_quota = count(UnreadyState::WaitingForQuota).min(unready - stuck);
        let Reports { counted, asleep, stale, signal_gaps } = Reports::new(variant, config);
        let min = variant.min.unwrap_or(0);
        // Before Kubernetes 1.37 an HPA minimum is at least 1, so a 1 does not forbid 0.
        let is_lifted = zero.is_allowed && min == 1 && !variant.min_forbids_zero;
        let bounds = Bounds {
            min: if is_lifted { 0 } else { min },
            max: variant.max,
            idles_at_zero: zero.is_allowed && variant.idles_at_zero && !variant.min_forbids_zero,
        };
        Self {
            variant,
            claims,
            current,
            ready,
            base: Base::new(variant, bounds, config.decision_hold.get(), zero.is_underway),
            pending: unready - stuck - waiting_for_quota,
            stuck,
            waiting_for_quota,
            bounds,
            counted,
            asleep,
            stale,
            signal_gaps,
        }
    }

    pub(crate) fn in_state(&self, state: ReplicaState) -> impl Iterator<Item = &Sample<'a>> {
        self.counted.iter().filter(move |sample| sample.state == state)
    }

    /// Ready replicas that serve and stay. Those beyond the base go, and starting or sleeping ones may stay instead.
    pub(crate) fn serving(&self) -> u32 {
        let stay = self.kept().saturating_sub(self.pending).saturating_sub(self.asleep);
        self.ready.saturating_sub(self.asleep).min(stay)
    }

    /// Replicas that serve once the base is carried out. Stuck and sleeping ones do not, nor do those that the autoscaler
    /// does not create.
    pub(crate) fn planned(&self) -> u32 {
        let exist = self.ready.saturating_sub(self.asleep).saturating_add(self.pending);
        let stay = self.kept().saturating_sub(self.asleep);
        exist.min(stay).saturating_add(self.arriving())
    }

    /// Replicas of the base within the bounds.
    pub(crate) fn kept(&self) -> u32 {
        if self.base.replicas == 0 { 0 } else { self.bounds.clamp(self.base.replicas) }
    }

    /// Replicas of the base that do not exist yet.
    pub(crate) fn arriving(&self) -> u32 {
        if self.base.is_obstructed { 0 } else { self.kept().saturating_sub(self.current) }
    }

    /// Replicas are starting or asked for, so the effect of the last step does not show yet.
    pub(crate) fn has_unfinished_growth(&self) -> bool {
        self.pending > 0 || (self.base.progress == Progress::Underway && self.arriving() > 0)
    }

    /// Replicas from which a step starts.
    pub(crate) fn step_base(&self) -> u32 {
        self.step_base_of(self.base.replicas)
    }

    /// Replicas from which a step starts after an earlier one to `target`. A target that the autoscaler does not carry
    /// out adds no capacity.
    pub(crate) fn step_base_of(&self, target: u32) -> u32 {
        let is_revoked = target > self.base.replicas;
        let target = if is_revoked { target } else { self.kept() };
        if self.base.is_obstructed { target.min(self.current) } else { target }
    }

    /// Some of its replicas do not come soon, so other variants serve instead.
    pub(crate) fn is_blocked(&self) -> bool {
        self.stuck > 0 || self.waiting_for_quota > 0
    }

    /// Why the variant is blocked.
    pub(crate) fn blocked_reason(&self) -> Option<Reason> {
        if self.stuck > 0 {
            return Some(Reason::Stuck { stuck: self.stuck });
        }
        self.waiting_replicas().map(|waiting| Reason::WaitingForQuota { waiting: Box::new(waiting) })
    }

    pub(crate) fn waiting_replicas(&self) -> Option<WaitingReplicas> {
        let waiting = Some(self.waiting_for_quota).filter(|waiting| *waiting > 0)?;
        Some(WaitingReplicas { waiting, cause: self.variant.quota_wait.clone() })
    }

    pub(crate) fn cost(&self) -> f64 {
        self.variant.cost.get()
    }

    /// `None`: it needs no GPU, or the inventory lacks its accelerator.
    pub(crate) fn gpu_claim(&self) -> Option<&Claim<'a>> {
        self.claims.iter().find(|claim| claim.gpus().is_some())
    }

    pub(crate) fn accelerator(&self) -> &'a str {
        self.variant.accelerator.as_deref().unwrap_or(wva_crds::names::UNRESOLVED_ACCELERATOR)
    }

    pub(crate) fn is_auto(&self) -> bool {
        self.variant.mode == Mode::Auto
    }

    /// Replicas that the workload will have after the mode, if the pipeline decides `decided`.
    pub(crate) fn replicas_after(&self, decided: u32) -> u32 {
        match self.variant.mode {
            Mode::Auto => decided,
            Mode::Recommend => self.current,
            Mode::Paused => self.variant.desired.unwrap_or(self.current),
            Mode::Fixed(asked) => self.bounds.clamp(asked),
        }
    }

    pub(crate) fn reporting(&self) -> u32 {
        saturating_u32(self.counted.len()).saturating_add(self.asleep)
    }

    /// Replicas that the maximum allows to add to `start`.
    pub(crate) fn headroom(&self, start: u32) -> u32 {
        self.bounds.max.map_or(u32::MAX, |max| max.saturating_sub(start))
    }

    /// Replicas to add to `start`: at least `wanted`, and so many that the HPA acts.
    pub(crate) fn step_up(&self, start: u32, wanted: u32) -> u32 {
        base::step_up(self.variant, start, wanted)
    }

    /// Replicas to grant if only `fits` fit. 0 if the HPA would ignore the step; below its minimum it acts on every
    /// step.
    pub(crate) fn grantable_replicas(&self, requested: u32, fits: u32) -> u32 {
        let is_ignored = fits < self.step_up(self.step_base(), 1) && self.current >= self.bounds.min;
        if fits < requested && is_ignored { 0 } else { requested.min(fits) }
    }

    /// Smallest step that the HPA acts on.
    pub(crate) fn min_step_down(&self) -> u32 {
        base::smallest_step_down(self.variant, self.step_base())
    }

    /// The next target from `target` on that the HPA does not ignore.
    pub(crate) fn acted_target(&self, target: u32) -> u32 {
        if !base::is_ignored(self.variant, target) {
            target
        } else if target < self.current {
            self.current
        } else {
            self.current.saturating_add(self.step_up(self.current, 1))
        }
    }

    /// The API server's refusal to scale the workload.
    pub(crate) fn refusal(&self) -> Option<Reason> {
        let age_seconds = self.variant.refused_ago?.get().as_secs_f64();
        let desired = self.current.saturating_add(1);
        Some(Reason::NotCarriedOut { desired, age_seconds, refused: true, cause: None })
    }

    /// Seconds since a wake-up that holds the variant: until a replica reports, or the hold time ends. A refused
    /// wake-up does not hold.
    pub(crate) fn wake_hold_seconds(&self, config: &Config) -> Option<f64> {
        let is_refused = self.current == 0 && self.variant.refused_ago.is_some();
        let woken = self.variant.woken_ago.filter(|_| !is_refused)?;
        (woken < config.decision_hold && self.counted.is_empty()).then(|| woken.get().as_secs_f64())
    }
}

/// Replicas of a variant that report, by what their reports say.
#[derive(Default)]
struct Reports<'a> {
    counted: Vec<Sample<'a>>,
    asleep: u32,
    stale: u32,
    signal_gaps: SignalGaps,
}

impl<'a> Reports<'a> {
    fn new(variant: &'a Variant, config: &Config) -> Self {
        let mut reports = Self { counted: Vec::with_capacity(variant.replicas.len()), ..Self::default() };
        let ages = &config.metrics_age;
        for replica in &variant.replicas {
            let is_silent = replica.kv.is_none() && replica.queue.is_none() && !replica.asleep;
            if is_silent || replica.age > ages.unavailable {
                continue;
            }
            match ReplicaState::of(replica, variant) {
                _ if replica.age > ages.stale => reports.stale += 1,
                ReplicaState::Asleep => reports.asleep += 1,
                state => reports.count(replica, state, variant, config),
            }
        }
        reports.counted.sort_by(|a, b| a.replica.pod.cmp(&b.replica.pod));
        reports
    }

    fn count(&mut self, replica: &'a Replica, state: ReplicaState, variant: &Variant, config: &Config) {
        let gaps = &mut self.signal_gaps;
        if gaps.missing().next().is_none() && (replica.kv.is_none() || replica.queue.is_none()) {
            gaps.server = replica.server;
        }
        gaps.kv += u32::from(replica.kv.is_none());
        gaps.queue += u32::from(replica.queue.is_none());
        let kv = replica.kv.filter(|_| state != ReplicaState::Idle).unwrap_or_default();
        let queue = replica.queue.unwrap_or_default().get();
        self.counted.push(Sample {
            replica,
            state,
            kv: kv.get(),
            queue,
            waiting: replica.newest_scrape().map_or(queue, |scrape| scrape.waiting.get()),
            is_late: replica.age > config.metrics_age.fresh
                || variant.current_for.is_some_and(|since| replica.age > since),
        });
    }
}

pub(crate) fn saturating_u32(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
