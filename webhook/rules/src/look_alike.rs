//! Characters of web pages and chats in values. Such a name looks like that of the model server, but differs from it.

use wva_crds::look_alikes::{self, LookAlike};

use crate::maps::WARN as WARN_MAP;
use crate::rule::{Check, Rule, WARN};
use crate::strings::{entry_strings, main_map_values, variant_strings};

const MESSAGE: &str = "contains {found}; {other}";

pub(crate) const VARIANT: Rule = Rule {
    code: "WVA-VA-067",
    field: "spec.modelID",
    message: MESSAGE,
    docs: "A text of the object, such as `spec.modelID`, contains an invisible character, a no-break space or a curly quote. \
           Copies from web pages and chats have them. The name of the model server does not, so wva finds no metrics.",
    check: Check::Variant(|facts, out| {
        for (field, text) in variant_strings(facts) {
            if let Some(found) = find(text) {
                out.add_at(field, found.to_string(), found.advice());
            }
        }
    }),
    ..WARN
};

pub(crate) const MAP: Rule = Rule {
    code: "WVA-CM-068",
    message: MESSAGE,
    docs: "A value of a ConfigMap, such as `model_id` of an entry, contains an invisible character, a no-break space or a curly \
           quote. Copies from web pages and chats have them.",
    check: Check::ConfigMap(|facts, out| {
        // The faults of other entries name them.
        let entries = facts.has_entries().then(|| facts.entries().valid());
        let texts = entries.into_iter().flatten().flat_map(entry_strings);
        let values = main_map_values(facts).map(|(field, _, text)| (field, text));
        for (field, text) in texts.chain(values) {
            if let Some(found) = find(text) {
                out.add_at(field, found.to_string(), found.advice());
            }
        }
    }),
    ..WARN_MAP
};

/// Other rules deny control characters.
fn find(text: &str) -> Option<LookAlike> {
    look_alikes::first(text).filter(|_| !text.contains(char::is_control))
}
