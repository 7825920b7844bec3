//! A snapshot as the rules read it: sorted, with defaults filled in, and with each replica's sample judged by its age.
//! Everything here is derived once a cycle, and nothing here decides.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::decision::{Bounds, Lacking, Stage, Step};
use crate::limit::Stock;
use crate::reason::Reason;
use crate::resolve::{Saturation, ScaleToZero};
use crate::snapshot::{Config, Learned, Mode, Model, PendingState, Remembered, Replica, Variant};

/// An unschedulable or crash-looping replica is not merely slow: a minute tells.
const FAILING_GRACE: Duration = Duration::from_mins(1);

/// One model.
pub(crate) struct ModelView<'a> {
    pub(crate) model: &'a Model,
    pub(crate) config: &'a Config,
    /// Observations of earlier cycles.
    pub(crate) remembered: &'a [&'a Remembered],
    /// Memory of the throughput analyzer.
    pub(crate) learned: Option<&'a Learned>,
    pub(crate) settings: Saturation,
    pub(crate) to_zero: ScaleToZero,
    /// By name.
    pub(crate) variants: Vec<VariantView<'a>>,
}

/// One variant.
#[derive(Clone)]
pub(crate) struct VariantView<'a> {
    pub(crate) variant: &'a Variant,
    /// Where its accelerator stands in the ledger of GPUs. `None`: it is not limited.
    pub(crate) place: Option<usize>,
    pub(crate) current: u32,
    pub(crate) ready: u32,
    /// Replicas that load.
    pub(crate) pending: u32,
    /// Replicas that do not become ready.
    pub(crate) stuck: u32,
    pub(crate) bounds: Bounds,
    /// Those whose sample counts, by pod.
    pub(crate) counted: Vec<Sample<'a>>,
    /// Replicas whose sample is too old to count, but not missing.
    pub(crate) stale: u32,
    /// Those of `counted` that lack a signal, which is then 0.
    pub(crate) lacking: Lacking,
}

/// A replica's signals.
#[derive(Clone)]
pub(crate) struct Sample<'a> {
    pub(crate) replica: &'a Replica,
    pub(crate) kv: f64,
    pub(crate) queue: f64,
    /// It counts, but forbids scale-down.
    pub(crate) late: bool,
}

/// Why no replica of a model may be taken, as far as its samples tell.
pub(crate) enum MetricsGap {
    MissingPods { ready: u32, reporting: u32 },
    Stale { stale: u32 },
}

impl<'a> ModelView<'a> {
    pub(crate) fn new(
        model: &'a Model,
        config: &'a Config,
        stock: &Stock<'_>,
        (remembered, learned): (&'a [&'a Remembered], Option<&'a Learned>),
        settings: Saturation,
        to_zero: ScaleToZero,
    ) -> Self {
        let view = |v: &'a Variant| VariantView::new(v, config, stock.place(v), to_zero.enabled);
        let mut variants: Vec<_> = model.variants.iter().map(view).collect();
        variants.sort_by(|a, b| a.variant.name.cmp(&b.variant.name));
        Self { model, config, remembered, learned, settings, to_zero, variants }
    }

    /// The same model with some of its variants alone, by their indices.
    pub(crate) fn part(&self, of: &[usize]) -> Self {
        Self { variants: of.iter().map(|i| self.variants[*i].clone()).collect(), ..*self }
    }

    /// Groups of variants, by their indices, each of which must have a replica for the model to serve: those of each part
    /// of a request where all do a part only, else all together.
    pub(crate) fn parts(&self) -> Vec<Vec<usize>> {
        let whole = self.variants.iter().any(|v| v.variant.role.is_none());
        let mut parts: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for (i, view) in self.variants.iter().enumerate() {
            parts.entry(view.variant.role.filter(|_| !whole)).or_default().push(i);
        }
        parts.into_values().collect()
    }

    /// Every variant has 0 replicas.
    pub(crate) fn at_zero(&self) -> bool {
        self.variants.iter().all(|v| v.current == 0)
    }

