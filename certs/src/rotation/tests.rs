//! Every decision as a table, and the law as a property: over any order of looks, steps, deaths, spoilt Secrets and
//! time, whoever was trusted stays trusted.

mod law;
mod validity;

use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::ByteString;

use super::*;
use crate::set::{CA_CERT, CA_KEY, Data, NEXT_CA_CERT, NEXT_CA_KEY, PREVIOUS_CA_CERT};

/// Every CA of the table lives for so long, but for those of an hour.
const LIFE: Duration = Duration::from_hours(30);

fn start() -> Timestamp {
    "2026-11-20T12:00:00Z".parse().unwrap()
}

fn hours(hours: i64) -> Timestamp {
    start() + SignedDuration::from_hours(hours)
}

fn ca(life: Duration) -> Arc<Ca> {
    Arc::new(Ca::generate(life, start()).unwrap())
}

fn set(current: &Arc<Ca>, next: Option<&Arc<Ca>>, previous: &[&Arc<Ca>]) -> CaSet {
    let previous = previous.iter().map(|ca| ca.cert().clone()).collect();
    CaSet { current: current.clone(), next: next.cloned(), previous }
}

struct Row<'a> {
    what: &'static str,
    secret: Option<Data>,
    known: Option<CaSet>,
    now: Timestamp,
    /// `None`: a follower.
    trusted: Option<Vec<&'a Arc<Ca>>>,
    change: Option<Change>,
    /// Who is current, next and previous then. `None`: a CA that was not there before.
    after: (Option<&'a Arc<Ca>>, After<'a>, Vec<&'a Arc<Ca>>),
}

#[derive(Clone, Copy)]
enum After<'a> {
    Nobody,
    Fresh,
    Is(&'a Arc<Ca>),
}

#[track_caller]
fn check(row: &Row<'_>) {
    let what = row.what;
    let found = row.secret.as_ref().map(|data| Found::read(data, row.now));
    let trusted: Vec<_> = row.trusted.iter().flatten().map(|ca| ca.cert().der().clone()).collect();
    let role = if row.trusted.is_some() { Role::Leader { trusted: &trusted } } else { Role::Follower };
    let looker = Looker { known: row.known.as_ref(), seasoned: true, role };
    let sight = Sight { found: found.as_ref(), looker, now: row.now };
    assert_eq!(decide(sight), row.change, "{what}");
    let Some(change) = &row.change else { return };
    let fresh = Ca::generate(LIFE, row.now).unwrap();
    let fresh_cert = fresh.cert().clone();
    let set = sight.after(change, || Ok(fresh)).unwrap();
    let (current, next, previous) = &row.after;
    assert_eq!(set.current.cert(), current.map_or(&fresh_cert, |ca| ca.cert()), "{what}: current");
    let next = match next {
        After::Nobody => None,
        After::Fresh => Some(&fresh_cert),
        After::Is(ca) => Some(ca.cert()),
    };
    assert_eq!(set.next.as_ref().map(|ca| ca.cert()), next, "{what}: next");
    let previous: Vec<_> = previous.iter().map(|ca| ca.cert().clone()).collect();
    assert_eq!(set.previous, previous, "{what}: previous");
    assert_ne!(Some(set.to_secret_data()), row.secret, "{what}: what is there is not written again");
    // Whoever looks again, knowing the result, finds nothing to do.
    let found = Found::read(&set.to_secret_data(), row.now);
    let looker = Looker { known: Some(&set), seasoned: true, role: Role::Follower };
    let again = Sight { found: Some(&found), looker, now: row.now };
    assert_eq!(decide(again), None, "{what}: a second look");
}

fn spoil(set: &CaSet, entry: &str, value: &str) -> Data {
    let mut data = set.to_secret_data();
    data.insert(entry.to_owned(), ByteString(value.as_bytes().to_vec()));
    data
}

