//! Events of the last minutes. A repeat counts in the series of the first event and creates no other object.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use wva_runtime::age;

/// Maximum time between two events of a series, as in client-go.
const MAX_PAUSE: SignedDuration = SignedDuration::from_mins(6);
/// Most events that are remembered. Beyond that, the repeat of the oldest event is another object.
const MAX_EVENTS: usize = 500;

/// Written events that can become series. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct RecentEvents(Arc<Mutex<VecDeque<WrittenEvent>>>);

/// An event that the API server has.
#[derive(Clone, Debug)]
pub(super) struct WrittenEvent {
    /// Equal for all events of a series.
    content: Event,
    pub(super) name: String,
    count: i32,
    last: Timestamp,
}

impl WrittenEvent {
    /// `None` without a name or a time.
    pub(super) fn new(event: &Event, name: Option<String>) -> Option<Self> {
        Some(Self { content: content(event), name: name?, count: 1, last: event.event_time.as_ref()?.0 })
    }

    pub(super) fn series(&self) -> EventSeries {
        EventSeries { count: self.count, last_observed_time: MicroTime(self.last) }
    }
}

impl RecentEvents {
    /// Removes and returns the event that this one repeats, with the repeat in its series.
    pub(super) fn take(&self, repeat: &Event) -> Option<WrittenEvent> {
        let (content, at) = (content(repeat), repeat.event_time.as_ref()?.0);
        let mut all = self.all();
        all.retain(|event| age(event.last, at) < MAX_PAUSE);
        let index = all.iter().position(|event| event.content == content)?;
        let first = all.remove(index)?;
        Some(WrittenEvent { count: first.count.saturating_add(1), last: at, ..first })
    }

    pub(super) fn add(&self, event: WrittenEvent) {
        let mut all = self.all();
        if all.len() == MAX_EVENTS {
            all.pop_front();
        }
        all.push_back(event);
    }

    fn all(&self) -> MutexGuard<'_, VecDeque<WrittenEvent>> {
        // No code panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The event without what differs between repeats.
fn content(event: &Event) -> Event {
    Event { metadata: ObjectMeta::default(), event_time: None, ..event.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(note: usize) -> Event {
        let event_time = Some(MicroTime(Timestamp::UNIX_EPOCH));
        Event { note: Some(note.to_string()), event_time, ..Event::default() }
    }

    #[test]
    fn the_oldest_events_are_forgotten() {
        let recent = RecentEvents::default();
        for note in 0..=MAX_EVENTS {
            recent.add(WrittenEvent::new(&event(note), Some("name".to_owned())).unwrap());
        }
        assert_eq!(recent.all().len(), MAX_EVENTS);
        assert!(recent.take(&event(0)).is_none());
        assert_eq!(recent.take(&event(1)).map(|event| event.series().count), Some(2));
        assert!(recent.take(&event(1)).is_none(), "it belongs to the caller");
    }
}
