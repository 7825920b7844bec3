//! Labels of the series `wva_desired_replicas`, and whether a selector can match them.

use wva_crds::text::{escape, shorten};

use crate::readers::{Operator, Requirement, SeriesSelector};

/// Longest name or label value in a message.
const MAX_PART_CHARS: usize = 24;
/// Label with the name of the variant.
pub const VARIANT_LABEL: &str = "variant_name";

/// Known labels of the series of one variant. Any selector may match the other labels.
#[derive(Clone, Debug, Default)]
pub struct SeriesLabels<'a>(Vec<Label<'a>>);

#[derive(Clone, Debug)]
struct Label<'a> {
    key: &'static str,
    /// `None` stands for a missing label.
    values: Vec<Option<&'a str>>,
}

impl<'a> SeriesLabels<'a> {
    /// Labels of a published series. `instance` is `None` for a controller without one.
    #[must_use]
    pub fn published(
        namespace: &'a str,
        variant: &'a str,
        accelerator: &'a str,
        instance: Option<&'a str>,
    ) -> Self {
        let mut labels = Self::default();
        labels.add(VARIANT_LABEL, [Some(variant)]);
        labels.add("exported_namespace", [Some(namespace)]);
        if !accelerator.is_empty() {
            labels.add("accelerator_type", [Some(accelerator)]);
        }
        labels.add("controller_instance", [instance]);
        labels
    }

    /// Adds a label. A series has one of the values; `None` stands for a missing label.
    pub fn add<const N: usize>(&mut self, key: &'static str, values: [Option<&'a str>; N]) {
        self.0.push(Label { key, values: values.into() });
    }
}

/// Requirement that no series of a variant meets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contradiction {
    /// The requirement, such as `variant_name=a`.
    pub selected: String,
    /// Value in the series.
    pub actual: String,
}

impl SeriesSelector {
    /// `None` if the selector may match.
    #[must_use]
    pub fn contradiction(&self, labels: &SeriesLabels<'_>) -> Option<Contradiction> {
        for requirement in &self.0 {
            let Some(label) = labels.0.iter().find(|l| l.key == &*requirement.key) else { continue };
            if label.values.iter().any(|value| meets(requirement, *value)) {
                continue;
            }
            let Requirement { key, operator, values } = requirement;
            let listed = || values.iter().map(|v| shorten_name(v)).collect::<Vec<_>>().join(",");
            let selected = match operator {
                Operator::In if values.len() == 1 => format!("{key}={}", listed()),
                Operator::In => format!("{key} in ({})", listed()),
                Operator::NotIn => format!("{key} notin ({})", listed()),
                Operator::Exists => key.to_string(),
                Operator::DoesNotExist => format!("!{key}"),
            };
            let actual = label.values[0].map_or_else(|| "no such label".to_owned(), |v| escape(v, false));
            return Some(Contradiction { selected, actual });
        }
        None
    }

    /// Labels of which it requires one value.
    pub(crate) fn values(&self) -> impl Iterator<Item = (String, String)> {
        self.0.iter().filter_map(|requirement| match (requirement.operator, &*requirement.values) {
            (Operator::In, [value]) => Some((requirement.key.to_string(), value.to_string())),
            _ => None,
        })
    }

    /// Whether it has a requirement on the name of the variant, of any operator.
    #[must_use]
    pub fn names_variant(&self) -> bool {
        self.0.iter().any(|requirement| &*requirement.key == VARIANT_LABEL)
    }
}

/// `None` for a missing label.
fn meets(requirement: &Requirement, value: Option<&str>) -> bool {
    let listed = value.is_some_and(|value| requirement.values.iter().any(|v| &**v == value));
    match requirement.operator {
        Operator::In => listed,
        Operator::NotIn => !listed,
        Operator::Exists => value.is_some(),
        Operator::DoesNotExist => value.is_none(),
    }
}

/// Escaped name or label value, for a message.
#[must_use]
pub fn shorten_name(text: &str) -> String {
    shorten(&escape(text, false), MAX_PART_CHARS)
}
