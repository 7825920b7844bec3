//! Table of decisions. `invariant` checks as a property that a trusted replica stays trusted.

mod invariant;
mod validity;

use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::ByteString;

use super::Change::{AnnouncedAgain, PromotedAtOnce, Replaced, Restored};
use super::*;
use crate::set::{CA_CERT, CA_KEY, Data, NEXT_CA_CERT, NEXT_CA_KEY, PREVIOUS_CA_CERT};

/// Default lifetime of the CAs in the table.
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

/// CAs by letter. A text such as `k>n<pq` is a set: current k, next n, previous p and q.
struct Cas(Vec<(char, Arc<Ca>)>);

impl Cas {
    fn with_life(letters: &str) -> Self {
        Self(letters.chars().map(|letter| (letter, ca(LIFE))).collect())
    }

    fn and(mut self, letter: char, ca: Arc<Ca>) -> Self {
        self.0.push((letter, ca));
        self
    }

    fn all(&self, letters: &str) -> impl Iterator<Item = Arc<Ca>> {
        letters.chars().map(|letter| self.0.iter().find(|(l, _)| *l == letter).unwrap().1.clone())
    }

    fn set(&self, text: &str) -> CaSet {
        let (text, previous) = text.split_once('<').unwrap_or((text, ""));
        let (current, next) = text.split_once('>').unwrap_or((text, ""));
        let previous = self.all(previous).map(|ca| ca.cert().clone()).collect();
        CaSet { current: self.all(current).next().unwrap(), next: self.all(next).next(), previous }
    }

    /// As text; `*` is a CA without a letter.
    fn text(&self, set: &CaSet) -> String {
        let letter =
            |cert| self.0.iter().find(|(_, ca)| ca.cert() == cert).map_or('*', |(letter, _)| *letter);
        let mut text = letter(set.current.cert()).to_string();
        text.extend(set.next.iter().flat_map(|ca| ['>', letter(ca.cert())]));
        text.extend((!set.previous.is_empty()).then_some('<'));
        text.extend(set.previous.iter().map(letter));
        text
    }

    #[expect(clippy::unnecessary_wraps, reason = "rows of tables have it next to an absent Secret")]
    fn secret(&self, text: &str) -> Option<Data> {
        Some(self.set(text).to_secret_data())
    }

    #[expect(clippy::unnecessary_wraps, reason = "rows of tables have it next to an absent Secret")]
    fn corrupted(&self, text: &str, entry: &str, value: &str) -> Option<Data> {
        let mut data = self.set(text).to_secret_data();
        data.insert(entry.to_owned(), ByteString(value.as_bytes().to_vec()));
        Some(data)
    }

    /// Checks the change of a follower, or of a leader with these trusted CAs, and the set that it writes.
    #[track_caller]
    fn check(
        &self,
        what: &str,
        secret: Option<&Data>,
        known: &str,
        (now, trusted): (Timestamp, Option<&str>),
        want: Option<(Change, &str)>,
    ) {
        let found = secret.map(|data| ParsedSecret::read(data, now));
        let certs: Vec<_> = self.all(trusted.unwrap_or_default()).map(|ca| ca.cert().der().clone()).collect();
        let role = trusted.map_or(Role::Follower, |_| Role::Leader { trusted: &certs });
        let known = (!known.is_empty()).then(|| self.set(known));
        let replica = ReplicaView { known: known.as_ref(), trusted_ca_established: true, role };
        let view = SecretView { found: found.as_ref(), replica, now };
        assert_eq!(decide(view).as_ref(), want.as_ref().map(|(change, _)| change), "{what}");
        let Some((change, after)) = want else { return };
        let set = view.set_after(&change, || Ok(Ca::generate(LIFE, now).unwrap())).unwrap();
        assert_eq!(self.text(&set), after, "{what}");
        assert_ne!(Some(&set.to_secret_data()), secret, "{what}: an identical write");
        // A second check that knows the result finds nothing to do.
        let found = ParsedSecret::read(&set.to_secret_data(), now);
        let replica = ReplicaView { known: Some(&set), trusted_ca_established: true, role: Role::Follower };
        let again = SecretView { found: Some(&found), replica, now };
        assert_eq!(decide(again), None, "{what}: a second check");
    }
}

#[test]
fn replica_never_drops_a_known_ca_at_once() {
    let cas = Cas::with_life("knpf");
    let corrupted = |text, entry, value| cas.corrupted(text, entry, value);
    let garbage = || CaFault::NotACertificate { entry: CA_CERT };
    let no_key = || CaFault::Missing { entry: CA_KEY };
    let other_key = cas.set("f").current.key_pem();
    let rows = [
        ("deleted", None, "k<p", Restored(CaFault::NoSecret), "k>*<p"),
        ("deleted in a rotation", None, "k>n", Restored(CaFault::NoSecret), "k>n"),
        ("emptied", Some(Data::new()), "k<p", Restored(CaFault::Missing { entry: CA_CERT }), "k>*<p"),
        ("garbage", corrupted("k>n", CA_CERT, "garbage"), "k<p", Restored(garbage()), "k>n<p"),
        (
            "another's key",
            corrupted("k", CA_KEY, &other_key),
            "k<p",
            Restored(CaFault::KeyMismatch { entry: CA_KEY }),
            "k>*<p",
        ),
        ("another good CA", cas.secret("f"), "k<p", Restored(CaFault::Unannounced), "k>f<p"),
        ("another good CA in a rotation", cas.secret("f>n"), "k>n", Restored(CaFault::Unannounced), "k>f<n"),
        // An old Secret from a backup, without a current CA.
        (
            "what is known as the next one",
            corrupted("p>k", CA_CERT, "garbage"),
            "k<p",
            PromotedAtOnce(garbage()),
            "k<p",
        ),
        ("nothing is known or found", None, "", Change::Created, "*"),
        // The previous one goes as well: a replica that uses it would consider the new one announced.
        ("garbage, nothing is known", corrupted("k<p", CA_CERT, "garbage"), "", Replaced(garbage()), "*"),
        // The old one is not in the Secret, so that a replica that still has the key writes it back.
        ("no key, nothing is known", corrupted("k", CA_KEY, ""), "", Replaced(no_key()), "*"),
        ("no key, the next one is good", corrupted("k>n", CA_KEY, ""), "", PromotedAtOnce(no_key()), "n"),
    ];
    for (what, secret, known, change, after) in rows {
        cas.check(what, secret.as_ref(), known, (start(), None), Some((change, after)));
    }
}

