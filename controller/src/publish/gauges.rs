//! Per-variant series, built from the publication, so removed variants leave none. Their text is written and compressed at
//! the first scrape after each publication, and kept for the next scrapes.

mod exposition;
mod fleet;
mod targets;
mod variants;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

use wva_objects::WorkloadKey;
use wva_scaling::snapshot::{Config, Replica, Variant};
use wva_scaling::{Snapshot, VariantKey};

use self::exposition::{Exposition, Series};
use crate::cycle::engine::CycleProgress;
use crate::model::published::{Published, PublishedVariant, Reader};
use crate::observe::variants::OwnershipView;
use crate::observe::watches::{self, Watches};
use crate::publish::packed_text::PackedText;

/// Per-variant series.
pub struct VariantSeries {
    published: Reader,
    /// A scrape may come before the cycle that notices a change of ownership.
    ownership_view: OwnershipView,
    /// Autoscalers, workloads and nodes.
    watches: Watches,
    optional: OptionalSeries,
    /// An outdated publication is not exported.
    progress: CycleProgress,
    kept: Mutex<Option<KeptPage>>,
}

/// Text of a publication. What others write, such as replicas of workloads, is as of its first scrape: a change causes the
/// next publication.
struct KeptPage {
    /// Weak: it does not keep the publication of an ended term.
    of: Weak<Published>,
    /// The [`fingerprint`].
    shown: u64,
    text: PackedText,
}

/// A variant of this controller.
struct OwnVariant<'a> {
    key: &'a VariantKey,
    variant: &'a Arc<PublishedVariant>,
    /// Another controller still exports it.
    is_withheld: bool,
}

/// Series that an installation can do without.
#[derive(Clone, Copy, Debug)]
pub struct OptionalSeries {
    /// The targets under the names of the first releases.
    pub legacy: bool,
    /// What kube-state-metrics knows of workloads and HPAs, too.
    pub workload: bool,
}

/// A variant whose series are exported.
struct Exported<'a> {
    key: &'a VariantKey,
    variant: &'a PublishedVariant,
    /// What the last decision used.
    input: Option<&'a Variant>,
    /// Settings of that decision.
    config: &'a Config,
    object: Option<Arc<watches::Variant>>,
}

type ExportedVariants<'a> = BTreeMap<&'a VariantKey, Exported<'a>>;

impl Exported<'_> {
    fn workload(&self) -> Option<&WorkloadKey> {
        Some(&self.object.as_ref()?.spec.as_ref().ok()?.workload)
    }

    /// `None` if no replica counts.
    fn mean_kv(&self) -> Option<f64> {
        let (mut sum, mut replicas) = (0.0, 0.0);
        for (kv, _) in counted_replicas(self.input?, self.config) {
            sum += kv;
            replicas += 1.0;
        }
        (replicas > 0.0).then(|| sum / replicas)
    }

    /// Sum over the replicas; `None` if no replica counts.
    fn queue(&self) -> Option<f64> {
        counted_replicas(self.input?, self.config).map(|(_, queue)| queue).reduce(|sum, queue| sum + queue)
    }
}

/// KV cache use and queue length of the replicas that a decision counts. A missing signal counts as 0.
fn counted_replicas<'a>(variant: &'a Variant, config: &Config) -> impl Iterator<Item = (f64, f64)> + use<'a> {
    let limit = config.metrics_age.stale.min(config.metrics_age.unavailable);
    let counts =
        move |replica: &&Replica| replica.age <= limit && (replica.kv.is_some() || replica.queue.is_some());
    let signals =
        |replica: &Replica| (replica.kv.unwrap_or_default().get(), replica.queue.unwrap_or_default().get());
    variant.replicas.iter().filter(counts).map(signals)
}

impl VariantSeries {
    /// Creates the series of the variants that this controller manages.
    #[must_use]
    pub fn new(
        published: Reader,
        ownership_view: OwnershipView,
        watches: Watches,
        optional: OptionalSeries,
        progress: CycleProgress,
    ) -> Self {
        Self { published, ownership_view, watches, optional, progress, kept: Mutex::default() }
    }

