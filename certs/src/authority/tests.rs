//! The whole task against a fake API server: from nothing to a served certificate, and through every repair.

use std::collections::BTreeMap;
use std::sync::Mutex;

use jiff::SignedDuration;
use k8s_openapi::ByteString;

use super::*;
use crate::ca::{CA_CERT, PREVIOUS_CA_CERT};
use crate::fake::{FakeApi, NAMESPACE};

const NAME: &str = "wva-ca";
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

struct Running {
    certs: Certs,
    fake: FakeApi,
    time: Arc<Mutex<Timestamp>>,
    shutdown: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

fn start(fake: &FakeApi) -> Running {
    let time = Arc::new(Mutex::new("2026-11-20T12:00:00Z".parse::<Timestamp>().unwrap()));
    let clock: Clock = Arc::new({
        let time = time.clone();
        move || *time.lock().unwrap()
    });
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
    assert_eq!(bundle, running.fake.data(NAME)[CA_CERT].0);
    let ends = running.certs.expiries();
    assert_eq!(ends.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["ca", "serving"]);
    assert_eq!(ends[0].1, "2027-11-20T12:00:00Z".parse().unwrap());
    assert_eq!(ends[1].1, "2027-02-18T12:00:00Z".parse().unwrap());
    assert!(running.certs.loaded());
    running.shutdown.cancel();
    running.task.await.unwrap();
    assert_eq!(running.fake.notes(), ["Normal Created a new CA, as there was none."]);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_or_spoilt_secret_is_healed_and_the_old_ca_stays_trusted() {
    let fake = FakeApi::new();
    let running = start(&fake);
    let mut last = running.bundle(|b| !b.is_empty()).await;
    let garbage = BTreeMap::from([(CA_CERT.to_owned(), ByteString(b"garbage".to_vec()))]);
    for spoil in
        [&|| fake.delete(NAME) as _, &|| fake.put(NAME, &garbage), &|| fake.put(NAME, &BTreeMap::new())]
            as [&dyn Fn(); 3]
    {
        let first_cert = fake.data(NAME)[CA_CERT].0.clone();
        spoil();
        let old = last.clone();
        last = running.bundle(move |b| b != old).await;
        let data = fake.data(NAME);
        assert_ne!(data[CA_CERT].0, first_cert, "a new CA");
        assert_eq!(data[PREVIOUS_CA_CERT].0, first_cert, "the old one as previous");
        assert_eq!(last, [data[CA_CERT].0.clone(), first_cert].concat());
    }
    assert!(!running.task.is_finished());
}

#[tokio::test(start_paused = true)]
async fn another_replicas_ca_is_taken_over() {
    let fake = FakeApi::new();
    let running = start(&fake);
    running.bundle(|b| !b.is_empty()).await;
    let before = running.serving_ends();
    running.pass(DAY);
    let now = *running.time.lock().unwrap();
    let other = CaSet { current: crate::ca::Ca::generate(DAY * 200, now).unwrap(), previous: None };
    fake.put(NAME, &other.to_secret_data());
    let want = other.bundle();
    running.bundle(move |b| b == want).await;
    // The certificate served is signed anew, and nothing was written back.
    let mut ends = running.serving_ends();
    while ends == before {
        tokio::task::yield_now().await;
        ends = running.serving_ends();
    }
    assert_eq!(ends.duration_since(before), SignedDuration::from_hours(24));
    assert_eq!(fake.data(NAME), other.to_secret_data());
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
    assert_eq!(new, running.fake.data(NAME)[CA_CERT].0, "nothing of the expired one is left");
    assert!(running.serving_ends() > *running.time.lock().unwrap());
    tokio::time::sleep(CHECK).await;
    let notes = running.fake.notes();
    assert!(
        notes.iter().any(|n| n.starts_with("Warning Replaced the CA: ") && n.contains("expired at")),
        "{notes:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_away_is_waited_for() {
    let fake = FakeApi::new();
    fake.failing(true);
    let running = start(&fake);
    tokio::time::sleep(10 * CHECK).await;
    assert!(!running.task.is_finished() && !running.certs.loaded());
    fake.failing(false);
    running.bundle(|b| !b.is_empty()).await;
}

#[test]
fn a_bad_config_is_refused() {
    let check = |change: fn(&mut CertsConfig), want: ConfigError| {
        let mut config = config();
        change(&mut config);
        assert_eq!(config.check(), Err(want));
    };
    let short = Duration::from_secs(59);
    check(|c| c.dns_names.clear(), ConfigError::NoNames);
    check(|c| c.dns_names.push("a b".into()), ConfigError::BadName { name: "a b".into() });
    check(
        |c| c.ca_lifetime = Duration::from_secs(59),
        ConfigError::TooShort { what: "CA lifetime", found: short },
    );
    check(
        |c| c.cert_lifetime = Duration::from_secs(59),
        ConfigError::TooShort { what: "certificate lifetime", found: short },
    );
    assert_eq!(config().check(), Ok(()));
}