#[test]
fn who_knows_a_ca_never_lets_go_of_it_at_once() {
    let (k, n, p, f) = (ca(LIFE), ca(LIFE), ca(LIFE), ca(LIFE));
    let known = || Some(set(&k, None, &[&p]));
    let garbage = Why::NotACertificate { entry: CA_CERT };
    let row = |what, secret, known, change, after| Row {
        what,
        secret,
        known,
        now: start(),
        trusted: None,
        change: Some(change),
        after,
    };
    let rows = [
        row("deleted", None, known(), Change::Restored(Why::NoSecret), (Some(&k), After::Fresh, vec![&p])),
        row(
            "deleted in a rotation",
            None,
            Some(set(&k, Some(&n), &[])),
            Change::Restored(Why::NoSecret),
            (Some(&k), After::Is(&n), vec![]),
        ),
        row(
            "emptied",
            Some(Data::new()),
            known(),
            Change::Restored(Why::Missing { entry: CA_CERT }),
            (Some(&k), After::Fresh, vec![&p]),
        ),
        row(
            "garbage",
            Some(spoil(&set(&k, Some(&n), &[]), CA_CERT, "garbage")),
            known(),
            Change::Restored(garbage.clone()),
            (Some(&k), After::Is(&n), vec![&p]),
        ),
        row(
            "another's key",
            Some(spoil(&set(&k, None, &[]), CA_KEY, &f.key_pem())),
            known(),
            Change::Restored(Why::KeyMismatch { entry: CA_KEY }),
            (Some(&k), After::Fresh, vec![&p]),
        ),
        row(
            "another good CA",
            Some(set(&f, None, &[]).to_secret_data()),
            known(),
            Change::Restored(Why::Unannounced),
            (Some(&k), After::Is(&f), vec![&p]),
        ),
        row(
            "another good CA in a rotation",
            Some(set(&f, Some(&n), &[]).to_secret_data()),
            Some(set(&k, Some(&n), &[])),
            Change::Restored(Why::Unannounced),
            (Some(&k), After::Is(&f), vec![&n]),
        ),
        row(
            "an old Secret from a backup, with what is known as the next one and without a current one",
            Some(spoil(&set(&p, Some(&k), &[]), CA_CERT, "garbage")),
            known(),
            Change::PromotedAtOnce(garbage.clone()),
            (Some(&k), After::Nobody, vec![&p]),
        ),
        row("nothing, and nobody knows", None, None, Change::Created, (None, After::Nobody, vec![])),
        row(
            "garbage, and nobody knows",
            Some(spoil(&set(&k, None, &[&p]), CA_CERT, "garbage")),
            None,
            // The earlier one neither, for whoever still uses it would take the new one for announced.
            Change::Replaced(garbage),
            (None, After::Nobody, vec![]),
        ),
        row(
            "no key, and nobody knows",
            Some(spoil(&set(&k, None, &[]), CA_KEY, "")),
            None,
            // Not in the Secret, so that a replica that still has the key writes it back.
            Change::Replaced(Why::Missing { entry: CA_KEY }),
            (None, After::Nobody, vec![]),
        ),
        row(
            "no key, and the next one is good",
            Some(spoil(&set(&k, Some(&n), &[]), CA_KEY, "")),
            None,
            Change::PromotedAtOnce(Why::Missing { entry: CA_KEY }),
            (Some(&n), After::Nobody, vec![]),
        ),
    ];
    rows.iter().for_each(check);
}

#[test]
fn what_is_found_is_taken_where_the_known_ca_stands_in_it() {
    let (k, n, f) = (ca(LIFE), ca(LIFE), ca(LIFE));
    let rows = [
        ("a fresh start", set(&f, None, &[]), None),
        ("the same", set(&k, None, &[]), Some(set(&k, None, &[]))),
        ("announced by another", set(&k, Some(&n), &[]), Some(set(&k, None, &[]))),
        ("promoted by another", set(&n, None, &[&k]), Some(set(&k, Some(&n), &[]))),
        ("promoted unseen, twice", set(&f, None, &[&n, &k]), Some(set(&k, None, &[]))),
        ("another replica's repair", set(&k, Some(&f), &[]), Some(set(&f, None, &[]))),
    ];
    for (what, secret, known) in rows {
        let after = (None, After::Nobody, vec![]);
        let secret = Some(secret.to_secret_data());
        check(&Row { what, secret, known, now: start(), trusted: None, change: None, after });
    }
}

#[test]
fn who_missed_a_rotation_does_not_take_what_replaced_its_outcome() {
    let (k, n) = (ca(LIFE), ca(LIFE));
    let spoilt = Found::read(&spoil(&set(&n, None, &[&k]), CA_CERT, "garbage"), start());
    let stranger = Looker { known: None, seasoned: false, role: Role::Follower };
    let sight = Sight { found: Some(&spoilt), looker: stranger, now: start() };
    let change = decide(sight).unwrap();
    let fresh = || Ok(Ca::generate(LIFE, start()).unwrap());
    let replaced = Found::read(&sight.after(&change, fresh).unwrap().to_secret_data(), start());
    let before = set(&k, Some(&n), &[]);
    let looker = Looker { known: Some(&before), seasoned: true, role: Role::Follower };
    let sight = Sight { found: Some(&replaced), looker, now: start() };
    assert_eq!(decide(sight), Some(Change::Restored(Why::Unannounced)));
}

