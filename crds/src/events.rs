//! Event objects, made in one place. They are written directly: kube's recorder folds events of one reason into a
//! series and keeps the text of the first alone.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;

/// As events name the controller.
const CONTROLLER: &str = "wva";
/// The API's limit of a note is 1,024 bytes.
const NOTE_BYTES: usize = 1000;
/// The API's limit of the name of who reports, in bytes. Names of pods can be longer.
const REPORTER_BYTES: usize = 128;

/// What an event's name takes of its object's, in bytes: the API's limit is 253 for the whole.
const NAME_BYTES: usize = 200;

/// What one event tells.
#[derive(Clone, Debug)]
pub struct News<'a> {
    /// The object it is about; the event stands in that object's namespace.
    pub regarding: ObjectReference,
    /// A Warning, else Normal.
    pub warning: bool,
    /// Its reason, from the closed set of the API.
    pub reason: &'a str,
    /// What was done.
    pub action: &'a str,
    /// For people. What is longer than the API takes is cut off.
    pub note: &'a str,
    /// The pod that reports.
    pub reporter: Option<&'a str>,
    /// When it happened.
    pub at: Timestamp,
}

/// A reference to the object that an event is about.
#[must_use]
pub fn reference(
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

/// The event to create.
#[must_use]
pub fn event(news: &News<'_>) -> Event {
    let cut = |text: &str, bytes| text[..text.floor_char_boundary(bytes)].to_owned();
    Event {
        metadata: ObjectMeta {
            generate_name: news.regarding.name.as_ref().map(|name| format!("{name}-")),
            namespace: news.regarding.namespace.clone(),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(news.at)),
        type_: Some(if news.warning { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(news.reason.to_owned()),
        action: Some(news.action.to_owned()),
        note: Some(cut(news.note, NOTE_BYTES)),
        regarding: Some(news.regarding.clone()),
        reporting_controller: Some(CONTROLLER.to_owned()),
        reporting_instance: Some(cut(news.reporter.unwrap_or(CONTROLLER), REPORTER_BYTES)),
        ..Event::default()
    }
}

/// Gives an event a name of its own instead of one that the API server makes up: the second who creates it is refused.
pub fn name_by(event: &mut Event, digest: u64) {
    let object = event.regarding.as_ref().and_then(|object| object.name.as_deref()).unwrap_or_default();
    // Cut so that it is valid as the beginning of another name.
    let start = object[..object.floor_char_boundary(NAME_BYTES)].trim_end_matches(['.', '-']);
    event.metadata.name = Some(format!("{start}.{digest:016x}"));
    event.metadata.generate_name = None;
}

/// A change of a setting that is read at the start alone, refused at admission or ignored at run time.
#[derive(Clone, Copy, Debug)]
pub struct ImmutableChange<'a> {
    /// Namespace of the ConfigMap.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its UID, where it is known.
    pub uid: Option<&'a str>,
    /// Which settings, and what became of them.
    pub note: &'a str,
    /// The pod that reports.
    pub reporter: Option<&'a str>,
    /// When it happened.
    pub at: Timestamp,
}

/// The event `ImmutableConfigChangeRejected` on the ConfigMap.
#[must_use]
pub fn immutable_change(change: &ImmutableChange<'_>) -> Event {
    event(&News {
        regarding: reference(("v1", "ConfigMap"), (change.namespace, change.name), change.uid),
        warning: true,
        reason: "ImmutableConfigChangeRejected",
        action: "Reject",
        note: change.note,
        reporter: change.reporter,
        at: change.at,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(name: &str, text: &str) -> Event {
        event(&News {
            regarding: reference(("v1", "Pod"), ("b", name), None),
            warning: true,
            reason: "Stuck",
            action: "Decide",
            note: text,
            reporter: Some(text),
            at: Timestamp::UNIX_EPOCH,
        })
    }

    #[test]
    fn the_name_of_an_event_is_no_longer_than_the_api_takes() {
        let mut event = told(&format!("{}.b", "a".repeat(199)), "");
        name_by(&mut event, 1);
        assert_eq!(event.metadata.name, Some(format!("{}.0000000000000001", "a".repeat(199))));
        assert_eq!(event.metadata.generate_name, None);
    }

    #[test]
    fn what_is_too_long_for_the_api_is_cut_between_characters() {
        let event = told("a", &"ä".repeat(600));
        assert_eq!(event.note.map(|n| n.len()), Some(NOTE_BYTES));
        assert_eq!(event.reporting_instance.map(|n| n.len()), Some(REPORTER_BYTES));
        assert_eq!(event.metadata.generate_name.as_deref(), Some("a-"));
        assert_eq!(event.metadata.namespace.as_deref(), Some("b"));
    }
}
