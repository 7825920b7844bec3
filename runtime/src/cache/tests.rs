//! After any order of events, a cache equals one that is built from kube's own store.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::reflector::store;
use proptest::prelude::*;

use super::*;

/// Cached value in these tests. The part after a `/` does not concern the engine.
type Text = Arc<str>;

fn object(namespace: &str, name: &str, text: &str) -> ConfigMap {
    let mut object = ConfigMap::default();
    object.metadata.namespace = Some(namespace.to_owned());
    object.metadata.name = Some(name.to_owned());
    object.data = Some([("text".to_owned(), text.to_owned())].into());
    object
}

fn read(object: &ConfigMap) -> Text {
    object.data.iter().flatten().map(|(_, text)| text.as_str()).collect::<String>().into()
}

fn same(a: &Text, b: &Text) -> bool {
    a.split('/').next() == b.split('/').next()
}

fn writer() -> Writer<ConfigMap, Text> {
    Writer::new(Projection { read, is_same: Some(same) })
}

#[test]
fn finds_values_by_namespace_and_name_until_deleted() {
    let mut writer = writer();
    let cache = writer.reader();
    for (namespace, name) in [("b", "x"), ("a", "y"), ("a", "x"), ("", "x")] {
        writer.apply(&Event::Apply(object(namespace, name, &format!("{namespace}.{name}"))));
    }
    assert_eq!(cache.get("a", "x").as_deref(), Some("a.x"));
    assert_eq!(cache.get("a", "z"), None);
    assert_eq!(cache.values_in("a"), ["a.x", "a.y"].map(Text::from));
    assert_eq!(cache.all(), [".x", "a.x", "a.y", "b.x"].map(Text::from));
    writer.apply(&Event::Delete(object("b", "x", "")));
    assert_eq!(cache.get("b", "x"), None);
    let mut shown = Vec::new();
    cache.for_each(|namespace, name, _| shown.push(format!("{namespace}.{name}")));
    assert_eq!(shown, [".x", "a.x", "a.y"]);
}

#[test]
fn only_relevant_changes_need_a_cycle() {
    let mut writer = writer();
    let mut apply = |e: Event<ConfigMap>| writer.apply(&e);
    assert!(apply(Event::Apply(object("ns", "a", "1"))));
    assert!(!apply(Event::Apply(object("ns", "a", "1/later"))));
    assert!(apply(Event::Apply(object("ns", "a", "2"))));
    assert!(apply(Event::Delete(object("ns", "a", "2"))));
    assert!(!apply(Event::Delete(object("ns", "a", "2"))), "it is gone already");
}

#[test]
fn new_list_needs_a_cycle_only_if_it_differs() {
    let mut writer = writer();
    let mut list = |names: &[(&str, &str)]| {
        assert!(!writer.apply(&Event::Init));
        for (name, text) in names {
            assert!(!writer.apply(&Event::InitApply(object("ns", name, text))));
        }
        writer.apply(&Event::InitDone)
    };
    assert!(!list(&[]));
    assert!(list(&[("a", "1"), ("b", "1")]));
    assert!(!list(&[("a", "1/later"), ("b", "1")]));
    assert!(list(&[("a", "1")]));
    assert!(list(&[("c", "1")]));
    assert!(list(&[("c", "2")]));
}

#[test]
fn readers_see_old_list_until_new_one_is_complete() {
    let mut writer = writer();
    let cache = writer.reader();
    writer.apply(&Event::Apply(object("ns", "a", "a")));
    writer.apply(&Event::Init);
    writer.apply(&Event::InitApply(object("ns", "b", "b")));
    assert_eq!(cache.all(), [Text::from("a")]);
    // The list was interrupted: its objects are not part of the next one.
    writer.apply(&Event::Init);
    writer.apply(&Event::InitApply(object("ns", "c", "c")));
    writer.apply(&Event::InitDone);
    assert_eq!(cache.all(), [Text::from("c")]);
}

#[test]
fn projection_without_same_needs_no_cycle() {
    let mut writer = Writer::new(Projection { read, is_same: None });
    let list = [Event::Init, Event::InitApply(object("ns", "a", "1")), Event::InitDone];
    let later = [Event::Apply(object("ns", "a", "2")), Event::Delete(object("ns", "a", "2"))];
    for event in list.iter().chain(&later) {
        assert!(!writer.apply(event));
    }
}

/// A cache whose keys are the letters of the text. An object whose text holds a `-` is not kept.
fn indexed() -> Writer<ConfigMap, Text, char> {
    Writer::indexed(|object| {
        let text = read(object);
        (!text.contains('-')).then(|| Indexed { keys: text.chars().collect(), value: text })
    })
}

#[test]
fn finds_objects_by_key_within_their_namespace() {
    let mut writer = indexed();
    let cache = writer.reader();
    let found = |key| cache.values_by_key("ns", &key).join(" ");
    writer.apply(&Event::Init);
    for (namespace, name, text) in
        [("ns", "y", "bc"), ("ns", "x", "ab"), ("ns", "z", "-b"), ("other", "x", "b")]
    {
        writer.apply(&Event::InitApply(object(namespace, name, text)));
    }
    assert_eq!((found('b'), cache.has_any_in("ns")), (String::new(), false), "the list is not complete yet");
    writer.apply(&Event::InitDone);
    assert_eq!([found('a'), found('b'), found('d')], ["ab", "ab bc", ""]);
    assert_eq!(cache.other_name_by_key("ns", &'b', "x").as_deref(), Some("y"));
    assert_eq!(cache.other_name_by_key("ns", &'a', "x"), None, "an object is not compared with itself");
    writer.apply(&Event::Apply(object("ns", "x", "d")));
    assert_eq!([found('a'), found('b'), found('d')], ["", "bc", "d"]);
    writer.apply(&Event::Delete(object("ns", "y", "")));
    writer.apply(&Event::Apply(object("ns", "x", "-")));
    assert_eq!((found('b'), found('d'), cache.has_any_in("ns")), (String::new(), String::new(), false));
}

fn any_object() -> impl Strategy<Value = ConfigMap> {
    ("[ab]", "[a-c]", "[abc-]{0,3}").prop_map(|(namespace, name, text)| object(&namespace, &name, &text))
}

/// Events of a watch: single changes, and lists that may be interrupted.
fn events() -> impl Strategy<Value = Vec<Event<ConfigMap>>> {
    let list = (proptest::collection::vec(any_object(), 0..6), any::<bool>()).prop_map(|(objects, whole)| {
        let shown = objects.into_iter().map(Event::InitApply);
        [Event::Init].into_iter().chain(shown).chain(whole.then_some(Event::InitDone)).collect::<Vec<_>>()
    });
    let change = prop_oneof![
        3 => any_object().prop_map(|o| vec![Event::Apply(o)]),
        1 => any_object().prop_map(|o| vec![Event::Delete(o)]),
        1 => list,
    ];
    proptest::collection::vec(change, 0..30).prop_map(|changes| changes.into_iter().flatten().collect())
}

proptest! {
    #[test]
    fn cache_always_equals_one_built_from_the_store(events in events()) {
        let mut reflected = store::Writer::<ConfigMap>::default();
        let store = reflected.as_reader();
        let mut writer = indexed();
        for event in events {
            reflected.apply_watcher_event(&event);
            writer.apply(&event);
            let mut rebuilt = indexed();
            for object in store.state() {
                rebuilt.apply(&Event::Apply((*object).clone()));
            }
            prop_assert_eq!(&*writer.cache.entries(), &*rebuilt.cache.entries());
        }
    }
}
