//! Which release judges a variant: the one of its label, of its namespace, or the one without an instance.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use wva_testbed::eventually;
use wva_testbed::install::manifests::PROBE;

use super::{ALLOWED, FAULTS, LABEL, Releases, causes, faulty, labelled, refused};
use crate::support::{DEADLINE, dry_run_create, valid_spec, variant};

/// Asserts that the reviews of an update are those of one attempt, or of several equal ones. The API server repeats an
/// update with all its reviews, up to five times, when the object was written meanwhile, such as its status.
#[track_caller]
fn assert_rounds(reviews: [i64; 3], one: [i64; 3], what: &str) {
    let attempts = (1..=6).map(|attempts| one.map(|count| count * attempts));
    assert!(
        attempts.into_iter().any(|all| all == reviews),
        "{what}: {reviews:?}, and one attempt has {one:?}"
    );
}

pub(super) async fn each_release_judges_its_own_variants(releases: &Releases) -> anyhow::Result<()> {
    let namespace = releases.testbed.namespace("anywhere").await?;
    for (who, object) in [
        (0, labelled("of-a", "a")),
        (1, labelled("of-b", "b")),
        (2, variant("of-nobody", &valid_spec("of-nobody"))),
    ] {
        let wrong = faulty(object.clone());
        let (answer, reviews) =
            releases.judged(Box::pin(dry_run_create(&releases.client, &namespace, &wrong))).await?;
        let status = answer.err().with_context(|| format!("it was admitted: {wrong}"))?;
        ensure!(causes(&status) == FAULTS, "{wrong}: {status:?}");
        // The first refusal ends it: no second phase, and no other release.
        let mut wanted = [0; 3];
        wanted[who] = 1;
        assert_eq!(reviews, wanted, "{wrong}");
        let (created, reviews) = releases.judged(releases.create(&namespace, &object)).await?;
        created.success()?;
        wanted[who] = 2;
        assert_eq!(reviews, wanted, "{object}");
    }
    // Somebody's whom nobody knows: nobody judges it.
    let (answer, reviews) = releases
        .judged(Box::pin(dry_run_create(&releases.client, &namespace, &labelled("of-c", "c"))))
        .await?;
    ensure!(answer.is_ok() && reviews == [0; 3], "{answer:?} {reviews:?}");
    for (install, own) in releases.all().into_iter().zip(["of-a", "of-b", "of-nobody"]) {
        let log = install.process().log();
        let is_denial =
            |line: &&str| line.contains("Admission denied") && line.contains("VariantAutoscaling");
        let names: BTreeSet<String> = log
            .lines()
            .filter(is_denial)
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .filter_map(|line| Some(line["name"].as_str()?.to_owned()))
            .filter(|name| name != PROBE)
            .collect();
        assert_eq!(names, BTreeSet::from([own.to_owned()]), "{own}: the log tells of others");
    }
    Ok(())
}

pub(super) async fn unlabelled_variants_belong_to_the_namespace_owner(
    releases: &Releases,
) -> anyhow::Result<()> {
    let (of_a, of_b) = (releases.namespace_of("a").await?, releases.namespace_of("b").await?);
    releases.until_injected(&of_a).await?;
    let (created, reviews) =
        releases.judged(releases.create(&of_a, &variant("injected", &valid_spec("injected")))).await?;
    created.success()?;
    assert_eq!(releases.label_of(&of_a, "injected").await?, "a");
    // The release without an instance is asked before the label is there, and not again once it is.
    assert_eq!(reviews, [2, 0, 1], "injected");

    eventually("the label to be required", DEADLINE, async || {
        let answer =
            dry_run_create(&releases.client, &of_b, &variant("required", &valid_spec("required"))).await?;
        let status = answer.err().context("it was admitted without a label")?;
        ensure!(causes(&status) == [format!("metadata.labels[{LABEL}]")], "{status:?}");
        ensure!(status.message.contains("[WVA-VA-013]"), "{}", status.message);
        Ok(())
    })
    .await?;
    let required = variant("required", &valid_spec("required"));
    let (ran, reviews) = releases.judged(releases.create(&of_b, &required)).await?;
    refused(&ran, "WVA-VA-013")?;
    assert_eq!(reviews, [0, 1, 1], "required");
    // With its label it is admitted, in the namespace of whomever: the label counts and not the namespace.
    for (namespace, instance, wanted) in
        [(&of_b, "b", [0, 2, 0]), (&of_b, "a", [2, 0, 0]), (&of_a, "b", [0, 2, 0])]
    {
        let object = labelled(&format!("labelled-{instance}"), instance);
        let (ran, reviews) = releases.judged(releases.create(namespace, &object)).await?;
        ran.success()?;
        assert_eq!(reviews, wanted, "{instance} in {namespace}");
    }
    Ok(())
}

pub(super) async fn ownership_moves_only_with_the_annotation(releases: &Releases) -> anyhow::Result<()> {
    let namespace = releases.testbed.namespace("moving").await?;
    releases.create(&namespace, &labelled("mover", "a")).await?.success()?;
    let to = |label: Value| json!({"labels": {LABEL: label}});
    let allowed =
        |label: Value, allow: Value| json!({"labels": {LABEL: label}, "annotations": {ALLOWED: allow}});

    // To another instance, to one that nobody knows, to an empty one, and to none: it is seen by the one that would lose
    // it, or first by the one that would get it, and the first refusal ends it.
    for (label, wanted) in
        [(json!("b"), [1, 0, 0]), (json!("c"), [1, 0, 0]), (json!(""), [1, 0, 0]), (Value::Null, [0, 0, 1])]
    {
        let (ran, reviews) = releases.judged(releases.patch(&namespace, "mover", to(label.clone()))).await?;
        refused(&ran, if label == "" { "WVA-VA-012" } else { "WVA-VA-014" })?;
        assert_rounds(reviews, wanted, &label.to_string());
        assert_eq!(releases.label_of(&namespace, "mover").await?, "a");
    }
    // With the annotation, set by the same update, it moves; an annotation that stands there already opens nothing.
    releases.patch(&namespace, "mover", allowed(json!("b"), json!("true"))).await?.success()?;
    assert_eq!(releases.label_of(&namespace, "mover").await?, "b");
    let (ran, reviews) = releases.judged(releases.patch(&namespace, "mover", to(json!("a")))).await?;
    refused(&ran, "WVA-VA-014")?;
    assert_rounds(reviews, [1, 0, 0], "back to a, which is asked first");
    releases.patch(&namespace, "mover", json!({"annotations": {ALLOWED: null}})).await?.success()?;
    releases.patch(&namespace, "mover", allowed(Value::Null, json!("true"))).await?.success()?;
    assert_eq!(releases.label_of(&namespace, "mover").await?, Value::Null);
    // Nobody's may be adopted by anybody, who then judges it alone.
    releases.patch(&namespace, "mover", to(json!("b"))).await?.success()?;
    let (ran, reviews) =
        releases.judged(releases.patch(&namespace, "mover", json!({"labels": {"team": "x"}}))).await?;
    ran.success()?;
    assert_rounds(reviews, [0, 2, 0], "adopted by b");
    Ok(())
}
