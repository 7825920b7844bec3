//! CAs whose time is over, or has not come: a clock that stood still, and one that was set back.

use super::*;

#[test]
fn an_expired_ca_makes_way() {
    let (k, n, f) = (ca(Duration::from_hours(1)), ca(LIFE), ca(LIFE));
    let expired = Why::Expired { entry: CA_CERT, not_after: hours(1) };
    let row = |what, secret: Option<CaSet>, known, now, change, after| {
        let secret = secret.map(|set| set.to_secret_data());
        Row { what, secret, known, now, trusted: None, change: Some(change), after }
    };
    let rows = [
        row(
            "the next one is good",
            Some(set(&k, Some(&n), &[])),
            Some(set(&k, Some(&n), &[])),
            hours(1),
            // It lingers, so that a replica whose clock is slow does not write it back.
            Change::PromotedAtOnce(expired.clone()),
            (Some(&n), After::Nobody, vec![&k]),
        ),
        row(
            "the next one is good, and it was long ago",
            Some(set(&k, Some(&n), &[])),
            None,
            hours(2),
            Change::PromotedAtOnce(expired.clone()),
            (Some(&n), After::Nobody, vec![]),
        ),
        row(
            "no next one",
            Some(set(&k, None, &[])),
            Some(set(&k, None, &[])),
            hours(2),
            Change::Replaced(expired.clone()),
            (None, After::Nobody, vec![]),
        ),
        row(
            "the next one is remembered",
            Some(set(&k, None, &[])),
            Some(set(&k, Some(&n), &[])),
            hours(2),
            Change::PromotedAtOnce(expired),
            (Some(&n), After::Nobody, vec![]),
        ),
        row(
            "deleted",
            None,
            Some(set(&k, Some(&n), &[])),
            hours(2),
            Change::PromotedAtOnce(Why::NoSecret),
            (Some(&n), After::Nobody, vec![]),
        ),
        row(
            "deleted, nothing good",
            None,
            Some(set(&k, None, &[])),
            hours(2),
            Change::Created,
            (None, After::Nobody, vec![]),
        ),
    ];
    rows.iter().for_each(check);
    // A replica that knows an expired CA takes another as it is.
    let (after, secret) = ((None, After::Nobody, vec![]), Some(set(&f, None, &[]).to_secret_data()));
    let known = Some(set(&k, None, &[]));
    check(&Row { what: "another", secret, known, now: hours(2), trusted: None, change: None, after });
}

#[test]
fn a_clock_that_is_set_back_costs_one_change_and_no_trust() {
    // Made by a clock that ran ahead: not valid before start() + 1 h.
    let early = || Arc::new(Ca::generate(LIFE, hours(2)).unwrap());
    let (x, n, k) = (early(), early(), ca(LIFE));
    let too_early = |entry| Why::NotYetValid { entry, not_before: hours(1) };
    let row = |what, secret: Option<CaSet>, known: Option<CaSet>, change, after| Row {
        what,
        secret: secret.map(|set| set.to_secret_data()),
        known,
        now: start(),
        trusted: None,
        change: Some(change),
        after,
    };
    let alone = || Some(set(&x, None, &[]));
    let replaced = || Change::Replaced(too_early(CA_CERT));
    let at_once = || Change::PromotedAtOnce(too_early(CA_CERT));
    let rows = [
        row("known", alone(), alone(), replaced(), (None, After::Nobody, vec![&x])),
        row("not known: others may sign with it", alone(), None, replaced(), (None, After::Nobody, vec![&x])),
        row(
            "the next one is good",
            Some(set(&x, Some(&k), &[])),
            alone(),
            at_once(),
            (Some(&k), After::Nobody, vec![&x]),
        ),
        row(
            "the next one is remembered",
            alone(),
            Some(set(&x, Some(&k), &[])),
            at_once(),
            (Some(&k), After::Nobody, vec![&x]),
        ),
        row(
            "the next one is too early as well",
            Some(set(&x, Some(&n), &[])),
            Some(set(&x, Some(&n), &[])),
            replaced(),
            (None, After::Nobody, vec![&x, &n]),
        ),
        row("deleted", None, alone(), Change::Created, (None, After::Nobody, vec![&x])),
        row(
            "promoted by another, whose clock runs ahead",
            Some(set(&x, None, &[&k])),
            Some(set(&k, Some(&x), &[])),
            Change::Restored(too_early(CA_CERT)),
            (Some(&k), After::Fresh, vec![&x]),
        ),
        Row {
            trusted: Some(vec![&k]),
            ..row(
                "the leader announces one that is valid",
                Some(set(&k, Some(&x), &[])),
                Some(set(&k, Some(&x), &[])),
                Change::AnnouncedAgain(too_early(NEXT_CA_CERT)),
                (Some(&k), After::Fresh, vec![&x]),
            )
        },
    ];
    rows.iter().for_each(check);
    // Whoever looks on with a right clock finds its CA among those that are trusted, and gives way.
    let fresh = Arc::new(Ca::generate(LIFE, start()).unwrap());
    let (secret, after) = (Some(set(&fresh, None, &[&x]).to_secret_data()), (None, After::Nobody, vec![]));
    check(&Row {
        what: "another clock",
        secret,
        known: alone(),
        now: hours(2),
        trusted: None,
        change: None,
        after,
    });
}
