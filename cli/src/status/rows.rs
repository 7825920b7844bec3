//! Table of `wva status`.

use std::fmt::Write as _;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use wva_crds::ConditionType;
use wva_crds::duration::rounded;
use wva_objects::Target;
use wva_objects::orphan::detect_orphan;
use wva_objects::servers::{PodGroup, ServingPods};
use wva_objects::status::MAX_TARGET_AGE;
use wva_scaling::Snapshot;
use wva_scaling::resolve::Saturation;
use wva_scaling::snapshot::{Attainment, Inventory, Model, Variant, WindowShares, percent};

use crate::cluster::{self, ObjectId, elapsed_since, id, is_excluded, number, target_age, text};
use crate::leader::LeaderSnapshot;
use crate::output::{count, table};
use crate::workloads::{WorkloadLookup, Workloads, ready_replicas, spec_replicas};

const HEADING: [&str; 9] =
    ["NAMESPACE", "NAME", "DESIRED", "CURRENT", "READY", "SATURATION", "TTFT", "ITL", "CONDITION"];
const WIDE: [&str; 17] = [
    "NAMESPACE", "NAME", "DESIRED", "CURRENT", "READY", "SATURATION", "TTFT", "ITL", "CONDITION", "MODEL",
    "ACCELERATOR", "GPUS", "PODS", "COST", "MIN", "MAX", "AGE",
];

pub(super) struct ClusterState<'a> {
    /// Sorted by namespace and name.
    pub(super) variants: Vec<Value>,
    pub(super) workloads: Workloads,
    pub(super) namespaces: Vec<Value>,
    pub(super) leader_snapshots: &'a [LeaderSnapshot],
    pub(super) now: Timestamp,
}

/// State of a variant. Unknown values are `null`, unknown texts empty.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    /// Namespace of the VariantAutoscaling.
    namespace: String,
    /// Name of the VariantAutoscaling.
    name: String,
    /// Decided replicas.
    desired: Option<u64>,
    /// `spec.replicas` of the workload.
    current: Option<u64>,
    /// Ready replicas of the workload.
    ready: Option<u64>,
    /// Mean load in percent of the thresholds.
    saturation_percent: Option<f64>,
    /// Percent of the first tokens of the last hour within the objective.
    ttft_percent: Option<f64>,
    /// Percent of the times between tokens of the last hour within the objective.
    itl_percent: Option<f64>,
    /// Reasons of its conditions, for people.
    condition: String,
    /// Model that the variant serves.
    #[serde(rename = "modelID")]
    model_id: String,
    /// Accelerator of its replicas.
    accelerator: String,
    /// GPUs of one replica, if the leader answers.
    gpus_per_replica: Option<u32>,
    /// Pods of a replica, if it has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<PodGroup>,
    /// `spec.variantCost`.
    cost: String,
    /// `spec.minReplicas`.
    min_replicas: Option<u64>,
    /// `spec.maxReplicas`.
    max_replicas: Option<u64>,
    /// Time of its creation, RFC 3339.
    created: String,
    /// Seconds since the creation.
    #[serde(skip)]
    age: Option<SignedDuration>,
    /// Why no controller manages it.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_managed: Option<String>,
}

/// GPUs of one accelerator in the cluster.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct GpuRow {
    /// Accelerator.
    accelerator: String,
    /// All its GPUs.
    capacity: u64,
    /// GPUs that pods request.
    used: u64,
    /// The others.
    free: u64,
}

/// Inventory of the first leader that has a limit.
pub(super) fn gpu_rows(leader_snapshots: &[LeaderSnapshot]) -> Vec<GpuRow> {
    let inventory = leader_snapshots.iter().find_map(|leader| leader.answer.config.inventory.as_ref());
    let row = |(accelerator, gpus): (&String, &Inventory)| GpuRow {
        accelerator: accelerator.clone(),
        capacity: gpus.limit,
        used: gpus.used,
        free: gpus.limit.saturating_sub(gpus.used),
    };
    inventory.into_iter().flatten().map(row).collect()
}

/// Table of GPUs by accelerator.
pub(super) fn render_gpus(rows: &[GpuRow]) -> String {
    let cells = |row: &GpuRow| {
        [row.accelerator.clone(), row.capacity.to_string(), row.used.to_string(), row.free.to_string()]
    };
    table(["ACCELERATOR", "CAPACITY", "USED", "FREE"], &rows.iter().map(cells).collect::<Vec<_>>())
}

/// Table, then with `wide` the GPUs of the cluster, and then the variants without a controller.
pub(super) fn render(rows: &[Row], gpus: &[GpuRow], wide: bool) -> String {
    let mut out = render_table(rows, wide, Row::saturation_text);
    if wide && !gpus.is_empty() {
        let _ = write!(out, "\n{}", render_gpus(gpus));
    }
    let orphans: Vec<String> = rows.iter().filter_map(Row::orphan_line).collect();
    if !orphans.is_empty() {
        let _ =
            write!(out, "\n{} without a controller:\n{}", count(orphans.len(), "variant"), orphans.concat());
    }
    out
}

