//! The whole task against a fake API server: from nothing to a served certificate, and through every repair.

mod rotation;

use std::collections::BTreeMap;
use std::sync::Mutex;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use wva_fakes::{FakeApi, Reply};

use super::*;
use crate::fixture::{NAME, NAMESPACE, SECRET, count, data, notes, put_data};
use crate::set::{CA_CERT, NEXT_CA_CERT};
use crate::{Certs, ConfigError};

const DAY: Duration = Duration::from_hours(24);

fn config() -> CertsConfig {
    CertsConfig {
        namespace: NAMESPACE.to_owned(),
        secret_name: NAME.to_owned(),
        dns_names: CertsConfig::service_names("wva-webhook", NAMESPACE),
        ca_lifetime: 365 * DAY,
        cert_lifetime: 90 * DAY,
    }
}

fn generate(life: Duration, now: Timestamp) -> CaSet {
    CaSet::of(crate::ca::Ca::generate(life, now).unwrap())
}

fn wall() -> Timestamp {
    "2026-11-20T12:00:00Z".parse().unwrap()
}

struct Running {
    certs: Certs,
    fake: FakeApi,
    time: Arc<Mutex<Timestamp>>,
    shutdown: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

/// A clock that shows what is set.
fn clock() -> (Arc<Mutex<Timestamp>>, Clock) {
    let time = Arc::new(Mutex::new(wall()));
    (time.clone(), Arc::new(move || *time.lock().unwrap()))
}

fn start(fake: &FakeApi) -> Running {
    let (time, clock) = clock();
    let shutdown = CancellationToken::new();
    let (certs, task) = Certs::start(fake.client(), config(), clock, shutdown.clone()).unwrap();
    Running { certs, fake: fake.clone(), time, shutdown, task: tokio::spawn(task) }
}

impl Running {
    /// Waits for a bundle that satisfies `wanted`. Time is paused: the deadline is no real time.
    async fn bundle(&self, wanted: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        let mut bundle = self.certs.ca_bundle();
        let seen = tokio::time::timeout(DAY, bundle.wait_for(|b| wanted(b))).await;
        seen.expect("no such bundle").unwrap().clone()
    }

