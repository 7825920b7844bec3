//! Which release judges a variant: that of its label, that of its namespace, or the one without an instance.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use wva_testbed::eventually;
use wva_testbed::install::manifests::PROBE;

use super::{ALLOWED, LABEL, Releases, VIOLATIONS, assert_denied, cause_fields, variant_of, with_violations};
use crate::support::{DEADLINE, dry_run_create, valid_spec, variant};

/// Asserts that the reviews of an update are those of one attempt, or of several equal ones. The API server repeats an
/// update with all its reviews, up to five times, when the object was written meanwhile, such as its status.
#[track_caller]
fn assert_equal_rounds(reviews: [i64; 3], one: [i64; 3], what: &str) {
    let attempts = (1..=6).map(|attempts| one.map(|count| count * attempts));
    assert!(
        attempts.into_iter().any(|all| all == reviews),
        "{what}: {reviews:?}, and one attempt has {one:?}"
    );
}

pub(super) async fn each_release_judges_its_own_variants(releases: &Releases) -> anyhow::Result<()> {
    let namespace = releases.testbed.namespace("anywhere").await?;
    for (index, object) in [
        (0, variant_of("of-a", "a")),
        (1, variant_of("of-b", "b")),
        (2, variant("without-owner", &valid_spec("without-owner"))),
    ] {
        let wrong = with_violations(object.clone());
        let (answer, reviews) = releases
            .count_variant_reviews(Box::pin(dry_run_create(&releases.client, &namespace, &wrong)))
            .await?;
        let status = answer.err().with_context(|| format!("it was admitted: {wrong}"))?;
        ensure!(cause_fields(&status) == VIOLATIONS, "{wrong}: {status:?}");
        // The first denial ends it: no second phase, and no other release.
        let mut wanted = [0; 3];
        wanted[index] = 1;
        assert_eq!(reviews, wanted, "{wrong}");
        let (created, reviews) = releases.count_variant_reviews(releases.create(&namespace, &object)).await?;
        created.success()?;
        wanted[index] = 2;
        assert_eq!(reviews, wanted, "{object}");
    }
    // No release has this instance, so no release judges the variant.
    let (answer, reviews) = releases
        .count_variant_reviews(Box::pin(dry_run_create(
            &releases.client,
            &namespace,
            &variant_of("of-c", "c"),
        )))
        .await?;
    ensure!(answer.is_ok() && reviews == [0; 3], "{answer:?} {reviews:?}");
    for (install, own) in releases.all().into_iter().zip(["of-a", "of-b", "without-owner"]) {
        let log = install.process().log();
        let denials = log
            .lines()
            .filter(|line| line.contains("Admission denied") && line.contains("VariantAutoscaling"));
        let names: BTreeSet<String> = denials
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .filter_map(|line| Some(line["name"].as_str()?.to_owned()))
            .filter(|name| name != PROBE)
            .collect();
        assert_eq!(names, BTreeSet::from([own.to_owned()]), "{own}: the log has denials of other releases");
    }
    Ok(())
}

pub(super) async fn unlabelled_variants_belong_to_the_namespace_owner(
    releases: &Releases,
) -> anyhow::Result<()> {
    let (of_a, of_b) =
        (releases.namespace_of_instance("a").await?, releases.namespace_of_instance("b").await?);
    releases.wait_until_injected(&of_a).await?;
    let (created, reviews) = releases
        .count_variant_reviews(releases.create(&of_a, &variant("injected", &valid_spec("injected"))))
        .await?;
    created.success()?;
    assert_eq!(releases.label_of(&of_a, "injected").await?, "a");
    // The release without an instance is called before the label is injected, and not after.
    assert_eq!(reviews, [2, 0, 1], "injected");

    eventually("the label to be required", DEADLINE, async || {
        let answer =
            dry_run_create(&releases.client, &of_b, &variant("required", &valid_spec("required"))).await?;
        let status = answer.err().context("it was admitted without a label")?;
        ensure!(cause_fields(&status) == [format!("metadata.labels[{LABEL}]")], "{status:?}");
        ensure!(status.message.contains("[WVA-VA-013]"), "{}", status.message);
        Ok(())
    })
    .await?;
    let required = variant("required", &valid_spec("required"));
    let (ran, reviews) = releases.count_variant_reviews(releases.create(&of_b, &required)).await?;
    assert_denied(&ran, "WVA-VA-013")?;
    assert_eq!(reviews, [0, 1, 1], "required");
    // With its label it is admitted in any namespace: the label counts, not the namespace.
    for (namespace, instance, wanted) in
        [(&of_b, "b", [0, 2, 0]), (&of_b, "a", [2, 0, 0]), (&of_a, "b", [0, 2, 0])]
    {
        let object = variant_of(&format!("labelled-{instance}"), instance);
        let (ran, reviews) = releases.count_variant_reviews(releases.create(namespace, &object)).await?;
        ran.success()?;
        assert_eq!(reviews, wanted, "{instance} in {namespace}");
    }
    Ok(())
}

pub(super) async fn ownership_moves_only_with_the_annotation(releases: &Releases) -> anyhow::Result<()> {
    let namespace = releases.testbed.namespace("moving").await?;
    releases.create(&namespace, &variant_of("mover", "a")).await?.success()?;
    let to = |label: Value| json!({"labels": {LABEL: label}});
    let allowed =
        |label: Value, allow: Value| json!({"labels": {LABEL: label}, "annotations": {ALLOWED: allow}});

    // To another instance, an unknown one, an empty one and none: the old owner reviews it, or the new owner first, and
    // the first denial ends it.
    for (label, wanted) in
        [(json!("b"), [1, 0, 0]), (json!("c"), [1, 0, 0]), (json!(""), [1, 0, 0]), (Value::Null, [0, 0, 1])]
    {
        let (ran, reviews) =
            releases.count_variant_reviews(releases.patch(&namespace, "mover", to(label.clone()))).await?;
        assert_denied(&ran, if label == "" { "WVA-VA-012" } else { "WVA-VA-014" })?;
        assert_equal_rounds(reviews, wanted, &label.to_string());
        assert_eq!(releases.label_of(&namespace, "mover").await?, "a");
    }
    // The annotation must be set by the same update; one that is already there does not count.
    releases.patch(&namespace, "mover", allowed(json!("b"), json!("true"))).await?.success()?;
    assert_eq!(releases.label_of(&namespace, "mover").await?, "b");
    let (ran, reviews) =
        releases.count_variant_reviews(releases.patch(&namespace, "mover", to(json!("a")))).await?;
    assert_denied(&ran, "WVA-VA-014")?;
    assert_equal_rounds(reviews, [1, 0, 0], "back to a, which is called first");
    releases.patch(&namespace, "mover", json!({"annotations": {ALLOWED: null}})).await?.success()?;
    releases.patch(&namespace, "mover", allowed(Value::Null, json!("true"))).await?.success()?;
    assert_eq!(releases.label_of(&namespace, "mover").await?, Value::Null);
    // A variant without an owner may be adopted by any instance, which then judges it alone.
    releases.patch(&namespace, "mover", to(json!("b"))).await?.success()?;
    let (ran, reviews) = releases
        .count_variant_reviews(releases.patch(&namespace, "mover", json!({"labels": {"team": "x"}})))
        .await?;
    ran.success()?;
    assert_equal_rounds(reviews, [0, 2, 0], "adopted by b");
    Ok(())
}
