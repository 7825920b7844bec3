//! What a rule may look at: the object as it came, its predecessor, and what the caller knows of the cluster. Objects
//! are raw JSON, because a webhook sees them before any schema has: a wrong type is a finding, not a parse error.

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use wva_crds::names::{ALLOW_INSTANCE_CHANGE_ANNOTATION, INSTANCE_LABEL};

use crate::readers::MetricReader;

/// What is being done to the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The object is new.
    Create,
    /// The object replaces [`Facts::old`].
    Update,
    /// The object goes away. Never judged.
    Delete,
}

/// What an instance does with objects that carry no instance label, in the namespaces that are its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstancePolicy {
    /// The label is added.
    Inject,
    /// The object is refused.
    Require,
    /// Nothing.
    Ignore,
}

/// What the controller does with the variants of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceState {
    /// It manages them, or nobody knows otherwise.
    Managed,
    /// The namespace has the annotation `wva.llmd.ai/exclude: "true"`.
    Excluded,
    /// The controller watches another namespace alone.
    Unwatched,
}

/// Whose objects are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Those of this instance alone; the rest belongs to somebody else. For the webhook and the controller.
    Own,
    /// All of them, whatever their instance. For files, whose cluster nobody knows.
    All,
}

/// Everything a rule may depend on. The same facts always give the same verdict.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// What is being done.
    pub operation: Operation,
    /// The object as it would be stored.
    pub object: &'a Value,
    /// The object that is stored now; only on an update.
    pub old: Option<&'a Value>,
    /// The instance of this controller (`CONTROLLER_INSTANCE`), where it has one.
    pub instance: Option<&'a str>,
    /// What that instance does with unlabelled objects.
    pub policy: InstancePolicy,
    /// Whose objects are judged.
    pub reach: Reach,
    /// The namespace says that it is this instance's own, so that the policy acts in it.
    pub namespace_owned: bool,
    /// What the controller does with the object's namespace.
    pub namespace: NamespaceState,
    /// The namespace of the controller itself, where it is known.
    pub controller_namespace: Option<&'a str>,
    /// The caches behind the fields below are complete. Otherwise the rules that need them are skipped, with a warning.
    pub synced: bool,
    /// The variants of the namespace, of every instance, that may have the object's target: all that do, and perhaps
    /// more. The object itself may be among them.
    pub others: &'a [OtherVariant],
    /// The name of another variant of the model in the namespace that sets a cost of its own.
    pub cost_set_by: Option<&'a str>,
    /// What scales the object's target by this program's metric, as far as it can be seen.
    pub readers: &'a [MetricReader],
    /// Nothing that could be in `readers` is hidden from the caller.
    pub readers_complete: bool,
    /// Whether the object's target exists; `None` where nobody can tell.
    pub target_exists: Option<bool>,
    /// Whether the accelerator can be told from the target; `None` where nobody looked.
    pub accelerator_derivable: Option<bool>,
}

impl<'a> Facts<'a> {
    /// Facts about one object on its own, as a file has them: new, no instance, no cluster. Callers that know more
    /// change the fields.
    #[must_use]
    pub fn of(object: &'a Value) -> Self {
        Self {
            operation: Operation::Create,
            object,
            old: None,
            instance: None,
            policy: InstancePolicy::Inject,
            reach: Reach::All,
            namespace_owned: false,
            namespace: NamespaceState::Managed,
            controller_namespace: None,
            synced: true,
            others: &[],
            cost_set_by: None,
            readers: &[],
            readers_complete: false,
            target_exists: None,
            accelerator_derivable: None,
        }
    }

