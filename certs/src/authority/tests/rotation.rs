//! Rotations with several replicas, changing leaders and slow consumers, on a fake API server. The wall clock follows
//! tokio's. At every second, the certificate of each replica must verify against the bundle of each consumer, by
//! rustls' own verifier.

use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

use super::*;
use crate::set::PREVIOUS_CA_CERT;

const HOUR: Duration = Duration::from_hours(1);

struct Fleet {
    fake: FakeApi,
    replicas: Vec<(Certs, CancellationToken)>,
    /// Bundles of the two consumers.
    bundles: Arc<Mutex<[Vec<u8>; 2]>>,
    term: CancellationToken,
    started: Instant,
}

fn wall(started: Instant) -> Timestamp {
    super::wall() + SignedDuration::try_from(started.elapsed()).unwrap()
}

impl Fleet {
    async fn start(replicas: usize) -> Self {
        let mut fleet = Self {
            fake: FakeApi::new(),
            replicas: Vec::new(),
            bundles: Arc::default(),
            term: CancellationToken::new(),
            started: Instant::now(),
        };
        for _ in 0..replicas {
            fleet.add();
        }
        fleet.lead(0);
        fleet.pass(Duration::from_mins(1), false).await;
        fleet
    }

    fn add(&mut self) {
        let (started, shutdown) = (self.started, CancellationToken::new());
        let config = CertsConfig { ca_lifetime: HOUR, cert_lifetime: HOUR / 2, ..config() };
        let clock: Clock = Arc::new(move || wall(started));
        let (certs, task) = Certs::start(self.fake.client(), config, clock, shutdown.clone()).unwrap();
        tokio::spawn(task);
        self.replicas.push((certs, shutdown));
    }

    /// Stops one replica at once and starts another.
    fn replace(&mut self, index: usize) {
        self.add();
        self.replicas.swap_remove(index).1.cancel();
    }

    /// Makes a replica the leader: it rotates the CA and runs the two consumers.
    fn lead(&mut self, index: usize) {
        self.term.cancel();
        self.term = CancellationToken::new();
        let certs = self.replicas[index].0.clone();
        tokio::spawn(certs.rotate(self.fake.client(), self.term.clone()));
        for (consumer, name) in ["webhooks", "apiservice"].into_iter().enumerate() {
            let (trust, bundle) = (certs.trust_reporter(name), certs.ca_bundle());
            let (bundles, term) = (self.bundles.clone(), self.term.clone());
            tokio::spawn(async move {
                trust.report_unknown();
                // The second consumer is slower.
                let interval = Duration::from_secs(2 + 9 * consumer as u64);
                while term.run_until_cancelled(tokio::time::sleep(interval)).await.is_some() {
                    let bundle = bundle.borrow().clone();
                    trust.report(&bundle);
                    bundles.lock().unwrap()[consumer] = bundle;
                }
            });
        }
    }

    /// Lets time pass; checks the invariant at every second if `is_checked`.
    async fn pass(&self, span: Duration, is_checked: bool) {
        let end = Instant::now() + span;
        while Instant::now() < end {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if is_checked {
                self.check();
            }
        }
    }

    fn check(&self) {
        let (now, bundles) = (wall(self.started), self.bundles.lock().unwrap().clone());
        for (index, (certs, _)) in self.replicas.iter().enumerate() {
            for (consumer, bundle) in bundles.iter().enumerate() {
                // A replica that has just started has no certificate and is not ready.
                let Some(served) = certs.resolver().certificate() else { continue };
                if let Err(error) = verify(bundle, &served, now) {
                    let notes = notes(&self.fake).join("\n");
                    panic!("replica {index}, consumer {consumer}, at {now}: {error}\n{notes}");
                }
            }
        }
    }

    fn current(&self) -> Vec<u8> {
        data(&self.fake)[CA_CERT].0.clone()
    }

    fn steps(&self) -> usize {
        notes(&self.fake).iter().filter(|note| note.contains("step 2 of 3")).count()
    }
}

fn verify(bundle: &[u8], served: &CertificateDer<'_>, now: Timestamp) -> Result<(), rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(bundle).map(Result::unwrap));
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
    let name = ServerName::try_from("wva-webhook.wva-system.svc").unwrap();
    let now = UnixTime::since_unix_epoch(Duration::from_secs(now.as_second().try_into().unwrap()));
    verifier.verify_server_cert(served, &[], &name, &[], now).map(|_| ())
}

