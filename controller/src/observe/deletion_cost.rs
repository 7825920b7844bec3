//! Deletion cost of a pod: the ReplicaSet controller deletes ready pods with the lowest cost first. The field manager
//! tells whether wva has set it, so a new leader needs no memory.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Annotation that the ReplicaSet controller reads.
pub(crate) const ANNOTATION: &str = "controller.kubernetes.io/pod-deletion-cost";
/// Field manager of costs that wva sets.
pub(crate) const MANAGER: &str = "wva-pod-deletion-cost";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeletionCost {
    Unset,
    /// Set by wva.
    Own(i32),
    /// Set by another client, or in the pod template.
    Foreign,
}

impl DeletionCost {
    pub(crate) fn is_own(self) -> bool {
        matches!(self, Self::Own(_))
    }

    pub(crate) fn read(meta: &ObjectMeta) -> Self {
        let Some(cost) = meta.annotations.as_ref().and_then(|all| all.get(ANNOTATION)) else {
            return Self::Unset;
        };
        let key = format!("f:{ANNOTATION}");
        let owners = meta.managed_fields.iter().flatten().filter(|entry| {
            let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
            fields.is_some_and(|f| !f["f:metadata"]["f:annotations"][&key].is_null())
        });
        let mut names = owners.map(|entry| entry.manager.as_deref());
        // With another owner, the value is also theirs.
        let is_own = names.next() == Some(Some(MANAGER)) && names.next().is_none();
        cost.parse().ok().filter(|_| is_own).map_or(Self::Foreign, Self::Own)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "tests hand it over as they write it")]
    fn check(annotations: Value, managers: &[&str], want: DeletionCost) {
        let fields = json!({"f:metadata": {"f:annotations": {".": {}, format!("f:{ANNOTATION}"): {}}}});
        let entries: Vec<Value> = managers
            .iter()
            .map(|m| json!({"manager": m, "operation": "Apply", "fieldsV1": fields}))
            .collect();
        let meta = json!({"annotations": annotations, "managedFields": entries});
        assert_eq!(DeletionCost::read(&serde_json::from_value(meta).unwrap()), want, "{managers:?}");
    }

    #[test]
    fn only_the_field_manager_of_wva_owns_a_cost() {
        check(json!({}), &[], DeletionCost::Unset);
        check(json!({ANNOTATION: "-200"}), &[MANAGER], DeletionCost::Own(-200));
        check(json!({ANNOTATION: "-200"}), &[], DeletionCost::Foreign);
        check(json!({ANNOTATION: "-200"}), &["kubectl-annotate"], DeletionCost::Foreign);
        check(json!({ANNOTATION: "-200"}), &[MANAGER, "kubectl-annotate"], DeletionCost::Foreign);
        check(json!({ANNOTATION: "low"}), &[MANAGER], DeletionCost::Foreign);
    }

    #[test]
    fn other_annotations_of_the_manager_do_not_count() {
        let other = json!({"annotations": {ANNOTATION: "-200", "a": "b"}, "managedFields": [
            {"manager": MANAGER, "fieldsV1": {"f:metadata": {"f:annotations": {"f:a": {}}}}}]});
        assert_eq!(DeletionCost::read(&serde_json::from_value(other).unwrap()), DeletionCost::Foreign);
    }
}