    /// The field at `path`; `null` counts as absent, as it does for the apiserver.
    pub(crate) fn get(&self, path: &[&str]) -> Option<&'a Value> {
        at(self.object, path)
    }

    /// A field of the map at `path`, `Null` where it is absent. `None` where there is no such map: then one rule
    /// reports that, and the rules about its fields have nothing to say.
    pub(crate) fn field(&self, path: &[&str], field: &str) -> Option<&'a Value> {
        self.get(path)?.as_object().map(|map| map.get(field).unwrap_or(&Value::Null))
    }

    /// A field of `spec`, as [`Self::field`] gives it.
    pub(crate) fn spec(&self, field: &str) -> Option<&'a Value> {
        self.field(&["spec"], field)
    }

    pub(crate) fn label(&self, key: &str) -> Option<&'a Value> {
        self.get(&["metadata", "labels", key])
    }

    pub(crate) fn annotation(&self, key: &str) -> Option<&'a Value> {
        self.get(&["metadata", "annotations", key])
    }

    /// The object's namespace, where it says one.
    pub(crate) fn namespace_name(&self) -> Option<&'a str> {
        self.get(&["metadata", "namespace"])?.as_str()
    }

    /// The object's instance label, where it is a text.
    pub(crate) fn instance_label(&self) -> Option<&'a str> {
        self.label(INSTANCE_LABEL)?.as_str()
    }

    /// The instance label before this update.
    pub(crate) fn old_instance_label(&self) -> Option<&'a str> {
        at(self.old?, &["metadata", "labels", INSTANCE_LABEL])?.as_str()
    }

    /// This update, and no earlier one, set the annotation that lets the object move to another instance.
    pub(crate) fn instance_change_allowed(&self) -> bool {
        let set = |v: Option<&Value>| v.and_then(Value::as_str) == Some("true");
        let before =
            self.old.and_then(|o| at(o, &["metadata", "annotations", ALLOW_INSTANCE_CHANGE_ANNOTATION]));
        set(self.annotation(ALLOW_INSTANCE_CHANGE_ANNOTATION)) && !set(before)
    }

    /// The policy acts on this object if it carries no label.
    pub(crate) fn policy_acts(&self, policy: InstancePolicy) -> bool {
        self.instance.is_some() && self.policy == policy && self.namespace_owned
    }

    /// The object's name, or the prefix its name is made from, or nothing.
    #[must_use]
    pub fn name(&self) -> &'a str {
        let text = |field| self.get(&["metadata", field]).and_then(Value::as_str).filter(|s| !s.is_empty());
        text("name").or_else(|| text("generateName")).unwrap_or_default()
    }
}

/// The field at `path`, where all of it is maps; `null` counts as absent.
pub(crate) fn at<'v>(value: &'v Value, path: &[&str]) -> Option<&'v Value> {
    path.iter().try_fold(value, |v, key| v.as_object()?.get(*key)).filter(|v| !v.is_null())
}

/// The workload a variant names, with the schema's defaults filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Group and version, e.g. `apps/v1`.
    pub api_version: String,
    /// Kind, e.g. `Deployment`.
    pub kind: String,
    /// Name, in the variant's namespace.
    pub name: String,
}

impl Target {
    /// What a `scaleTargetRef` of whatever kind names. What it leaves out is as in a `VariantAutoscaling`.
    pub(crate) fn named(api_version: Option<&str>, kind: Option<&str>, name: &str) -> Self {
        Self {
            api_version: api_version.unwrap_or(crate::defaults::API_VERSION).to_owned(),
            kind: kind.unwrap_or(crate::defaults::KIND).to_owned(),
            name: name.to_owned(),
        }
    }

    /// The target of a `VariantAutoscaling`, where it names one. No claim that what it names is valid.
    #[must_use]
    pub fn of(object: &Value) -> Option<Self> {
        let reference = at(object, &["spec", "scaleTargetRef"])?;
        let text = |field: &str, default: &str| match at(reference, &[field]) {
            None => Some(default.to_owned()),
            Some(value) => value.as_str().map(str::to_owned),
        };
        Some(Self {
            api_version: text("apiVersion", crate::defaults::API_VERSION)?,
            kind: text("kind", crate::defaults::KIND)?,
            name: text("name", "").filter(|name| !name.is_empty())?,
        })
    }

    /// The API group, empty for the core group.
    #[must_use]
    pub fn group(&self) -> &str {
        api_group(&self.api_version)
    }

    /// Both name one object. Versions of one group show the same objects.
    #[must_use]
    pub fn same_object(&self, other: &Self) -> bool {
        self.group() == other.group() && self.kind == other.kind && self.name == other.name
    }
}

/// The group of an `apiVersion`, empty for the core group.
#[must_use]
pub fn api_group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// What the rules need to know of the other variants of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherVariant {
    /// Its name.
    pub name: String,
    /// Its instance label, where it has one.
    pub instance: Option<String>,
    /// The workload it targets.
    pub target: Target,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
}

impl OtherVariant {
    /// Reads a stored `VariantAutoscaling`. `None` for one without a name or a target, as old releases stored them:
    /// it cannot conflict with anything.
    #[must_use]
    pub fn of(object: &Value) -> Option<Self> {
        let text = |path: &[&str]| at(object, path).and_then(Value::as_str);
        let created = text(&["metadata", "creationTimestamp"]).and_then(|time| time.parse().ok());
        let instance = text(&["metadata", "labels", INSTANCE_LABEL]);
        Self::new(text(&["metadata", "name"])?, instance, created, object)
    }

    /// The same of one whose metadata is parsed already; `object` may lack it.
    #[must_use]
    pub fn new(
        name: &str,
        instance: Option<&str>,
        created: Option<Timestamp>,
        object: &Value,
    ) -> Option<Self> {
        let (name, instance) = (name.to_owned(), instance.map(str::to_owned));
        Some(Self { name, instance, target: Target::of(object)?, created })
    }
}

/// The order of variants with one target, of which the controller manages the first: the oldest, then the first by name.
#[must_use]
pub fn precedence(created: Option<Timestamp>, name: &str) -> impl Ord {
    (created, name)
}