    /// Old or missing samples, which forbid scale-down for the whole model.
    pub(crate) fn metrics_gap(&self) -> Option<MetricsGap> {
        let sum = |of: fn(&VariantView) -> u32| self.variants.iter().map(of).fold(0, u32::saturating_add);
        // Variant by variant: a surge pod of one must not hide a gap in another.
        if self.variants.iter().any(|v| v.reporting().saturating_add(v.stale) < v.ready) {
            let reporting = sum(|v| v.reporting().saturating_add(v.stale).min(v.ready));
            return Some(MetricsGap::MissingPods { ready: sum(|v| v.ready), reporting });
        }
        let stale = sum(|v| v.stale.saturating_add(number(v.counted.iter().filter(|s| s.late).count())));
        (stale > 0).then_some(MetricsGap::Stale { stale })
    }

    /// Indices of the variants from the cheapest to the dearest, equal ones by name.
    pub(crate) fn by_cost(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.variants.len()).collect();
        // The sort is stable and the variants are in order of name.
        order.sort_by(|a, b| self.variants[*a].cost().total_cmp(&self.variants[*b].cost()));
        order
    }
}

impl<'a> VariantView<'a> {
    fn new(variant: &'a Variant, config: &Config, place: Option<usize>, to_zero: bool) -> Self {
        let current = variant.current;
        let ready = variant.ready.unwrap_or(current).min(current);
        let unready = current - ready;
        let grace = config.pending_grace.get();
        let failed = variant.pending.iter().flatten().filter(|p| {
            p.age.get() > grace || (p.state != PendingState::Starting && p.age.get() > FAILING_GRACE)
        });
        // Surge pods of a rollout may be listed beyond those that count.
        let stuck = number(failed.count()).min(unready);
        let mut counted = Vec::with_capacity(variant.replicas.len());
        let mut stale = 0;
        let mut lacking = Lacking::default();
        for replica in &variant.replicas {
            if (replica.kv.is_none() && replica.queue.is_none())
                || replica.age > config.metrics_age.unavailable
            {
                continue;
            }
            if replica.age > config.metrics_age.stale {
                stale += 1;
                continue;
            }
            lacking.kv += u32::from(replica.kv.is_none());
            lacking.queue += u32::from(replica.queue.is_none());
            counted.push(Sample {
                replica,
                kv: replica.kv.unwrap_or_default().get(),
                queue: replica.queue.unwrap_or_default().get(),
                late: replica.age > config.metrics_age.fresh
                    || variant.current_for.is_some_and(|since| replica.age > since),
            });
        }
        counted.sort_by(|a, b| a.replica.pod.cmp(&b.replica.pod));
        let min = variant.min.unwrap_or(0);
        // Before 1.37 an HPA cannot say 0, so its 1 says nothing about 0.
        let lifted = to_zero && min == 1 && !variant.min_forbids_zero;
        Self {
            variant,
            place,
            current,
            ready,
            pending: unready - stuck,
            stuck,
            bounds: Bounds { min: if lifted { 0 } else { min }, max: variant.max },
            counted,
            stale,
            lacking,
        }
    }

    pub(crate) fn cost(&self) -> f64 {
        self.variant.cost.get()
    }

