//! The whole task against a fake API server: first certificate, repairs and renewals.

mod rotation;

use std::collections::BTreeMap;
use std::sync::Mutex;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use wva_crds::events::EventSource;
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
        event_source: EventSource::default(),
    }
}

fn generate(life: Duration, now: Timestamp) -> CaSet {
    CaSet::new(crate::ca::Ca::generate(life, now).unwrap())
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

/// A clock that tests set.
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
    /// Waits for a bundle that satisfies `matches`. The paused clock makes the long deadline cheap.
    async fn bundle(&self, matches: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        let mut bundle = self.certs.ca_bundle();
        let result = tokio::time::timeout(DAY, bundle.wait_for(|b| matches(b))).await;
        result.expect("no such bundle").unwrap().clone()
    }

    async fn until(&self, holds: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_mins(5);
        while !holds() {
            assert!(Instant::now() < deadline, "timed out: {:?}", notes(&self.fake));
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
async fn creates_ca_and_serving_certificate() {
    let running = start(&FakeApi::new());
    assert!(!running.certs.is_loaded());
    let bundle = running.bundle(|b| !b.is_empty()).await;
    assert_eq!(bundle, data(&running.fake)[CA_CERT].0);
    let ends = running.certs.expiries();
    assert_eq!(ends.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["ca", "serving"]);
    assert_eq!(ends[0].1, "2027-11-20T12:00:00Z".parse().unwrap());
    assert_eq!(ends[1].1, "2027-02-18T12:00:00Z".parse().unwrap());
    assert!(running.certs.is_loaded());
    running.shutdown.cancel();
    running.task.await.unwrap();
    assert_eq!(notes(&running.fake), ["Normal Created a new CA."]);
}

#[tokio::test(start_paused = true)]
async fn repairs_the_secret_with_the_ca_in_use() {
    let fake = FakeApi::new();
    let running = start(&fake);
    running.bundle(|b| !b.is_empty()).await;
    // A replica that has just started adopts any valid Secret.
    tokio::time::sleep(SETTLE).await;
    let in_use = data(&fake)[CA_CERT].0.clone();
    let garbage = BTreeMap::from([(CA_CERT.to_owned(), ByteString(b"garbage".to_vec()))]);
    let other = generate(DAY * 200, running.now());
    let corruptions: [(&str, &dyn Fn()); 4] = [
        ("the Secret does not exist", &|| fake.delete(SECRET)),
        ("not exactly one X.509 certificate", &|| put_data(&fake, &garbage)),
        ("is missing or empty", &|| put_data(&fake, &BTreeMap::new())),
        ("another CA", &|| put_data(&fake, &other.to_secret_data())),
    ];
    for (fault, corrupt) in corruptions {
        let before = notes(&running.fake).len();
        corrupt();
        running.until(|| notes(&fake).len() > before).await;
        let data = data(&fake);
        assert_eq!(data[CA_CERT].0, in_use, "{fault}: the CA in use");
        let note = notes(&fake).pop().unwrap();
        assert!(note.starts_with("Warning Wrote back the CA in use: ") && note.contains(fault), "{note}");
        let bundle = running.certs.ca_bundle().borrow().clone();
        let both = [in_use.clone(), data[NEXT_CA_CERT].0.clone()].concat();
        assert!(bundle.starts_with(&both), "{fault}: both are trusted");
    }
    let next = data(&fake)[NEXT_CA_CERT].0.clone();
    assert_eq!(next, other.current.cert().pem().as_bytes(), "the other CA is the next one");
    assert!(!running.task.is_finished());
}

#[tokio::test(start_paused = true)]
async fn new_replica_adopts_an_existing_ca() {
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
async fn silently_broken_watch_delays_a_repair_by_a_minute() {
    let fake = FakeApi::new();
    let running = start(&fake);
    running.bundle(|b| !b.is_empty()).await;
    fake.silence_watches();
    put_data(&fake, &BTreeMap::new());
    tokio::time::sleep(2 * MAX_CHECK_INTERVAL).await;
    assert!(data(&fake).contains_key(CA_CERT), "the Secret is polled too");
}

#[tokio::test(start_paused = true)]
async fn renews_by_the_wall_clock_and_not_earlier() {
    let running = start(&FakeApi::new());
    running.bundle(|b| !b.is_empty()).await;
    let first = running.serving_ends();
    // Two thirds of 90 days are 60, less up to 9 of jitter.
    running.pass(50 * DAY);
    tokio::time::sleep(3 * MAX_CHECK_INTERVAL).await;
    assert_eq!(running.serving_ends(), first);
    running.pass(10 * DAY);
    tokio::time::sleep(3 * MAX_CHECK_INTERVAL).await;
    assert_eq!(running.serving_ends().duration_since(first), SignedDuration::from_hours(60 * 24));
}

#[tokio::test(start_paused = true)]
async fn replaces_an_expired_ca_by_the_wall_clock() {
    let running = start(&FakeApi::new());
    let old = running.bundle(|b| !b.is_empty()).await;
    running.pass(366 * DAY);
    let new = running.bundle(move |b| b != old).await;
    assert_eq!(new, data(&running.fake)[CA_CERT].0, "the expired CA is not trusted");
    assert!(running.serving_ends() > *running.time.lock().unwrap());
    tokio::time::sleep(MAX_CHECK_INTERVAL).await;
    let notes = notes(&running.fake);
    assert!(
        notes.iter().any(|n| n.starts_with("Warning Replaced the CA: ") && n.contains("expired at")),
        "{notes:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn waits_for_an_unavailable_api_server() {
    let fake = FakeApi::new();
    fake.reply_to_all(Reply::Failure(500));
    let running = start(&fake);
    tokio::time::sleep(10 * MAX_CHECK_INTERVAL).await;
    assert!(!running.task.is_finished() && !running.certs.is_loaded());
    fake.clear_rule();
    running.bundle(|b| !b.is_empty()).await;
}

/// A clock that follows tokio's.
fn running_clock() -> Clock {
    let started = Instant::now();
    Arc::new(move || wall() + SignedDuration::try_from(started.elapsed()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn clock_set_back_costs_one_write() {
    let fake = FakeApi::new();
    let running = start(&fake);
    let old = running.bundle(|b| !b.is_empty()).await;
    tokio::time::sleep(SETTLE).await;
    *running.time.lock().unwrap() -= SignedDuration::from_hours(2);
    let both = running.bundle(|b| b.ends_with(&old) && b != old).await;
    tokio::time::sleep(10 * MAX_CHECK_INTERVAL).await;
    assert_eq!(*running.certs.ca_bundle().borrow(), both, "the old CA stays trusted");
    let notes = notes(&fake);
    assert!(notes.len() == 2 && notes[1].contains("is not valid before"), "{notes:?}");
    assert_eq!(count(&fake, "PUT", 200), 1);
    let served = running.certs.resolver().not_after().unwrap();
    assert_eq!(served, "2027-02-18T10:00:00Z".parse().unwrap(), "signed again with the new time");
}

#[tokio::test(start_paused = true)]
async fn renews_certificates_while_the_api_server_hangs() {
    let (fake, clock, shutdown) = (FakeApi::new(), running_clock(), CancellationToken::new());
    let config = CertsConfig { cert_lifetime: Duration::from_mins(1), ..config() };
    let (certs, task) = Certs::start(fake.client(), config, clock.clone(), shutdown).unwrap();
    tokio::spawn(task);
    tokio::time::sleep(Duration::from_secs(30)).await;
    fake.reply_to_all(Reply::Hang);
    for _ in 0..300 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (now, ends) = (clock(), certs.resolver().not_after().unwrap());
        assert!(now < ends, "at {now}: the serving certificate expired at {ends}");
    }
}

#[tokio::test(start_paused = true)]
async fn replaces_a_short_lived_foreign_ca_in_time() {
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
async fn fresh_bundle_is_from_a_new_read_of_the_secret() {
    let fake = FakeApi::new();
    let running = start(&fake);
    let old = running.bundle(|b| !b.is_empty()).await;
    tokio::time::sleep(SETTLE).await;
    // Another leader announces a CA, and the watch does not report it.
    fake.silence_watches();
    let mut set = CaSet::from_secret_data(&data(&fake), running.now()).unwrap();
    set.next = Some(generate(DAY, running.now()).current);
    put_data(&fake, &set.to_secret_data());
    assert_eq!(*running.certs.ca_bundle().borrow(), old);
    let fresh = tokio::time::timeout(MAX_CHECK_INTERVAL / 2, running.certs.fresh_ca_bundle()).await.unwrap();
    assert!(*fresh.borrow() == set.bundle(running.now()), "an outdated bundle");

    // Without access to the Secret there is none.
    fake.reply_to_all(Reply::Failure(500));
    assert!(tokio::time::timeout(MAX_CHECK_INTERVAL, running.certs.fresh_ca_bundle()).await.is_err());
    fake.clear_rule();
    tokio::time::timeout(MAX_CHECK_INTERVAL, running.certs.fresh_ca_bundle()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn replica_uses_what_the_leader_reads_and_writes() {
    let fake = FakeApi::new();
    let running = start(&fake);
    running.bundle(|b| !b.is_empty()).await;
    tokio::time::sleep(SETTLE).await;
    fake.silence_watches();
    let mut set = CaSet::from_secret_data(&data(&fake), running.now()).unwrap();
    set.next = Some(generate(DAY * 300, running.now()).current);
    let reporter = running.certs.trust_reporter("reporter");
    put_data(&fake, &set.to_secret_data());
    let term = CancellationToken::new();
    let leading = tokio::spawn(running.certs.rotate(fake.client(), term.clone()));
    let both = set.bundle(running.now());
    let result = tokio::time::timeout(MAX_CHECK_INTERVAL / 2, running.bundle(|b| b == both)).await;
    assert!(result.is_ok(), "the replica does not use the Secret that its leader read");
    term.cancel();
    leading.await.unwrap();

    // A former leader: its client refuses writes.
    reporter.report(&both);
    let (refusing, term) = (FakeApi::new(), CancellationToken::new());
    refusing.reply_to_all(Reply::Failure(500));
    tokio::spawn(running.certs.rotate(refusing.client(), term.clone()));
    tokio::time::sleep(3 * MAX_CHECK_INTERVAL).await;
    assert_eq!(data(&fake), set.to_secret_data());
    term.cancel();
    tokio::spawn(running.certs.rotate(fake.client(), CancellationToken::new()));
    reporter.report(&both);
    running
        .until(|| {
            reporter.report(&both);
            notes(&fake).iter().any(|note| note.contains("step 2 of 3"))
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn retries_signing_with_a_new_ca() {
    let ((time, clock), fake) = (clock(), FakeApi::new());
    let (certs, publisher) = Certs::empty();
    let (mut task, _leader) =
        CaTask::new(fake.client(), config(), clock, publisher, crate::trust::TrustTracker::new());
    let (one, other) = (generate(DAY * 300, wall()), generate(DAY * 300, wall()));
    let serves = |set: &CaSet| {
        let (served, ca) = (certs.resolver().certificate().unwrap(), set.current.cert().der().clone());
        crate::x509::verify(&served, &[], &[ca], "wva-webhook.wva-system.svc", wall()).is_ok()
    };
    task.adopt(one.clone(), None);
    assert!(serves(&one));
    // A time before 1970 is out of range for certificates.
    *time.lock().unwrap() = Timestamp::UNIX_EPOCH;
    task.adopt(other.clone(), None);
    assert!(serves(&one));
    *time.lock().unwrap() = wall();
    task.check_clock();
    assert!(serves(&other), "retried although the old certificate is not due");
}

#[tokio::test(start_paused = true)]
async fn ignores_outdated_events_of_the_watch() {
    let (fake, clock): (_, Clock) = (FakeApi::new(), Arc::new(wall));
    let (certs, publisher) = Certs::empty();
    let (mut task, _leader) =
        CaTask::new(fake.client(), config(), clock, publisher, crate::trust::TrustTracker::new());
    let mut set = generate(DAY * 300, wall());
    put_data(&fake, &set.to_secret_data());
    let before: Secret = serde_json::from_value(fake.object(SECRET)).unwrap();
    set.next = Some(generate(DAY * 300, wall()).current);
    put_data(&fake, &set.to_secret_data());
    task.repair(&CancellationToken::new()).await;
    task.check_secret(&before);
    let bundle = certs.ca_bundle();
    assert!(*bundle.borrow() == set.bundle(wall()), "an outdated bundle");
    // A newer event replaces the next CA: both are trusted, because others may sign with the removed one.
    let late = generate(DAY * 300, wall()).current;
    let mut after = before;
    after.metadata.resource_version = Some("3".to_owned());
    let trusted_before = set.bundle(wall()).len();
    set.next = Some(late.clone());
    after.data = Some(set.to_secret_data());
    task.check_secret(&after);
    let bundle_text = String::from_utf8(bundle.borrow().to_vec()).unwrap();
    assert!(bundle_text.contains(late.cert().pem()), "the new CA is trusted");
    assert!(bundle_text.len() > trusted_before, "the removed CA stays trusted");
}

#[test]
fn refuses_invalid_config() {
    let check = |change: fn(&mut CertsConfig), want: ConfigError| {
        let mut config = config();
        change(&mut config);
        assert_eq!(config.check(), Err(want));
    };
    let short = |setting| ConfigError::TooShort { setting, found: Duration::from_secs(59) };
    check(|c| c.dns_names.clear(), ConfigError::NoNames);
    check(|c| c.dns_names.push("a b".into()), ConfigError::BadName { name: "a b".into() });
    check(|c| c.ca_lifetime = Duration::from_secs(59), short("CA lifetime"));
    check(|c| c.cert_lifetime = Duration::from_secs(59), short("certificate lifetime"));
    assert_eq!(config().check(), Ok(()));
}