    /// Text of the series. `None` before the first cycle, after the last, or if cycles have stopped.
    ///
    /// # Errors
    /// If the text cannot be compressed.
    pub fn page(&self) -> io::Result<Option<PackedText>> {
        let published = self.published.borrow().clone();
        // No code panics while it holds the lock.
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(published) = published.filter(|_| self.progress.is_recent()) else {
            *kept = None;
            return Ok(None);
        };
        let ours = self.ours(&published);
        let shown = fingerprint(&ours);
        let is_same = |page: &&KeptPage| page.of.as_ptr() == Arc::as_ptr(&published) && page.shown == shown;
        if let Some(page) = kept.as_ref().filter(is_same) {
            return Ok(Some(page.text.clone()));
        }
        let text = PackedText::new(|to| self.write(&published, &ours, to))?;
        *kept = Some(KeptPage { of: Arc::downgrade(&published), shown, text: text.clone() });
        Ok(Some(text))
    }

    fn write(&self, published: &Published, ours: &[OwnVariant<'_>], to: &mut dyn Write) -> io::Result<()> {
        let exported = self.exported(published, ours);
        let mut to = Exposition::new(to, self.ownership_view.instance());
        self.write_targets(published, &exported, &mut to)?;
        self.write_variants(&exported, &mut to)?;
        fleet::write_attainment(&exported, &mut to)?;
        fleet::write_spare_capacity(&published.snapshot, &exported, &mut to)?;
        self.write_gpus(&mut to)?;
        fleet::write_states(ours.iter().map(|ours| &**ours.variant), &mut to)
    }

    fn ours<'a>(&self, published: &'a Published) -> Vec<OwnVariant<'a>> {
        let now = Instant::now();
        let is_ours =
            |(key, v): &(&VariantKey, &Arc<PublishedVariant>)| self.ownership_view.is_managed(key, &v.uid);
        let one = |(key, variant)| {
            let is_withheld = published.withheld.get(key).is_some_and(|until| now < *until);
            OwnVariant { key, variant, is_withheld }
        };
        published.variants.iter().filter(is_ours).map(one).collect()
    }

    /// Variants that are exported, without those withheld.
    fn exported<'a>(&self, published: &'a Published, ours: &[OwnVariant<'a>]) -> ExportedVariants<'a> {
        let inputs = inputs(&published.snapshot);
        let one = |OwnVariant { key, variant, .. }: &OwnVariant<'a>| Exported {
            key,
            variant,
            input: inputs.get(&(&*key.namespace, &*key.name)).copied(),
            config: &published.snapshot.config,
            object: self.ownership_view.variant(key),
        };
        ours.iter().filter(|ours| !ours.is_withheld).map(|ours| (ours.key, one(ours))).collect()
    }
}

/// Fingerprint of the variants of a publication that are exported.
fn fingerprint(ours: &[OwnVariant<'_>]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for OwnVariant { key, is_withheld, .. } in ours {
        (std::ptr::from_ref(*key), is_withheld).hash(&mut hasher);
    }
    hasher.finish()
}

/// A series of a variant.
fn of_variant<'s>(exported: &'s Exported<'_>, value: f64) -> Series<'s> {
    let labels = [
        ("accelerator_type", exported.variant.accelerator.as_str()),
        ("namespace", &exported.key.namespace),
        ("variant_name", &exported.key.name),
    ];
    Series::new(&labels, value)
}

/// Variants of the snapshot by namespace and name.
fn inputs(snapshot: &Snapshot) -> BTreeMap<(&str, &str), &Variant> {
    let mut inputs = BTreeMap::new();
    for model in &snapshot.models {
        inputs.extend(model.variants.iter().map(|v| ((&*model.namespace, &*v.name), v)));
    }
    inputs
}

#[cfg(test)]
mod tests;
