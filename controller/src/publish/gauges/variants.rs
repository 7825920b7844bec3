//! What a variant is, what its last decision used, and how far its autoscaler follows: series for charts and alerts.

use std::collections::BTreeMap;
use std::io;

use wva_crds::{ConditionReason, ConditionType};
use wva_objects::WorkloadKey;
use wva_scaling::snapshot::{Mode, Variant};
use wva_scaling::{Decision, Reason, VariantKey};

use super::exposition::{Exposition, Series};
use super::{Exported, ExportedVariants, VariantSeries, of_variant};
use crate::model::conditions::ConditionDraft;
use crate::observe::workloads;

impl VariantSeries {
    pub(super) fn write_variants(
        &self,
        exported: &ExportedVariants<'_>,
        to: &mut Exposition<'_>,
    ) -> io::Result<()> {
        let all = || exported.values();
        to.gauge("wva_variant_info", "What the variant scales, and how.", all().filter_map(info))?;
        for (name, help, value) in DECIDED {
            if name == READY_REPLICAS && !self.optional.workload {
                continue;
            }
            let series =
                all().filter_map(|e| Some(of_variant(e, value(e.variant.decision.as_ref()?, e.input?)?)));
            to.gauge(name, help, series)?;
        }
        let help =
            "Mean share of the KV cache in use, 0 to 1, of the replicas that the last decision counted.";
        let kv = all().filter_map(|e| Some(of_variant(e, e.mean_kv()?)));
        to.gauge("wva_variant_kv_cache_usage_ratio", help, kv)?;
        let help = "Requests that wait in the replicas that the last decision counted.";
        let queue = all().filter_map(|e| Some(of_variant(e, e.queue()?)));
        to.gauge("wva_variant_queue_length", help, queue)?;
        if self.optional.workload {
            self.write_following(exported, to)?;
        }
        let help = "Ready, and conditions of the variant that ask for action, with their status and reason.";
        to.gauge("wva_variant_condition", help, all().flat_map(conditions))?;
        let help = "What keeps the variant from more replicas in the last decision.";
        to.gauge("wva_variant_limited", help, all().flat_map(limits))
    }

    /// Writes both sides of a comparison, from the watch caches at one time.
    fn write_following(&self, exported: &ExportedVariants<'_>, to: &mut Exposition<'_>) -> io::Result<()> {
        let targets = exported.values().filter(|e| e.variant.decision.is_some());
        let replicas = targets.clone().filter_map(|e| {
            let replicas = workloads::current_replicas(&self.watches, e.workload()?)?;
            Some(of_variant(e, f64::from(replicas)))
        });
        let help = "spec.replicas of the variant's workload.";
        to.gauge("wva_variant_scale_target_replicas", help, replicas)?;
        // By workload and kind of the autoscaler. Of several, the greatest counts.
        let mut desired: BTreeMap<WorkloadKey, BTreeMap<&str, u32>> = BTreeMap::new();
        self.watches.autoscalers.for_each(|namespace, _, autoscaler| {
            let Some(replicas) = autoscaler.desired else { return };
            let workload = autoscaler.workload(namespace);
            let of_kind = desired.entry(workload).or_default().entry(autoscaler.user_kind()).or_default();
            *of_kind = replicas.max(*of_kind);
        });
        let autoscalers = targets.flat_map(|e| {
            let found = e.workload().and_then(|workload| desired.get(workload));
            found.into_iter().flatten().map(move |(kind, replicas)| {
                of_variant(e, f64::from(*replicas)).with(&[("autoscaler", *kind)])
            })
        });
        let help =
            "status.desiredReplicas of the HPA that scales the variant's workload, by the kind that made it.";
        to.gauge("wva_variant_autoscaler_replicas", help, autoscalers)
    }
}

fn info<'s>(exported: &'s Exported<'_>) -> Option<Series<'s>> {
    let decision = exported.variant.decision.as_ref()?;
    let target = exported.workload()?;
    // Without the group, as in kube-state-metrics.
    let kind = target.kind.split('.').next().unwrap_or_default();
    let labels = [
        ("analyzer", decision.report.analyzer.label()),
        ("mode", mode(decision.report.mode)),
        ("model_name", &*decision.model_id),
        ("scale_target_kind", kind),
        ("scale_target_name", &target.name),
    ];
    Some(of_variant(exported, 1.0).with(&labels))
}

fn conditions<'s>(exported: &'s Exported<'_>) -> impl Iterator<Item = Series<'s>> {
    let one = |(type_, draft): (ConditionType, &'s ConditionDraft)| {
        let labels = [
            ("namespace", &*exported.key.namespace),
            ("reason", draft.reason.as_str()),
            ("status", draft.status.as_str()),
            ("type", type_.as_str()),
            ("variant_name", &exported.key.name),
        ];
        Series::new(&labels, 1.0)
    };
    let is_shown = |(type_, draft): &(ConditionType, &ConditionDraft)| {
        let is_trouble = !draft.is_true() || draft.reason == ConditionReason::InvalidConfiguration;
        *type_ == ConditionType::Ready || is_trouble
    };
    exported.variant.conditions.all().filter(is_shown).map(one)
}

fn limits<'s>(exported: &'s Exported<'_>) -> Vec<Series<'s>> {
    let Some(decision) = &exported.variant.decision else { return Vec::new() };
    let has = |is_limit: fn(&Reason) -> bool| decision.steps.iter().any(|step| is_limit(&step.reason));
    let limits = [
        ("maximum", has(|reason| matches!(reason, Reason::AtMaximum { .. }))),
        ("gpus", has(|reason| matches!(reason, Reason::LimitedBy { .. }))),
        (
            "quota",
            has(|reason| matches!(reason, Reason::LimitedByQuota { .. }))
                || decision.report.replicas.waiting_for_quota.is_some(),
        ),
        ("priority", has(|reason| matches!(reason, Reason::YieldsTo { .. }))),
        ("refused", has(|reason| matches!(reason, Reason::NotCarriedOut { refused: true, .. }))),
    ];
    let one = |(by, _)| {
        let VariantKey { namespace, name } = exported.key;
        Series::new(&[("by", by), ("namespace", namespace), ("variant_name", name)], 1.0)
    };
    limits.into_iter().filter(|(_, holds)| *holds).map(one).collect()
}

/// Label of a mode, without the number of `fixed=N`, which would make a new series of each.
const fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Auto => "auto",
        Mode::Recommend => "recommend",
        Mode::Paused => "paused",
        Mode::Fixed(_) => "fixed",
    }
}

/// kube-state-metrics has it, too.
const READY_REPLICAS: &str = "wva_variant_ready_replicas";

type DecidedFigure = fn(&Decision, &Variant) -> Option<f64>;

/// Name, help and value.
const DECIDED: [(&str, &str, DecidedFigure); 5] = [
    ("wva_variant_cost", "Cost of one replica for an hour (spec.variantCost).", |_, input| {
        Some(input.cost.get())
    }),
    ("wva_variant_gpus", "GPUs of one replica.", |_, input| Some(f64::from(input.gpus_per_replica.0))),
    (READY_REPLICAS, "Ready replicas that the last cycle saw.", |decision, _| {
        Some(f64::from(decision.report.replicas.ready))
    }),
    ("wva_variant_min_replicas", "Fewest replicas that the bounds allow.", |decision, _| {
        Some(f64::from(decision.report.bounds.min))
    }),
    ("wva_variant_max_replicas", "Most replicas that the bounds allow.", |decision, _| {
        decision.report.bounds.max.map(f64::from)
    }),
];