    /// Its accelerator, or `unresolved`.
    pub(crate) fn accelerator(&self) -> &'a str {
        self.variant.accelerator.as_deref().unwrap_or(wva_crds::names::UNRESOLVED_ACCELERATOR)
    }

    pub(crate) fn auto(&self) -> bool {
        self.variant.mode == Mode::Auto
    }

    /// Replicas its workload will have, as far as is known: not those that were decided where a person holds it back.
    pub(crate) fn replicas_after(&self, decided: u32) -> u32 {
        match self.variant.mode {
            Mode::Auto => decided,
            Mode::Recommend => self.current,
            Mode::Paused => self.variant.desired.unwrap_or(self.current),
            Mode::Fixed(asked) => self.bounds.clamp(asked),
        }
    }

    pub(crate) fn reporting(&self) -> u32 {
        number(self.counted.len())
    }

    /// Replicas it may still grow by.
    pub(crate) fn room(&self) -> u32 {
        self.bounds.max.map_or(u32::MAX, |max| max.saturating_sub(self.current))
    }

    /// The smallest step up the HPA acts on.
    pub(crate) fn step_up(&self) -> u32 {
        smallest_step(self.current, self.variant.hpa_tolerance.map_or(0.0, |t| t.up.get()))
    }

    /// Replicas it gets where it asks for more and `fits` are left: none where its HPA would ignore so few. Below its
    /// minimum an HPA acts on any.
    pub(crate) fn granted(&self, asked: u32, fits: u32) -> u32 {
        let ignored = fits < self.step_up() && self.current >= self.bounds.min;
        if fits < asked && ignored { 0 } else { asked.min(fits) }
    }

    /// The smallest step down the HPA acts on.
    pub(crate) fn step_down(&self) -> u32 {
        smallest_step(self.current, self.variant.hpa_tolerance.map_or(0.0, |t| t.down.get()))
    }

    /// Why it cannot grow, where the API server refuses to scale its workload.
    pub(crate) fn refusal(&self) -> Option<Reason> {
        let age_seconds = self.variant.refused_ago?.get().as_secs_f64();
        Some(Reason::NotCarriedOut { desired: self.current.saturating_add(1), age_seconds, refused: true })
    }

    /// Seconds since it was woken, where that wake-up still holds it: until a replica reports, or the hold ends. What
    /// was refused was not carried out, and is no reason to wait.
    pub(crate) fn wake_hold(&self, config: &Config) -> Option<f64> {
        let refused = self.current == 0 && self.variant.refused_ago.is_some();
        let woken = self.variant.woken_ago.filter(|_| !refused)?;
        (woken < config.decision_hold && self.counted.is_empty()).then(|| woken.get().as_secs_f64())
    }
}

/// The smallest n with `n / current > tolerance`; from 0 replicas an HPA's tolerance means nothing, so 1.
pub(crate) fn smallest_step(current: u32, tolerance: f64) -> u32 {
    if current == 0 || tolerance <= 0.0 {
        return 1;
    }
    // The allowance is on the quotient, as the HPA computes it.
    let ignored = ((tolerance + 1e-9) * f64::from(current)).floor();
    if ignored >= f64::from(u32::MAX) {
        return u32::MAX;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "whole, and within 0..u32::MAX"
    )]
    let ignored = ignored as u32;
    ignored + 1
}

/// A count that no cluster exceeds.
pub(crate) fn number(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// The steps of one variant so far.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub(crate) current: u32,
    pub(crate) steps: Vec<Step>,
}

impl Draft {
    pub(crate) fn new(current: u32) -> Self {
        // One for each stage, which is what most variants need.
        Self { current, steps: Vec::with_capacity(5) }
    }

    pub(crate) fn target(&self) -> u32 {
        self.steps.last().map_or(self.current, |s| s.after)
    }

    pub(crate) fn push(&mut self, stage: Stage, after: u32, reason: Reason) {
        let before = self.target();
        self.steps.push(Step { stage, before, after, reason });
    }

    /// Leaves the target as it is and says why.
    pub(crate) fn note(&mut self, stage: Stage, reason: Reason) {
        self.push(stage, self.target(), reason);
    }

    /// Says something before all else.
    pub(crate) fn begin(&mut self, reason: Reason) {
        let step = Step { stage: Stage::Analyze, before: self.current, after: self.current, reason };
        self.steps.insert(0, step);
    }

    /// Every stage says something.
    pub(crate) fn close(&mut self, stage: Stage) {
        if self.steps.iter().all(|s| s.stage != stage) {
            self.note(stage, Reason::NO_CHANGE);
        }
    }
}