#[test]
fn adopts_a_secret_that_has_the_known_ca() {
    let cas = Cas::with_life("knf");
    for (what, secret, known) in [
        ("a fresh start", "f", ""),
        ("the same", "k", "k"),
        ("announced by another", "k>n", "k"),
        ("promoted by another", "n<k", "k>n"),
        ("promoted twice in between", "f<nk", "k"),
        ("another replica's repair", "k>f", "f"),
    ] {
        cas.check(what, cas.secret(secret).as_ref(), known, (start(), None), None);
    }
}

#[test]
fn replica_that_missed_a_rotation_restores_its_ca() {
    let cas = Cas::with_life("kn");
    let corrupted = ParsedSecret::read(&cas.corrupted("n<k", CA_CERT, "garbage").unwrap(), start());
    let new = ReplicaView { known: None, trusted_ca_established: false, role: Role::Follower };
    let view = SecretView { found: Some(&corrupted), replica: new, now: start() };
    let fresh = || Ok(Ca::generate(LIFE, start()).unwrap());
    let replaced = view.set_after(&decide(view).unwrap(), fresh).unwrap().to_secret_data();
    let want = (Restored(CaFault::Unannounced), "k>*<n");
    cas.check("it knows k>n", Some(&replaced), "k>n", (start(), None), Some(want));
}

#[test]
fn replica_that_just_started_adopts_another_valid_ca() {
    let cas = Cas::with_life("mt");
    let (own, found) = (cas.set("m"), ParsedSecret::read(&cas.secret("t").unwrap(), start()));
    let view = |trusted_ca_established| {
        let replica = ReplicaView { known: Some(&own), trusted_ca_established, role: Role::Follower };
        SecretView { found: Some(&found), replica, now: start() }
    };
    assert_eq!(decide(view(false)), None);
    assert_eq!(decide(view(true)), Some(Restored(CaFault::Unannounced)));
}

#[test]
fn only_the_leader_takes_the_three_steps() {
    let cas = Cas::with_life("kn").and('p', ca(Duration::from_hours(1)));
    let garbage = |entry| CaFault::NotACertificate { entry };
    let no_key = CaFault::Missing { entry: NEXT_CA_KEY };
    let duplicate = CaFault::Duplicate { entry: NEXT_CA_CERT };
    let rows = [
        ("not due", cas.secret("k"), 19, "k", None),
        ("due", cas.secret("k"), 20, "k", Some((Change::Announced, "k>*"))),
        ("not trusted", cas.secret("k>n"), 20, "k", None),
        ("the current one not trusted", cas.secret("k>n"), 20, "n", None),
        ("trusted", cas.secret("k>n"), 20, "kn", Some((Change::Promoted, "n<k"))),
        (
            "the next one corrupted",
            cas.corrupted("k>n", NEXT_CA_CERT, "garbage"),
            20,
            "k",
            Some((AnnouncedAgain(garbage(NEXT_CA_CERT)), "k>*")),
        ),
        (
            "the next one's key corrupted",
            cas.corrupted("k>n", NEXT_CA_KEY, ""),
            1,
            "k",
            Some((AnnouncedAgain(no_key), "k>*")),
        ),
        (
            "the current one as the next",
            cas.secret("k>k"),
            1,
            "k",
            Some((Change::Dropped(duplicate.clone()), "k")),
        ),
        ("the same when one is due", cas.secret("k>k"), 20, "k", Some((AnnouncedAgain(duplicate), "k>*"))),
        ("in use", cas.secret("k<p"), 0, "", None),
        ("expired", cas.secret("k<p"), 2, "", Some((Change::Forgot, "k"))),
        (
            "garbage as previous",
            cas.corrupted("k>n", PREVIOUS_CA_CERT, "garbage"),
            0,
            "",
            Some((Change::Dropped(garbage(PREVIOUS_CA_CERT)), "k>n")),
        ),
    ];
    for (what, secret, hour, trusted, want) in rows {
        cas.check("a follower waits", secret.as_ref(), "", (hours(hour), None), None);
        cas.check(what, secret.as_ref(), "", (hours(hour), Some(trusted)), want);
    }
}

#[test]
fn text_names_the_step_or_the_fault() {
    let steps = [Change::Announced, Change::Promoted, Change::Forgot];
    for (n, step) in steps.iter().enumerate() {
        assert!(step.to_string().contains(&format!("step {} of 3", n + 1)) && !step.is_repair());
    }
    let text = Restored(CaFault::KeyMismatch { entry: CA_KEY }).to_string();
    assert!(text.contains("the private key in entry ca.key does not match"), "{text}");
    assert!(Restored(CaFault::NoSecret).is_repair());
}
