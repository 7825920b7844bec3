//! Watch of the ServiceMonitor of the controller's own metrics.

use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::watcher::Event;
use tokio::sync::watch;
use wva_runtime::cache::Projection;
use wva_runtime::optional::OptionalWatch;
use wva_runtime::watch::{Observer, WatchScope, config};

/// Watches one object by name. The value is its uid.
pub fn watch_service_monitor(
    scope: &mut WatchScope<'_>,
    namespace: &str,
    name: &str,
) -> watch::Receiver<Option<String>> {
    let (sender, present) = watch::channel(None);
    let kind = GroupVersionKind::gvk("monitoring.coreos.com", "v1", "ServiceMonitor");
    let resource = ApiResource::from_gvk(&kind);
    let watch = OptionalWatch {
        task: "watch of the ServiceMonitor",
        name: "servicemonitors.monitoring.coreos.com",
        api: Api::namespaced_with(scope.client.clone(), namespace, &resource),
        config: config().fields(&format!("metadata.name={name}")),
    };
    scope.watch_optional(watch, Projection { read: |_| (), is_same: None }, observe_uid(sender));
    present
}

fn observe_uid(sender: watch::Sender<Option<String>>) -> Observer<DynamicObject> {
    let mut listed = None;
    let uid = |object: &DynamicObject| object.metadata.uid.clone().unwrap_or_default();
    Box::new(move |event| {
        let present = match event {
            Event::Init => {
                listed = None;
                return;
            }
            Event::InitApply(object) => {
                listed = Some(uid(object));
                return;
            }
            Event::InitDone => listed.take(),
            Event::Apply(object) => object.metadata.deletion_timestamp.is_none().then(|| uid(object)),
            Event::Delete(_) => None,
        };
        sender.send_if_modified(|now| {
            let changed = *now != present;
            *now = present;
            changed
        });
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn notices_absence_by_deletion_and_by_a_new_list() {
        let object = || -> DynamicObject {
            serde_json::from_value(json!({"apiVersion": "monitoring.coreos.com/v1", "kind": "ServiceMonitor", "metadata": {"name": "m", "uid": "u"}}))
                .unwrap()
        };
        let (sender, present) = watch::channel(None);
        let mut observe = observe_uid(sender);
        for (event, is_there) in [
            (Event::Init, false),
            (Event::InitDone, false),
            (Event::Apply(object()), true),
            (Event::Delete(object()), false),
            (Event::Init, false),
            (Event::InitApply(object()), false),
            (Event::InitDone, true),
            (Event::Init, true),
            (Event::InitDone, false),
        ] {
            observe(&event);
            assert_eq!(present.borrow().as_deref(), is_there.then_some("u"), "{event:?}");
        }
    }
}
