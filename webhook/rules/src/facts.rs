//! Facts about a variant: the new object, its stored version, and cluster state. Objects are raw JSON: before schema
//! validation, a wrong type is a violation, not a parse error.

use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use wva_crds::names::{ALLOW_INSTANCE_CHANGE_ANNOTATION, INSTANCE_LABEL};
use wva_objects::json::at;
use wva_objects::{MetricReader, Target};

/// Operation of a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The object is new.
    Create,
    /// Replaces [`Facts::old`].
    Update,
    /// Never checked.
    Delete,
}

/// Policy of an instance for objects without an instance label, in the namespaces of the instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InstancePolicy {
    /// Adds the label.
    #[default]
    Inject,
    /// Denies the object.
    Require,
    /// Leaves the object as it is.
    Ignore,
}

/// Whether the controller manages a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceState {
    /// Managed, or unknown.
    Managed,
    /// Annotation `wva.llmd.ai/exclude: "true"`.
    Excluded,
    /// The controller watches only another namespace.
    Unwatched,
}

/// Instances whose objects are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstanceScope {
    /// Scope of webhook and controller.
    Own,
    /// Scope of checks of files.
    All,
}

/// The same facts always give the same verdict.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// Operation.
    pub operation: Operation,
    /// The new object.
    pub object: &'a Value,
    /// The stored object; only on an update.
    pub old: Option<&'a Value>,
    /// `CONTROLLER_INSTANCE`.
    pub instance: Option<&'a str>,
    /// Applies to objects without an instance label.
    pub policy: InstancePolicy,
    /// Instances whose objects are checked.
    pub instance_scope: InstanceScope,
    /// The policy of the instance applies.
    pub is_namespace_owned: bool,
    /// Whether the controller manages the namespace.
    pub namespace: NamespaceState,
    /// Namespace of the controller, if known.
    pub controller_namespace: Option<&'a str>,
    /// Whether the caches of the fields below are complete. If not, their rules are skipped with a warning.
    pub is_synced: bool,
    /// Variants of every instance; at least those with the object's target, possibly the object itself.
    pub other_variants: &'a [OtherVariant],
    /// A variant of the model with a cost that differs from the default.
    pub variant_with_own_cost: Option<&'a str>,
    /// Autoscalers that scale the target by wva's metric.
    pub readers: &'a [MetricReader],
    /// Whether `readers` is complete, and no more follow in the same apply.
    pub has_all_readers: bool,
    /// `None` if unknown.
    pub target_exists: Option<bool>,
    /// The target determines the accelerator; `None` if not checked.
    pub is_accelerator_known: Option<bool>,
}

impl<'a> Facts<'a> {
    /// Facts about one new object, as for a file.
    #[must_use]
    pub fn new(object: &'a Value) -> Self {
        Self {
            operation: Operation::Create,
            object,
            old: None,
            instance: None,
            policy: InstancePolicy::Inject,
            instance_scope: InstanceScope::All,
            is_namespace_owned: false,
            namespace: NamespaceState::Managed,
            controller_namespace: None,
            is_synced: true,
            other_variants: &[],
            variant_with_own_cost: None,
            readers: &[],
            has_all_readers: false,
            target_exists: None,
            is_accelerator_known: None,
        }
    }

    /// `null` counts as absent, as for the API server.
    pub(crate) fn get(&self, path: &[&str]) -> Option<&'a Value> {
        at(self.object, path)
    }

    /// `Null` if absent. `None` if `path` is not a map, which another rule reports.
    pub(crate) fn field(&self, path: &[&str], field: &str) -> Option<&'a Value> {
        self.get(path)?.as_object().map(|map| map.get(field).unwrap_or(&Value::Null))
    }

    /// Reads like [`Self::field`].
    pub(crate) fn spec(&self, field: &str) -> Option<&'a Value> {
        self.field(&["spec"], field)
    }

    pub(crate) fn label(&self, key: &str) -> Option<&'a Value> {
        self.get(&["metadata", "labels", key])
    }

    pub(crate) fn annotation(&self, key: &str) -> Option<&'a Value> {
        self.get(&["metadata", "annotations", key])
    }

    pub(crate) fn namespace_name(&self) -> Option<&'a str> {
        self.get(&["metadata", "namespace"])?.as_str()
    }

    /// Value of the instance label, if it is text.
    pub(crate) fn instance_label(&self) -> Option<&'a str> {
        self.label(INSTANCE_LABEL)?.as_str()
    }

    pub(crate) fn old_instance_label(&self) -> Option<&'a str> {
        at(self.old?, &["metadata", "labels", INSTANCE_LABEL])?.as_str()
    }

    /// True if the annotation of this update allows it.
    pub(crate) fn allows_instance_change(&self) -> bool {
        let is_true = |v: Option<&Value>| v.and_then(Value::as_str) == Some("true");
        let stored =
            self.old.and_then(|o| at(o, &["metadata", "annotations", ALLOW_INSTANCE_CHANGE_ANNOTATION]));
        is_true(self.annotation(ALLOW_INSTANCE_CHANGE_ANNOTATION)) && !is_true(stored)
    }

    /// Whether this policy applies to the namespace of the object.
    pub(crate) fn has_policy(&self, policy: InstancePolicy) -> bool {
        self.instance.is_some() && self.policy == policy && self.is_namespace_owned
    }

    /// Name, else `generateName`, else empty.
    #[must_use]
    pub fn name(&self) -> &'a str {
        let text = |field| self.get(&["metadata", field]).and_then(Value::as_str).filter(|s| !s.is_empty());
        text("name").or_else(|| text("generateName")).unwrap_or_default()
    }
}

/// Another variant of the namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherVariant {
    /// Name.
    pub name: String,
    /// Instance label, if any.
    pub instance: Option<String>,
    /// Target workload.
    pub target: Target,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
}

impl OtherVariant {
    /// `None` without a name or a target, as llm-d WVA may have stored it.
    #[must_use]
    pub fn from_object(object: &Value) -> Option<Self> {
        let text = |path: &[&str]| at(object, path).and_then(Value::as_str);
        let created = text(&["metadata", "creationTimestamp"]).and_then(|time| time.parse().ok());
        let instance = text(&["metadata", "labels", INSTANCE_LABEL]);
        Self::new(text(&["metadata", "name"])?, instance, created, object)
    }

    /// Variant with parsed metadata; `object` needs only `spec`.
    #[must_use]
    pub fn new(
        name: &str,
        instance: Option<&str>,
        created: Option<Timestamp>,
        object: &Value,
    ) -> Option<Self> {
        let (name, instance) = (name.to_owned(), instance.map(str::to_owned));
        Some(Self { name, instance, target: Target::from_object(object)?, created })
    }
}

/// The controller manages the oldest variant of a target, then the first by name.
#[must_use]
pub fn precedence(created: Option<Timestamp>, name: &str) -> impl Ord {
    (created, name)
}
