//! Builds event objects. kube's recorder would merge events of one reason and keep only the first note.

mod reason;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;

pub use reason::EventReason;

/// `reportingController` of events.
const CONTROLLER: &str = "wva";
/// Prefix of `reportingController` if there is an instance.
const CONTROLLER_PREFIX: &str = "wva.llmd.ai";
/// The API's limit is 1,024.
const NOTE_BYTES: usize = 1000;
/// Pod names can be longer.
const REPORTER_BYTES: usize = 128;

const CONFIG_MAP: ObjectKind<'_> = ObjectKind { api_version: "v1", kind: "ConfigMap" };
/// Bytes of the object's name in an event name, whose limit is 253.
const NAME_BYTES: usize = 200;

/// The process that writes events.
#[derive(Clone, Debug, Default)]
pub struct EventSource {
    /// Instance of the controller, a label value.
    pub instance: Option<String>,
    /// Name of the pod.
    pub pod: Option<String>,
}

impl EventSource {
    /// A qualified name, as the API requires it: `wva`, or `wva.llmd.ai/INSTANCE`.
    fn controller(&self) -> String {
        let qualified = |instance| format!("{CONTROLLER_PREFIX}/{instance}");
        self.instance.as_ref().map_or_else(|| CONTROLLER.to_owned(), qualified)
    }
}

/// Content of an event.
#[derive(Clone, Debug)]
pub struct EventDraft<'a> {
    /// The event is created in its namespace.
    pub regarding: ObjectReference,
    /// Another object that the event is about.
    pub related: Option<ObjectReference>,
    /// Type `Warning`, else `Normal`.
    pub warning: bool,
    /// Reason of the event, from which the action follows.
    pub reason: EventReason,
    /// Text of the event, truncated to the limit of the API.
    pub note: &'a str,
    /// Reporting process.
    pub source: &'a EventSource,
    /// Time of the event.
    pub at: Timestamp,
}

/// A kind of objects with the version of its API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectKind<'a> {
    /// Group and version, such as `apps/v1`.
    pub api_version: &'a str,
    /// Name of the kind, such as `Deployment`.
    pub kind: &'a str,
}

/// Makes a reference to the object of an event.
#[must_use]
pub fn object_reference(
    ObjectKind { api_version, kind }: ObjectKind<'_>,
    namespace: &str,
    name: &str,
    uid: Option<&str>,
) -> ObjectReference {
    ObjectReference {
        api_version: Some(api_version.to_owned()),
        kind: Some(kind.to_owned()),
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        uid: uid.map(str::to_owned),
        ..ObjectReference::default()
    }
}

/// Builds the event object.
#[must_use]
pub fn build_event(draft: &EventDraft<'_>) -> Event {
    let cut = |text: &str, bytes| text[..text.floor_char_boundary(bytes)].to_owned();
    Event {
        metadata: ObjectMeta {
            generate_name: draft.regarding.name.as_ref().map(|name| format!("{name}-")),
            namespace: draft.regarding.namespace.clone(),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(draft.at)),
        type_: Some(if draft.warning { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(draft.reason.as_str().to_owned()),
        action: Some(draft.reason.action().to_owned()),
        note: Some(cut(draft.note, NOTE_BYTES)),
        regarding: Some(draft.regarding.clone()),
        related: draft.related.clone(),
        reporting_controller: Some(draft.source.controller()),
        reporting_instance: Some(cut(draft.source.pod.as_deref().unwrap_or(CONTROLLER), REPORTER_BYTES)),
        ..Event::default()
    }
}

/// The API server then refuses a second event with the same digest.
pub fn set_name_from_digest(event: &mut Event, digest: u64) {
    let object = event.regarding.as_ref().and_then(|object| object.name.as_deref()).unwrap_or_default();
    // A name must not end a part with `.` or `-`.
    let start = object[..object.floor_char_boundary(NAME_BYTES)].trim_end_matches(['.', '-']);
    event.metadata.name = Some(format!("{start}.{digest:016x}"));
    event.metadata.generate_name = None;
}

/// Event `ImmutableConfigChangeRejected` on the ConfigMap, about a change of a setting that needs a restart: refused at
/// admission, or ignored at run time.
#[must_use]
pub fn immutable_change(
    namespace: &str,
    name: &str,
    uid: Option<&str>,
    note: &str,
    source: &EventSource,
    at: Timestamp,
) -> Event {
    build_event(&EventDraft {
        regarding: object_reference(CONFIG_MAP, namespace, name, uid),
        related: None,
        warning: true,
        reason: EventReason::ImmutableConfigChangeRejected,
        note,
        source,
        at,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample_event(name: &str, text: &str) -> Event {
        event_of(name, text, &EventSource { instance: None, pod: Some(text.to_owned()) })
    }

    fn event_of(name: &str, note: &str, source: &EventSource) -> Event {
        build_event(&EventDraft {
            regarding: object_reference(ObjectKind { api_version: "v1", kind: "Pod" }, "b", name, None),
            related: Some(object_reference(ObjectKind { api_version: "v1", kind: "Node" }, "", "n", None)),
            warning: true,
            reason: EventReason::Stuck,
            note,
            source,
            at: Timestamp::UNIX_EPOCH,
        })
    }

    #[test]
    fn an_event_names_action_related_object_and_instance() {
        let event = event_of("a", "", &EventSource::default());
        assert_eq!(
            (event.reason.as_deref(), event.action.as_deref()),
            (Some("Stuck"), Some("CheckReplicas"))
        );
        assert_eq!(event.related.and_then(|object| object.name).as_deref(), Some("n"));
        assert_eq!(event.reporting_controller.as_deref(), Some("wva"));
        assert_eq!(event.reporting_instance.as_deref(), Some("wva"));
        let source = EventSource { instance: Some("blue".to_owned()), pod: Some("p".to_owned()) };
        let event = event_of("a", "", &source);
        assert_eq!(event.reporting_controller.as_deref(), Some("wva.llmd.ai/blue"));
        assert_eq!(event.reporting_instance.as_deref(), Some("p"));
    }

    #[test]
    fn actions_are_words_in_upper_camel_case() {
        for reason in EventReason::ALL {
            let action = reason.action();
            assert!(action.starts_with(|c: char| c.is_ascii_uppercase()), "{reason:?}");
            assert!(action.chars().all(|c| c.is_ascii_alphabetic()), "{reason:?}");
        }
    }

    #[test]
    fn event_name_stays_within_the_api_limit() {
        let mut event = sample_event(&format!("{}.b", "a".repeat(199)), "");
        set_name_from_digest(&mut event, 1);
        assert_eq!(event.metadata.name, Some(format!("{}.0000000000000001", "a".repeat(199))));
        assert_eq!(event.metadata.generate_name, None);
    }

    #[test]
    fn truncates_texts_between_characters() {
        let event = sample_event("a", &"ä".repeat(600));
        assert_eq!(event.note.map(|n| n.len()), Some(NOTE_BYTES));
        assert_eq!(event.reporting_instance.map(|n| n.len()), Some(REPORTER_BYTES));
        assert_eq!(event.metadata.generate_name.as_deref(), Some("a-"));
        assert_eq!(event.metadata.namespace.as_deref(), Some("b"));
    }
}