#[tokio::test(start_paused = true)]
async fn rotates_three_times_with_changing_leaders() {
    let mut fleet = Fleet::start(3).await;
    for round in 0..18 {
        fleet.pass(HOUR / 6, true).await;
        fleet.replace(round % 3);
        // The new leader is the replica that was just added.
        fleet.lead(round % 3);
    }
    assert!(fleet.steps() >= 3, "{:?}", notes(&fleet.fake));
    let notes = notes(&fleet.fake);
    assert!(notes.iter().all(|note| note.starts_with("Normal ")), "{notes:?}");
    for step in ["step 1 of 3", "step 2 of 3", "step 3 of 3"] {
        assert!(notes.iter().any(|note| note.contains(step)), "{step}: {notes:?}");
    }
    let lives =
        data(&fleet.fake).get(PREVIOUS_CA_CERT).map_or(0, |b| CertificateDer::pem_slice_iter(&b.0).count());
    assert!(lives <= 1, "expired CAs leave the Secret");
}

#[tokio::test(start_paused = true)]
async fn no_review_fails_while_the_secret_is_destroyed() {
    let fleet = Fleet::start(3).await;
    let now = || wall(fleet.started);
    let ca = || generate(HOUR, now()).to_secret_data();
    let (fake, mut earlier) = (&fleet.fake, vec![fleet.current()]);
    let wrong_key = || {
        let mut data = data(fake);
        data.insert(crate::set::CA_KEY.to_owned(), ca()[crate::set::CA_KEY].clone());
        put_data(fake, &data);
    };
    let corruptions: [(&str, &dyn Fn()); 4] = [
        ("deleted", &|| fake.delete(SECRET)),
        ("emptied", &|| put_data(fake, &BTreeMap::new())),
        ("another key", &wrong_key),
        ("another CA", &|| put_data(fake, &ca())),
    ];
    for (what, corrupt) in corruptions {
        corrupt();
        fleet.pass(Duration::from_mins(2), true).await;
        let current = fleet.current();
        assert!(!earlier.contains(&current), "{what}: the rotation completed");
        earlier.push(current);
    }
}

#[tokio::test(start_paused = true)]
async fn no_step_without_all_reports_or_after_the_term() {
    let fleet = Fleet::start(2).await;
    let reporter = fleet.replicas[0].0.trust_reporter("reporter");
    let (before, fake) = (fleet.current(), &fleet.fake);
    fake.delete(SECRET);
    fleet.pass(Duration::from_mins(3), true).await;
    assert_eq!(fleet.current(), before, "one consumer has not reported");
    assert!(data(fake).contains_key(NEXT_CA_CERT));
    reporter.report(&before);
    fleet.pass(Duration::from_mins(3), true).await;
    assert_eq!(fleet.current(), before, "it has only the old CA");

    let both = fleet.replicas[0].0.ca_bundle().borrow().clone();
    reporter.report(&both);
    fleet.term.cancel();
    fleet.pass(Duration::from_mins(3), true).await;
    assert_eq!(fleet.current(), before, "there is no leader");
}

#[tokio::test(start_paused = true)]
async fn without_consumers_a_ca_signs_after_the_settle_time() {
    let fake = FakeApi::new();
    let running = start(&fake);
    let old = running.bundle(|b| !b.is_empty()).await;
    tokio::spawn(running.certs.rotate(fake.client(), CancellationToken::new()));
    tokio::time::sleep(2 * SETTLE).await;
    fake.delete(SECRET);
    running.bundle(|b| b.starts_with(&old) && *b != old).await;
    tokio::time::sleep(SETTLE / 2).await;
    assert_eq!(data(&fake)[CA_CERT].0, old, "clients may not have the next CA yet");
    tokio::time::sleep(SETTLE).await;
    assert_ne!(data(&fake)[CA_CERT].0, old);
}

#[tokio::test(start_paused = true)]
async fn twenty_new_replicas_end_on_one_ca() {
    let fleet = Fleet::start(20).await;
    fleet.pass(Duration::from_mins(1), true).await;
    let current = fleet.current();
    for (certs, _) in &fleet.replicas {
        assert_eq!(*certs.ca_bundle().borrow(), current);
    }
    assert!(fleet.fake.get(SECRET).is_some() && notes(&fleet.fake).len() == 1, "{:?}", notes(&fleet.fake));
}