/// The table alone. `saturation` writes the cell of the load.
pub(super) fn render_table(rows: &[Row], wide: bool, saturation: impl Fn(&Row) -> String) -> String {
    if wide {
        table(WIDE, &rows.iter().map(|row| row.wide_cells(saturation(row))).collect::<Vec<_>>())
    } else {
        table(HEADING, &rows.iter().map(|row| row.cells(saturation(row))).collect::<Vec<_>>())
    }
}

impl ClusterState<'_> {
    pub(super) fn rows(&self) -> Vec<Row> {
        self.variants.iter().map(|variant| row(self, variant)).collect()
    }
}

fn row(state: &ClusterState<'_>, variant: &Value) -> Row {
    let ObjectId { namespace, name } = id(variant);
    let workload = Target::from_object(variant).map(|target| state.workloads.find(&namespace, &target));
    let (current, ready) = match workload {
        Some(WorkloadLookup::Found(workload)) => {
            (Some(spec_replicas(workload)), Some(ready_replicas(workload)))
        }
        Some(WorkloadLookup::NotFound) => (None, None),
        _ => (number(variant, "/status/currentReplicas"), None),
    };
    let mut snapshots = state.leader_snapshots.iter();
    let found = snapshots.find_map(|leader| {
        let (model, variant) = find(&leader.answer, &namespace, &name)?;
        let saturation = share_of_threshold(variant, &model.settings.saturation());
        Some((saturation, model.attainment, Some(variant.gpus_per_replica.0), variant.group))
    });
    let (saturation, Attainment { ttft, itl, .. }, gpus_per_replica, group) = found.unwrap_or_default();
    let in_time = |shares: WindowShares| shares.hour.map(|share| round(percent(share)));
    let owned = |pointer| text(variant, pointer).to_owned();
    Row {
        desired: number(variant, "/status/desiredOptimizedAlloc/numReplicas"),
        current,
        ready,
        saturation_percent: saturation.map(|share| round(share * 100.0)),
        ttft_percent: in_time(ttft),
        itl_percent: in_time(itl),
        condition: condition(state, variant),
        model_id: owned("/spec/modelID"),
        accelerator: owned("/status/desiredOptimizedAlloc/accelerator"),
        gpus_per_replica,
        group,
        cost: owned("/spec/variantCost"),
        min_replicas: number(variant, "/spec/minReplicas"),
        max_replicas: number(variant, "/spec/maxReplicas"),
        age: elapsed_since(text(variant, "/metadata/creationTimestamp"), state.now),
        created: owned("/metadata/creationTimestamp"),
        not_managed: orphan_evidence(state, variant),
        namespace,
        name,
    }
}

/// Rounds to at most three decimals.
fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

