//! Autoscalers with the annotations of llm-d WVA v0.9: whether each has a VariantAutoscaling, and if not, why. The
//! judgement of the controller, on the objects as they are now.

use std::sync::Arc;

use k8s_openapi::jiff::SignedDuration;
use serde_json::Value;
use wva_crds::names::{INSTANCE_LABEL, MANAGED_ANNOTATION};
use wva_objects::autoscaler::{Autoscaler, AutoscalerKind};
use wva_objects::is_annotated;
use wva_rules::{AnnotatedAutoscaler, AnnotationVerdict, ExistingVariant, replaced_message};

use super::annotation_facts::REFUSED;
use super::chain::Finding;
use super::facts::Facts;
use super::variant_state::edit;
use crate::cluster::{AUTOSCALERS, SCALED_OBJECTS, elapsed_since, entry, id, is_excluded, text};

/// The controller creates an object within a few cycles.
const CREATION: SignedDuration = SignedDuration::from_mins(2);
/// Names in one line.
const MAX_NAMES: usize = 5;

/// An annotated autoscaler with its JSON.
struct Annotated<'a> {
    object: &'a Value,
    autoscaler: AnnotatedAutoscaler,
}

pub(super) fn check_annotations(facts: &Facts) -> Vec<Finding> {
    let controllers = facts.install.controllers.as_deref().unwrap_or_default();
    if !controllers.is_empty() && controllers.iter().all(|c| c.is_llm_d_wva) {
        return Vec::new();
    }
    let is_on = controllers
        .iter()
        .any(|c| !c.is_llm_d_wva)
        .then(|| controllers.iter().any(|c| !c.is_llm_d_wva && c.reads_annotations));
    let objects =
        facts.autoscaling.hpas.iter().chain(&facts.autoscaling.scaled_objects).filter(|o| is_annotated(o));
    let annotated: Vec<Annotated<'_>> = objects.filter_map(|object| Annotated::new(facts, object)).collect();
    let variants: Vec<ExistingVariant> =
        facts.autoscaling.annotations.variants.iter().filter_map(ExistingVariant::read).collect();
    let (mut findings, mut done, mut unused) = (Vec::new(), 0, Vec::new());
    for one in &annotated {
        let verdict = one.judge(&annotated, &variants);
        let own = variants.iter().find(|v| one.autoscaler.owns(&v.namespace, v.origin.as_ref()));
        match (verdict, own) {
            (AnnotationVerdict::Replaced(by), _) => {
                findings.push(Finding::fine(format!("{one}: {}", replaced_message(&by))));
            }
            (_, None) if is_on == Some(false) => unused.push(one.to_string()),
            (AnnotationVerdict::Refused(cause), _) => {
                findings.push(Finding::broken(format!("{one}: {cause}"), one.edit()));
            }
            (AnnotationVerdict::Waiting(other), _) => findings.push(Finding::unknown(format!(
                "{one}: waits for the deletion of VariantAutoscaling {other}"
            ))),
            (AnnotationVerdict::Variant(_), None) => findings.push(one.missing(facts)),
            (AnnotationVerdict::Variant(wanted), Some(_)) => match one.outdated(facts, &wanted) {
                Some(finding) => findings.push(finding),
                None => done += 1,
            },
        }
    }
    if done > 0 {
        let noun = if done == 1 { "autoscaler has" } else { "autoscalers have" };
        findings.push(Finding::fine(format!("{done} annotated {noun} a VariantAutoscaling")));
    }
    findings.extend(report_unused(&unused));
    findings
}

fn report_unused(unused: &[String]) -> Option<Finding> {
    let more = unused.len().saturating_sub(MAX_NAMES);
    let names = unused.iter().take(MAX_NAMES).cloned().collect::<Vec<_>>().join(", ");
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!unused.is_empty()).then(|| {
        Finding::warning(
            format!(
                "annotation {MANAGED_ANNOTATION}, but no VariantAutoscaling, and WVA_ANNOTATIONS is off: {names}{rest}"
            ),
            "set wva.annotations=true in the chart, or create the objects: wva migrate | kubectl apply -f -",
        )
    })
}

