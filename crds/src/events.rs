//! Builds event objects. kube's recorder would merge events of one reason and keep only the first note.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;

/// `reportingController` of events.
const CONTROLLER: &str = "wva";
/// The API's limit is 1,024.
const NOTE_BYTES: usize = 1000;
/// Pod names can be longer.
const REPORTER_BYTES: usize = 128;

/// Bytes of the object's name in an event name, whose limit is 253.
const NAME_BYTES: usize = 200;

/// Content of an event.
#[derive(Clone, Debug)]
pub struct EventDraft<'a> {
    /// The event is created in its namespace.
    pub regarding: ObjectReference,
    /// Type `Warning`, else `Normal`.
    pub warning: bool,
    /// Reason code.
    pub reason: &'a str,
    /// Action that was taken.
    pub action: &'a str,
    /// Truncated to the limit of the API.
    pub note: &'a str,
    /// Reporting pod.
    pub reporter: Option<&'a str>,
    /// Time of the event.
    pub at: Timestamp,
}

/// Makes a reference to the object of an event.
#[must_use]
pub fn object_reference(
    (api_version, kind): (&str, &str),
    (namespace, name): (&str, &str),
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
        reason: Some(draft.reason.to_owned()),
        action: Some(draft.action.to_owned()),
        note: Some(cut(draft.note, NOTE_BYTES)),
        regarding: Some(draft.regarding.clone()),
        reporting_controller: Some(CONTROLLER.to_owned()),
        reporting_instance: Some(cut(draft.reporter.unwrap_or(CONTROLLER), REPORTER_BYTES)),
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
    (namespace, name): (&str, &str),
    uid: Option<&str>,
    note: &str,
    reporter: Option<&str>,
    at: Timestamp,
) -> Event {
    build_event(&EventDraft {
        regarding: object_reference(("v1", "ConfigMap"), (namespace, name), uid),
        warning: true,
        reason: "ImmutableConfigChangeRejected",
        action: "Reject",
        note,
        reporter,
        at,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample_event(name: &str, text: &str) -> Event {
        build_event(&EventDraft {
            regarding: object_reference(("v1", "Pod"), ("b", name), None),
            warning: true,
            reason: "Stuck",
            action: "Decide",
            note: text,
            reporter: Some(text),
            at: Timestamp::UNIX_EPOCH,
        })
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