impl Row {
    pub(super) fn is_same_variant(&self, other: &Self) -> bool {
        (&self.namespace, &self.name) == (&other.namespace, &other.name)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Row of a variant that is gone.
    pub(super) fn deleted(&self) -> Self {
        let Self { namespace, name, .. } = self.clone();
        Self { namespace, name, condition: "Deleted".to_owned(), ..Self::default() }
    }

    /// Whether the table shows the same, apart from the age.
    pub(super) fn looks_like(&self, other: &Self, wide: bool) -> bool {
        let ageless = |row: &Self| Self { age: None, ..row.clone() };
        if wide {
            ageless(self).wide_cells(self.saturation_text())
                == ageless(other).wide_cells(other.saturation_text())
        } else {
            self.cells(self.saturation_text()) == other.cells(other.saturation_text())
        }
    }

    pub(super) fn saturation_percent(&self) -> Option<f64> {
        self.saturation_percent
    }

    pub(super) fn saturation_text(&self) -> String {
        cell(self.saturation_percent.map(|percent| format!("{percent:.0}%")))
    }

    fn cells(&self, saturation: String) -> [String; 9] {
        [
            self.namespace.clone(),
            self.name.clone(),
            cell(self.desired),
            cell(self.current),
            cell(self.ready),
            saturation,
            cell(self.ttft_percent.map(|percent| format!("{percent:.1}%"))),
            cell(self.itl_percent.map(|percent| format!("{percent:.1}%"))),
            self.condition.clone(),
        ]
    }

    fn wide_cells(&self, saturation: String) -> [String; 17] {
        let [namespace, name, desired, current, ready, saturation, ttft, itl, condition] =
            self.cells(saturation);
        let text = |text: &String| cell(Some(text).filter(|text| !text.is_empty()));
        [
            namespace,
            name,
            desired,
            current,
            ready,
            saturation,
            ttft,
            itl,
            condition,
            text(&self.model_id),
            text(&self.accelerator),
            cell(self.gpus_per_replica),
            cell(self.group.map(pods_text)),
            text(&self.cost),
            cell(self.min_replicas),
            cell(self.max_replicas),
            cell(self.age.map(format_age)),
        ]
    }

    /// `None` unless the variant's instance has no controller.
    pub(super) fn orphan_line(&self) -> Option<String> {
        let evidence = self.not_managed.as_ref()?;
        Some(format!("  {}/{}: {evidence}\n", self.namespace, self.name))
    }
}

/// `4, all serve`.
fn pods_text(PodGroup { pods, serving }: PodGroup) -> String {
    match serving {
        ServingPods::Leader => format!("{pods}, leader serves"),
        ServingPods::Every => format!("{pods}, all serve"),
    }
}

fn cell(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// `12s`, `5m`, `7h` or `3d`, as kubectl rounds.
fn format_age(age: SignedDuration) -> String {
    match age.as_secs() {
        seconds @ ..120 => format!("{seconds}s"),
        seconds @ ..7200 => format!("{}m", seconds / 60),
        seconds @ ..172_800 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// A variant with its model.
fn find<'a>(snapshot: &'a Snapshot, namespace: &str, name: &str) -> Option<(&'a Model, &'a Variant)> {
    let models = snapshot.models.iter().filter(|model| model.namespace == namespace);
    let mut all = models.flat_map(|model| model.variants.iter().map(move |variant| (model, variant)));
    all.find(|(_, variant)| variant.name == name)
}

/// Mean KV use or queue of a variant divided by its threshold, the higher of the two. 1 is at the threshold.
fn share_of_threshold(variant: &Variant, settings: &Saturation) -> Option<f64> {
    let reporting: Vec<_> = variant.replicas.iter().filter(|r| r.kv.is_some() || r.queue.is_some()).collect();
    if reporting.is_empty() {
        return None;
    }
    let (mut kv, mut queue) = (0.0, 0.0);
    for replica in &reporting {
        kv += replica.kv.map_or(0.0, f64::from);
        queue += replica.queue.map_or(0.0, f64::from);
    }
    #[expect(clippy::cast_precision_loss, reason = "a variant has far fewer than 2^53 replicas")]
    let n = reporting.len() as f64;
    let share = |mean: f64, threshold: f64| if threshold > 0.0 { mean / threshold } else { 1.0 };
    Some(share(kv / n, settings.kv_cache_threshold).max(share(queue / n, settings.queue_length_threshold)))
}

fn condition(state: &ClusterState<'_>, variant: &Value) -> String {
    if variant.pointer("/metadata/deletionTimestamp").is_some() {
        return "Deleting".to_owned();
    }
    if is_excluded(&state.namespaces, text(variant, "/metadata/namespace")) {
        return "Excluded".to_owned();
    }
    if orphan_evidence(state, variant).is_some() {
        return "NotManaged".to_owned();
    }
    let Some(ready) = cluster::condition(variant, "Ready") else { return "no status yet".to_owned() };
    let prefix = if text(ready, "/status") == "True" { "" } else { "not ready: " };
    let failing = |type_: ConditionType| {
        cluster::condition(variant, type_.as_str()).filter(|c| text(c, "/status") == "False")
    };
    let not_followed =
        failing(ConditionType::SignalFollowed).map(|c| format!("not followed: {}", text(c, "/reason")));
    let ready_reason = text(ready, "/reason");
    // Each trouble is named once.
    let shown = Some(format!("{prefix}{ready_reason}")).filter(|_| ready_reason != "SignalNotFollowed");
    let is_other = |reason: &&str| *reason != ready_reason && *reason != "SignalNotFollowed";
    let need = failing(ConditionType::NeedMet).map(|c| text(c, "/reason")).filter(is_other);
    let need = need.map(|reason| format!("need not met: {reason}"));
    let reason = [shown, not_followed, need].into_iter().flatten().collect::<Vec<_>>().join(", ");
    match target_age(variant, state.now).filter(|age| *age > MAX_TARGET_AGE) {
        Some(age) => format!("{reason} ({} ago)", rounded(age.unsigned_abs())),
        None => reason,
    }
}

/// `None` unless the variant's instance has no controller.
fn orphan_evidence(state: &ClusterState<'_>, variant: &Value) -> Option<String> {
    let object = serde_json::from_value(variant.clone()).ok()?;
    let is_included = !is_excluded(&state.namespaces, text(variant, "/metadata/namespace"));
    let evidence = detect_orphan(&object, state.now).filter(|_| is_included)?;
    Some(evidence.to_string())
}

#[cfg(test)]
mod tests;