impl<'a> Annotated<'a> {
    /// `None` in an excluded namespace.
    fn new(facts: &Facts, object: &'a Value) -> Option<Self> {
        let namespace = text(object, "/metadata/namespace");
        let autoscaler = Autoscaler::from_object(object)?;
        let of_namespace = facts.objects.namespaces.iter().find(|n| id(n).name == namespace);
        let instance = of_namespace.and_then(|n| entry(n, "/metadata/labels", INSTANCE_LABEL));
        let autoscaler = AnnotatedAutoscaler::new(namespace, &Arc::new(autoscaler), instance)?;
        (!is_excluded(&facts.objects.namespaces, namespace)).then_some(Self { object, autoscaler })
    }

    fn judge(&self, all: &[Self], variants: &[ExistingVariant]) -> AnnotationVerdict {
        let namespace = &self.autoscaler.namespace;
        let same = |other: &&Self| {
            other.autoscaler.namespace == *namespace
                && other.autoscaler.instance() == self.autoscaler.instance()
        };
        let all: Vec<_> = all.iter().filter(same).map(|other| other.autoscaler.clone()).collect();
        let variants: Vec<_> = variants.iter().filter(|v| v.namespace == *namespace).cloned().collect();
        self.autoscaler.judge(&all, &variants)
    }

    fn missing(&self, facts: &Facts) -> Finding {
        if let Some(note) = self.refusal(facts) {
            return Finding::broken(format!("{self}: {note}"), self.describe());
        }
        let age = elapsed_since(text(self.object, "/metadata/creationTimestamp"), facts.now);
        if age.is_some_and(|age| age < CREATION) {
            return Finding::unknown(format!("{self}: new, no VariantAutoscaling yet"));
        }
        Finding::broken(
            format!("{self}: has no VariantAutoscaling, and no event {REFUSED} says why"),
            "check that WVA_ANNOTATIONS is true, then the log of the leader",
        )
    }

    /// The API server refuses an update.
    fn outdated(&self, facts: &Facts, wanted: &Value) -> Option<Finding> {
        let name = text(wanted, "/metadata/name");
        let stored = facts
            .autoscaling
            .annotations
            .variants
            .iter()
            .find(|v| id(v).name == name && id(v).namespace == self.autoscaler.namespace)?;
        let is_current =
            wanted["spec"].as_object().is_none_or(|spec| spec.iter().all(|(k, v)| stored["spec"][k] == *v));
        let note = self.refusal(facts).filter(|_| !is_current)?;
        Some(Finding::warning(
            format!("{self}: VariantAutoscaling {name} has earlier values: {note}"),
            self.describe(),
        ))
    }

    fn refusal(&self, facts: &'a Facts) -> Option<&'a str> {
        let kind = self.autoscaler.name().kind.api().kind;
        let key =
            (kind.to_owned(), self.autoscaler.namespace.clone(), self.autoscaler.name().name.to_string());
        facts.autoscaling.annotations.refusals.get(&key).map(String::as_str)
    }

    fn describe(&self) -> String {
        format!(
            "kubectl describe {} -n {} {}",
            self.plural(),
            self.autoscaler.namespace,
            self.autoscaler.name().name
        )
    }

    /// How to change it: kubectl's editor, or the tool that owns it.
    fn edit(&self) -> String {
        edit(self.object, self.plural())
    }

    fn plural(&self) -> &'static str {
        match self.autoscaler.name().kind {
            AutoscalerKind::Hpa => AUTOSCALERS.plural,
            AutoscalerKind::ScaledObject => SCALED_OBJECTS.plural,
        }
    }
}

impl std::fmt::Display for Annotated<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.autoscaler.name();
        let kind = name.kind.api().kind;
        write!(f, "{kind} {}/{}", self.autoscaler.namespace, name.name)
    }
}