    async fn until(&self, wanted: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_mins(5);
        while !wanted() {
            assert!(Instant::now() < deadline, "it never came to that: {:?}", notes(&self.fake));
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    fn now(&self) -> Timestamp {
        *self.time.lock().unwrap()
    }

    fn pass(&self, span: Duration) {
        *self.time.lock().unwrap() += SignedDuration::try_from(span).unwrap();
    }

    fn serving_ends(&self) -> Timestamp {
        self.certs.resolver().not_after().unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn from_nothing_to_a_certificate() {
    let running = start(&FakeApi::new());
    assert!(!running.certs.loaded());
    let bundle = running.bundle(|b| !b.is_empty()).await;
    assert_eq!(bundle, data(&running.fake)[CA_CERT].0);
    let ends = running.certs.expiries();
    assert_eq!(ends.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["ca", "serving"]);
    assert_eq!(ends[0].1, "2027-11-20T12:00:00Z".parse().unwrap());
    assert_eq!(ends[1].1, "2027-02-18T12:00:00Z".parse().unwrap());
    assert!(running.certs.loaded());
    running.shutdown.cancel();
    running.task.await.unwrap();
    assert_eq!(notes(&running.fake), ["Normal Created a new CA, as there was none."]);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_or_spoilt_secret_is_healed_with_the_ca_in_use() {
    let fake = FakeApi::new();
    let running = start(&fake);
    running.bundle(|b| !b.is_empty()).await;
    // One that has just started takes any good Secret as it is.
    tokio::time::sleep(SETTLE).await;
    let in_use = data(&fake)[CA_CERT].0.clone();
    let garbage = BTreeMap::from([(CA_CERT.to_owned(), ByteString(b"garbage".to_vec()))]);
    let other = generate(DAY * 200, running.now());
    let spoils: [(&str, &dyn Fn()); 4] = [
        ("the Secret does not exist", &|| fake.delete(SECRET)),
        ("not exactly one X.509 certificate", &|| put_data(&fake, &garbage)),
        ("is absent or empty", &|| put_data(&fake, &BTreeMap::new())),
        ("another CA", &|| put_data(&fake, &other.to_secret_data())),
    ];
    for (why, spoil) in spoils {
        let before = notes(&running.fake).len();
        spoil();
        running.until(|| notes(&fake).len() > before).await;
        let data = data(&fake);
        assert_eq!(data[CA_CERT].0, in_use, "{why}: the CA in use");
        let note = notes(&fake).pop().unwrap();
        assert!(note.starts_with("Warning Wrote back the CA in use: ") && note.contains(why), "{note}");
        let bundle = running.certs.ca_bundle().borrow().clone();
        let both = [in_use.clone(), data[NEXT_CA_CERT].0.clone()].concat();
        assert!(bundle.starts_with(&both), "{why}: both are trusted");
    }
    let next = data(&fake)[NEXT_CA_CERT].0.clone();
    assert_eq!(next, other.current.cert().pem().as_bytes(), "the other CA is the next one");
    assert!(!running.task.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_fresh_start_takes_what_is_there() {
    let fake = FakeApi::new();
    let other = generate(DAY * 200, wall());
    put_data(&fake, &other.to_secret_data());
    let running = start(&fake);
    let bundle = running.bundle(|b| !b.is_empty()).await;
    assert_eq!(bundle, other.current.cert().pem().as_bytes());
    assert_eq!(data(&fake), other.to_secret_data());
    assert_eq!(notes(&fake), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_breaks_without_a_word_costs_a_minute() {
    let fake = FakeApi::new();
    let running = start(&fake);
    running.bundle(|b| !b.is_empty()).await;
    fake.silence_watches();
    put_data(&fake, &BTreeMap::new());
    tokio::time::sleep(2 * CHECK).await;
    assert!(data(&fake).contains_key(CA_CERT), "the Secret is looked at all the same");
}

#[tokio::test(start_paused = true)]
async fn renews_by_the_wall_clock_and_not_before() {
    let running = start(&FakeApi::new());
    running.bundle(|b| !b.is_empty()).await;
    let first = running.serving_ends();
    // Two thirds of 90 days are 60, less up to 9 of jitter.
    running.pass(50 * DAY);
    tokio::time::sleep(3 * CHECK).await;
    assert_eq!(running.serving_ends(), first);
    running.pass(10 * DAY);
    tokio::time::sleep(3 * CHECK).await;
    assert_eq!(running.serving_ends().duration_since(first), SignedDuration::from_hours(60 * 24));
}

#[tokio::test(start_paused = true)]
async fn an_expired_ca_is_replaced_by_the_wall_clock() {
    let running = start(&FakeApi::new());
    let old = running.bundle(|b| !b.is_empty()).await;
    running.pass(366 * DAY);
    let new = running.bundle(move |b| b != old).await;
    assert_eq!(new, data(&running.fake)[CA_CERT].0, "nothing of the expired one is left");
    assert!(running.serving_ends() > *running.time.lock().unwrap());
    tokio::time::sleep(CHECK).await;
    let notes = notes(&running.fake);
    assert!(
        notes.iter().any(|n| n.starts_with("Warning Replaced the CA: ") && n.contains("expired at")),
        "{notes:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_away_is_waited_for() {
    let fake = FakeApi::new();
    fake.reply_to_all(Reply::Failure(500));
    let running = start(&fake);
    tokio::time::sleep(10 * CHECK).await;
    assert!(!running.task.is_finished() && !running.certs.loaded());
    fake.clear_rule();
    running.bundle(|b| !b.is_empty()).await;
}

/// A clock that moves with tokio's.
fn running_clock() -> Clock {
    let began = Instant::now();
    Arc::new(move || wall() + SignedDuration::try_from(began.elapsed()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_back_costs_one_write() {
    let fake = FakeApi::new();
    let running = start(&fake);
    let old = running.bundle(|b| !b.is_empty()).await;
    tokio::time::sleep(SETTLE).await;
    *running.time.lock().unwrap() -= SignedDuration::from_hours(2);
    let both = running.bundle(|b| b.ends_with(&old) && b != old).await;
    tokio::time::sleep(10 * CHECK).await;
    assert_eq!(*running.certs.ca_bundle().borrow(), both, "what was in use stays trusted");
    let notes = notes(&fake);
    assert!(notes.len() == 2 && notes[1].contains("is not valid before"), "{notes:?}");
    assert_eq!(count(&fake, "PUT", 200), 1);
    let served = running.certs.resolver().not_after().unwrap();
    assert_eq!(served, "2027-02-18T10:00:00Z".parse().unwrap(), "signed anew, by the clock as it is now");
}

#[tokio::test(start_paused = true)]
async fn certificates_are_renewed_while_the_api_server_hangs() {
    let (fake, clock, shutdown) = (FakeApi::new(), running_clock(), CancellationToken::new());
    let config = CertsConfig { cert_lifetime: Duration::from_mins(1), ..config() };
    let (certs, task) = Certs::start(fake.client(), config, clock.clone(), shutdown).unwrap();
    tokio::spawn(task);
    tokio::time::sleep(Duration::from_secs(30)).await;
    fake.reply_to_all(Reply::Hang);
    for _ in 0..300 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (now, ends) = (clock(), certs.resolver().not_after().unwrap());
        assert!(now < ends, "at {now} what is served has expired, at {ends}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_short_ca_of_somebody_else_is_looked_after_in_time() {
    let (fake, clock, shutdown) = (FakeApi::new(), running_clock(), CancellationToken::new());
    let short = generate(Duration::from_secs(130), clock());
    put_data(&fake, &short.to_secret_data());
    let (certs, task) = Certs::start(fake.client(), config(), clock.clone(), shutdown).unwrap();
    tokio::spawn(task);
    tokio::time::sleep(Duration::from_secs(129)).await;
    assert_eq!(data(&fake)[CA_CERT].0, short.current.cert().pem().as_bytes());
    tokio::time::sleep(Duration::from_secs(14)).await;
    assert!(certs.resolver().not_after().unwrap() > clock(), "{:?}", notes(&fake));
}

#[tokio::test(start_paused = true)]
async fn whoever_begins_to_write_bundles_gets_one_that_was_read_since() {
    let fake = FakeApi::new();
    let running = start(&fake);
    let old = running.bundle(|b| !b.is_empty()).await;
    tokio::time::sleep(SETTLE).await;
    // Another leader announces a CA, and the watch says nothing of it.
    fake.silence_watches();
    let mut set = CaSet::from_secret_data(&data(&fake), running.now()).unwrap();
    set.next = Some(generate(DAY, running.now()).current);
    put_data(&fake, &set.to_secret_data());
    assert_eq!(*running.certs.ca_bundle().borrow(), old);
    let fresh = tokio::time::timeout(CHECK / 2, running.certs.fresh_ca_bundle()).await.unwrap();
    assert!(*fresh.borrow() == set.bundle(running.now()), "the bundle of before");

    // While the Secret cannot be read there is none.
    fake.reply_to_all(Reply::Failure(500));
    assert!(tokio::time::timeout(CHECK, running.certs.fresh_ca_bundle()).await.is_err());
    fake.clear_rule();
    tokio::time::timeout(CHECK, running.certs.fresh_ca_bundle()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_the_leader_finds_is_taken_into_use_and_what_it_writes_goes_by_its_own_client() {
    let fake = FakeApi::new();
    let running = start(&fake);
    running.bundle(|b| !b.is_empty()).await;
    tokio::time::sleep(SETTLE).await;
    fake.silence_watches();
    let mut set = CaSet::from_secret_data(&data(&fake), running.now()).unwrap();
    set.next = Some(generate(DAY * 300, running.now()).current);
    let silent = running.certs.trust("silent");
    put_data(&fake, &set.to_secret_data());
    let term = CancellationToken::new();
    let leading = tokio::spawn(running.certs.rotate(fake.client(), term.clone()));
    let both = set.bundle(running.now());
    let seen = tokio::time::timeout(CHECK / 2, running.bundle(|b| b == both)).await;
    assert!(seen.is_ok(), "the leader has read more than this replica uses");
    term.cancel();
    leading.await.unwrap();

    // One who does not lead any more: nothing that it writes is let through.
    silent.seen(&both);
    let (nobody, term) = (FakeApi::new(), CancellationToken::new());
    nobody.reply_to_all(Reply::Failure(500));
    tokio::spawn(running.certs.rotate(nobody.client(), term.clone()));
    tokio::time::sleep(3 * CHECK).await;
    assert_eq!(data(&fake), set.to_secret_data());
    term.cancel();
    tokio::spawn(running.certs.rotate(fake.client(), CancellationToken::new()));
    silent.seen(&both);
    running
        .until(|| {
            silent.seen(&both);
            notes(&fake).iter().any(|note| note.contains("step 2 of 3"))
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_new_signer_that_could_not_sign_is_asked_again() {
    let ((time, clock), fake) = (clock(), FakeApi::new());
    let (certs, filled) = Certs::empty();
    let (mut task, _leader) = Task::new(fake.client(), config(), clock, filled, crate::trust::Trusts::new());
    let (one, other) = (generate(DAY * 300, wall()), generate(DAY * 300, wall()));
    let serves = |set: &CaSet| {
        let (served, ca) = (certs.resolver().certificate().unwrap(), set.current.cert().der().clone());
        crate::x509::verify(&served, &[], &[ca], "wva-webhook.wva-system.svc", wall()).is_ok()
    };
    task.adopt(one.clone(), None);
    assert!(serves(&one));
    // No certificate can be dated by such a clock.
    *time.lock().unwrap() = Timestamp::UNIX_EPOCH;
    task.adopt(other.clone(), None);
    assert!(serves(&one));
    *time.lock().unwrap() = wall();
    task.check_clock();
    assert!(serves(&other), "the old one is not due, and not trusted for ever");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_behind_takes_nothing_back() {
    let (fake, clock): (_, Clock) = (FakeApi::new(), Arc::new(wall));
    let (certs, filled) = Certs::empty();
    let (mut task, _leader) = Task::new(fake.client(), config(), clock, filled, crate::trust::Trusts::new());
    let mut set = generate(DAY * 300, wall());
    put_data(&fake, &set.to_secret_data());
    let before: Secret = serde_json::from_value(fake.object(SECRET)).unwrap();
    set.next = Some(generate(DAY * 300, wall()).current);
    put_data(&fake, &set.to_secret_data());
    task.repair(&CancellationToken::new()).await;
    task.judge(&before);
    let bundle = certs.ca_bundle();
    assert!(*bundle.borrow() == set.bundle(wall()), "the bundle of before");
    // Another next one, as a change that came after: both are trusted, for others may sign with what is gone.
    let late = generate(DAY * 300, wall()).current;
    let mut after = before;
    after.metadata.resource_version = Some("3".to_owned());
    let trusted_before = set.bundle(wall()).len();
    set.next = Some(late.clone());
    after.data = Some(set.to_secret_data());
    task.judge(&after);
    let told = String::from_utf8(bundle.borrow().to_vec()).unwrap();
    assert!(told.contains(late.cert().pem()), "what is new counts");
    assert!(told.len() > trusted_before, "what was trusted stays so");
}

#[test]
fn a_bad_config_is_refused() {
    let check = |change: fn(&mut CertsConfig), want: ConfigError| {
        let mut config = config();
        change(&mut config);
        assert_eq!(config.check(), Err(want));
    };
    let short = |what| ConfigError::TooShort { what, found: Duration::from_secs(59) };
    check(|c| c.dns_names.clear(), ConfigError::NoNames);
    check(|c| c.dns_names.push("a b".into()), ConfigError::BadName { name: "a b".into() });
    check(|c| c.ca_lifetime = Duration::from_secs(59), short("CA lifetime"));
    check(|c| c.cert_lifetime = Duration::from_secs(59), short("certificate lifetime"));
    assert_eq!(config().check(), Ok(()));
}
