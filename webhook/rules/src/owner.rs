//! Tools that own an object. A command that changes it behind their back is reverted by Git, or makes the next upgrade of a
//! release fail with a conflict.

use std::fmt;

use serde_json::Value;
use wva_crds::names::MANAGED_BY_LABEL;

use crate::text::quote;
use wva_objects::json::at;

/// Who applies an object again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A Helm release, by name and namespace.
    Helm(Option<(String, String)>),
    /// A Kustomization or `HelmRelease` of Flux, by name and namespace.
    Flux(&'static str, Option<(String, String)>),
    /// An application of Argo CD.
    ArgoCd(Option<String>),
}

const RELEASE_NAME: &str = "meta.helm.sh/release-name";
const TRACKING_ID: &str = "argocd.argoproj.io/tracking-id";
const ARGO_INSTANCE: &str = "argocd.argoproj.io/instance";
/// Prefix of labels for each kind of Flux.
const FLUX: [(&str, &str); 2] = [("HelmRelease", "helm"), ("Kustomization", "kustomize")];

fn flux_key(prefix: &str, part: &str) -> String {
    format!("{prefix}.toolkit.fluxcd.io/{part}")
}

impl Owner {
    /// `None`: people apply it, or the object does not say who does.
    #[must_use]
    pub fn of(object: &Value) -> Option<Self> {
        let text = |map: &str, key: &str| {
            let found = at(object, &["metadata", map, key]).and_then(Value::as_str);
            found.filter(|text| !text.is_empty()).map(str::to_owned)
        };
        let pair = |map: &str, name: &str, namespace: &str| text(map, name).zip(text(map, namespace));
        let flux = FLUX.into_iter().find_map(|(kind, prefix)| {
            let named = pair("labels", &flux_key(prefix, "name"), &flux_key(prefix, "namespace"));
            named.map(|named| Self::Flux(kind, Some(named)))
        });
        let argo_cd = || {
            // `app:group/kind:namespace/name`.
            let tracked = text("annotations", TRACKING_ID);
            let tracked = tracked.and_then(|id| id.split(':').next().map(str::to_owned));
            tracked.or(text("labels", ARGO_INSTANCE)).map(|name| Self::ArgoCd(Some(name)))
        };
        let helm = || {
            let named = pair("annotations", RELEASE_NAME, "meta.helm.sh/release-namespace");
            let is_helms = text("labels", MANAGED_BY_LABEL).is_some_and(|name| name == "Helm");
            (named.is_some() || is_helms).then_some(Self::Helm(named))
        };
        flux.or_else(argo_cd).or_else(|| Self::by_manager(object)).or_else(helm)
    }

    /// Owner by the program that applied fields of the object.
    fn by_manager(object: &Value) -> Option<Self> {
        let fields = at(object, &["metadata", "managedFields"])?.as_array()?;
        let managers = fields.iter().filter_map(|field| field["manager"].as_str());
        managers.into_iter().find_map(|manager| match manager {
            "kustomize-controller" => Some(Self::Flux("Kustomization", None)),
            "helm-controller" => Some(Self::Flux("HelmRelease", None)),
            "argocd-controller" | "argocd-application-controller" => Some(Self::ArgoCd(None)),
            "helm" => {
                let is_applied = fields.iter().any(|f| f["manager"] == "helm" && f["operation"] == "Apply");
                is_applied.then_some(Self::Helm(None))
            }
            _ => None,
        })
    }

    /// Says where to change the object: `change it in Git: ...`.
    #[must_use]
    pub fn advice(&self) -> String {
        match self {
            Self::Helm(_) => format!("change it in the values of {self} and upgrade"),
            Self::Flux(..) | Self::ArgoCd(_) => {
                format!("change it in Git: {self} reverts other changes")
            }
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Helm(None) => f.write_str("its Helm release"),
            Self::Helm(Some((name, namespace))) => {
                write!(f, "Helm release {} in namespace {}", quote(name), quote(namespace))
            }
            Self::Flux(kind, None) => write!(f, "the {kind} of Flux"),
            Self::Flux(kind, Some((name, namespace))) => {
                write!(f, "{kind} {} of Flux in namespace {}", quote(name), quote(namespace))
            }
            Self::ArgoCd(None) => f.write_str("its application of Argo CD"),
            Self::ArgoCd(Some(name)) => write!(f, "application {} of Argo CD", quote(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_tool_that_applies_an_object_is_named() {
        let helm = json!({"meta.helm.sh/release-name": "wva", "meta.helm.sh/release-namespace": "ns"});
        let by = |manager: &str, operation: &str| json!({"managedFields": [{"manager": "kubectl"}, {"manager": manager, "operation": operation}]});
        let rows = [
            (json!({}), None),
            (json!({"labels": {"app.kubernetes.io/managed-by": "people"}}), None),
            (by("kubectl-edit", "Update"), None),
            (json!({"annotations": helm}), Some(r#"Helm release "wva" in namespace "ns""#)),
            (json!({"labels": {"app.kubernetes.io/managed-by": "Helm"}}), Some("its Helm release")),
            (by("helm", "Apply"), Some("its Helm release")),
            (
                json!({"annotations": helm, "labels": {"helm.toolkit.fluxcd.io/name": "wva",
                    "helm.toolkit.fluxcd.io/namespace": "flux"}}),
                Some(r#"HelmRelease "wva" of Flux in namespace "flux""#),
            ),
            (
                json!({"labels": {"kustomize.toolkit.fluxcd.io/name": "apps",
                    "kustomize.toolkit.fluxcd.io/namespace": "flux"}}),
                Some(r#"Kustomization "apps" of Flux in namespace "flux""#),
            ),
            (by("kustomize-controller", "Apply"), Some("the Kustomization of Flux")),
            (
                json!({"annotations": {"argocd.argoproj.io/tracking-id": "apps:/ConfigMap:ns/x"}}),
                Some(r#"application "apps" of Argo CD"#),
            ),
            (by("argocd-controller", "Apply"), Some("its application of Argo CD")),
        ];
        for (metadata, want) in rows {
            let found = Owner::of(&json!({"metadata": metadata})).map(|owner| owner.to_string());
            assert_eq!(found.as_deref(), want, "{metadata}");
        }
    }
}
