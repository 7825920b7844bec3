//! Tests of starting and restarting polling.

use super::*;

/// A picker that is polled by this task.
fn polled_by(task: impl Future<Output = ()> + Send + 'static, query: PickerQuery) -> PolledPicker {
    let (query, (_, answers)) = (watch::channel(Arc::new(query)).0, watch::channel(Answers::default()));
    let (since, end) = (Instant::now(), CancellationToken::new().drop_guard());
    PolledPicker { query, answers, since, task: tokio::spawn(task), _end: end }
}

#[tokio::test]
async fn restarts_a_panicked_task() {
    let key = PickerKey::service("ns", "epp");
    let query = |model: &str| PickerQuery { models: [model.to_owned()].into(), ..PickerQuery::default() };
    let want = |model: &str| [(key.clone(), query(model))].into();
    let (mut polled, started) = (BTreeMap::new(), std::cell::Cell::new(0));
    let mut apply = |model: &str| {
        apply_queries(&mut polled, want(model), |_, query| {
            started.set(started.get() + 1);
            let first = started.get() == 1;
            polled_by(
                async move {
                    assert!(!first, "the first task panics");
                    std::future::pending::<()>().await;
                },
                query,
            )
        });
        let models: Vec<String> = polled[&key].query.borrow().models.iter().cloned().collect();
        (started.get(), models.concat())
    };
    assert_eq!(apply("a"), (1, "a".into()));
    // On this single-threaded runtime the first task has ended by then.
    tokio::spawn(async {}).await.unwrap();
    assert_eq!(apply("a"), (2, "a".into()));
    assert_eq!(apply("b"), (2, "b".into()), "the second task continues");
}
