//! The workload that an object scales.

use serde_json::Value;

use crate::json::at;

/// Default of `spec.scaleTargetRef.apiVersion` of a `VariantAutoscaling`.
pub const DEFAULT_API_VERSION: &str = "apps/v1";
/// Default of `spec.scaleTargetRef.kind` of a `VariantAutoscaling`.
pub const DEFAULT_KIND: &str = "Deployment";

/// Target workload, with defaults set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Group and version, such as `apps/v1`.
    pub api_version: String,
    /// Kind, such as `Deployment`.
    pub kind: String,
    /// Name, in the namespace of the variant.
    pub name: String,
}

impl Target {
    /// Missing parts have the defaults of a `VariantAutoscaling`.
    #[must_use]
    pub fn with_defaults(api_version: Option<&str>, kind: Option<&str>, name: &str) -> Self {
        Self {
            api_version: api_version.unwrap_or(DEFAULT_API_VERSION).to_owned(),
            kind: kind.unwrap_or(DEFAULT_KIND).to_owned(),
            name: name.to_owned(),
        }
    }

    /// Target that the object names, valid or not.
    #[must_use]
    pub fn from_object(object: &Value) -> Option<Self> {
        let reference = at(object, &["spec", "scaleTargetRef"])?;
        let text = |field: &str, default: &str| match at(reference, &[field]) {
            None => Some(default.to_owned()),
            Some(value) => value.as_str().map(str::to_owned),
        };
        Some(Self {
            api_version: text("apiVersion", DEFAULT_API_VERSION)?,
            kind: text("kind", DEFAULT_KIND)?,
            name: text("name", "").filter(|name| !name.is_empty())?,
        })
    }

    /// Target of an HPA or ScaledObject. KEDA takes an empty text for a missing one.
    #[must_use]
    pub fn of_autoscaler(object: &Value) -> Option<Self> {
        let text = |field| {
            let value = at(object, &["spec", "scaleTargetRef", field]).and_then(Value::as_str);
            value.filter(|text| !text.is_empty())
        };
        Some(Self::with_defaults(text("apiVersion"), text("kind"), text("name")?))
    }

    /// Empty for the core group.
    #[must_use]
    pub fn group(&self) -> &str {
        api_group(&self.api_version)
    }

    /// The version of the group does not matter.
    #[must_use]
    pub fn is_same_object(&self, other: &Self) -> bool {
        self.group() == other.group() && self.kind == other.kind && self.name == other.name
    }
}

/// Group of an `apiVersion`. Empty for the core group.
#[must_use]
pub fn api_group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}