#[test]
fn one_that_has_just_started_takes_another_good_ca() {
    let (mine, theirs) = (set(&ca(LIFE), None, &[]), set(&ca(LIFE), None, &[]));
    let found = Found::read(&theirs.to_secret_data(), start());
    let sight = |seasoned| {
        let looker = Looker { known: Some(&mine), seasoned, role: Role::Follower };
        Sight { found: Some(&found), looker, now: start() }
    };
    assert_eq!(decide(sight(false)), None);
    assert_eq!(decide(sight(true)), Some(Change::Restored(Why::Unannounced)));
}

#[test]
fn the_three_steps_are_the_leaders() {
    let (k, n, p) = (ca(LIFE), ca(LIFE), ca(Duration::from_hours(1)));
    let plain = |secret: &CaSet| Some(secret.to_secret_data());
    let lead = |what, secret, now, trusted: &[&'static str], change, after| {
        let all = [("k", &k), ("n", &n)];
        let trusted = all.iter().filter(|(name, _)| trusted.contains(name)).map(|(_, ca)| *ca).collect();
        Row { what, secret, known: None, now, trusted: Some(trusted), change, after }
    };
    let nothing = || (None, After::Nobody, vec![]);
    let announced = set(&k, Some(&n), &[]);
    let garbage = Why::NotACertificate { entry: NEXT_CA_CERT };
    let rows = [
        lead("not due", plain(&set(&k, None, &[])), hours(19), &["k"], None, nothing()),
        lead(
            "due",
            plain(&set(&k, None, &[])),
            hours(20),
            &["k"],
            Some(Change::Announced),
            (Some(&k), After::Fresh, vec![]),
        ),
        lead("not seen", plain(&announced), hours(20), &["k"], None, nothing()),
        lead("the current one not seen", plain(&announced), hours(20), &["n"], None, nothing()),
        lead(
            "seen",
            plain(&announced),
            hours(20),
            &["k", "n"],
            Some(Change::Promoted),
            (Some(&n), After::Nobody, vec![&k]),
        ),
        lead(
            "the next one spoilt",
            Some(spoil(&announced, NEXT_CA_CERT, "garbage")),
            hours(20),
            &["k"],
            Some(Change::AnnouncedAgain(garbage)),
            (Some(&k), After::Fresh, vec![]),
        ),
        lead(
            "the next one's key spoilt",
            Some(spoil(&announced, NEXT_CA_KEY, "")),
            hours(1),
            &["k"],
            Some(Change::AnnouncedAgain(Why::Missing { entry: NEXT_CA_KEY })),
            (Some(&k), After::Fresh, vec![]),
        ),
        lead("in use", plain(&set(&k, None, &[&p])), start(), &[], None, nothing()),
        lead(
            "expired",
            plain(&set(&k, None, &[&p])),
            hours(2),
            &[],
            Some(Change::Forgot),
            (Some(&k), After::Nobody, vec![]),
        ),
        lead(
            "garbage as previous",
            Some(spoil(&announced, PREVIOUS_CA_CERT, "garbage")),
            start(),
            &[],
            Some(Change::Dropped(Why::NotACertificate { entry: PREVIOUS_CA_CERT })),
            (Some(&k), After::Is(&n), vec![]),
        ),
    ];
    for row in &rows {
        check(row);
        let repair = row.change.as_ref().is_some_and(|c| matches!(c, Change::Restored(_)));
        if !repair {
            let (after, secret) = ((None, After::Nobody, vec![]), row.secret.clone());
            check(&Row {
                what: "a follower waits",
                secret,
                known: None,
                now: row.now,
                trusted: None,
                change: None,
                after,
            });
        }
    }
}

#[test]
fn what_is_told_names_the_step_or_the_fault() {
    let steps = [Change::Announced, Change::Promoted, Change::Forgot];
    for (n, step) in steps.iter().enumerate() {
        assert!(step.to_string().contains(&format!("step {} of 3", n + 1)) && !step.is_a_repair());
    }
    let told = Change::Restored(Why::KeyMismatch { entry: CA_KEY }).to_string();
    assert!(told.contains("the private key of entry ca.key does not match"), "{told}");
    assert!(Change::Restored(Why::NoSecret).is_a_repair());
}
