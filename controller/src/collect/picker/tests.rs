//! Which pickers are asked from one look to the next.

use super::*;

/// A picker that is asked by this task.
fn asked_by(task: impl Future<Output = ()> + Send + 'static, query: PickerQuery) -> Asked {
    let (query, (_, answers)) = (watch::channel(Arc::new(query)).0, watch::channel(Answers::default()));
    let (since, end) = (Instant::now(), CancellationToken::new().drop_guard());
    Asked { query, answers, since, task: tokio::spawn(task), _end: end }
}

#[tokio::test]
async fn one_whose_task_broke_off_is_asked_anew() {
    let key = PickerKey { namespace: "ns".into(), service: "epp".into() };
    let query = |model: &str| PickerQuery { models: [model.to_owned()].into(), ..PickerQuery::default() };
    let want = |model: &str| [(key.clone(), query(model))].into();
    let (mut asked, begun) = (BTreeMap::new(), std::cell::Cell::new(0));
    let mut turn = |model: &str| {
        update(&mut asked, want(model), |_, query| {
            begun.set(begun.get() + 1);
            let first = begun.get() == 1;
            asked_by(
                async move {
                    assert!(!first, "the first one panics");
                    std::future::pending::<()>().await;
                },
                query,
            )
        });
        let models: Vec<String> = asked[&key].query.borrow().models.iter().cloned().collect();
        (begun.get(), models.concat())
    };
    assert_eq!(turn("a"), (1, "a".into()));
    // Tasks of this runtime take turns: the first one has ended after that.
    tokio::spawn(async {}).await.unwrap();
    assert_eq!(turn("a"), (2, "a".into()));
    assert_eq!(turn("b"), (2, "b".into()), "the second one goes on");
}
