//! Rotations with several replicas, a leader that changes and consumers that follow with a delay, on a fake API
//! server. The wall clock and tokio's move together. At every moment, whatever a replica serves has to verify against
//! what every consumer carries, by rustls' own verifier.

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
    /// What the two consumers carry in the cluster.
    carried: Arc<Mutex<[Vec<u8>; 2]>>,
    term: CancellationToken,
    began: Instant,
}

fn wall(began: Instant) -> Timestamp {
    super::wall() + SignedDuration::try_from(began.elapsed()).unwrap()
}

impl Fleet {
    async fn start(replicas: usize) -> Self {
        let mut fleet = Self {
            fake: FakeApi::new(),
            replicas: Vec::new(),
            carried: Arc::default(),
            term: CancellationToken::new(),
            began: Instant::now(),
        };
        for _ in 0..replicas {
            fleet.add();
        }
        fleet.lead(0);
        fleet.pass(Duration::from_mins(1), false).await;
        fleet
    }

    fn add(&mut self) {
        let (began, shutdown) = (self.began, CancellationToken::new());
        let config = CertsConfig { ca_lifetime: HOUR, cert_lifetime: HOUR / 2, ..config() };
        let clock: Clock = Arc::new(move || wall(began));
        let (certs, task) = Certs::start(self.fake.client(), config, clock, shutdown.clone()).unwrap();
        tokio::spawn(task);
        self.replicas.push((certs, shutdown));
    }

    /// The one replica goes, at once, and another starts.
    fn replace(&mut self, who: usize) {
        self.add();
        self.replicas.swap_remove(who).1.cancel();
    }

    /// A term ends and another begins: rotation, and the two parts that keep the bundle in the cluster.
    fn lead(&mut self, who: usize) {
        self.term.cancel();
        self.term = CancellationToken::new();
        let certs = self.replicas[who].0.clone();
        tokio::spawn(certs.rotate(self.fake.client(), self.term.clone()));
        for (part, name) in ["webhooks", "apiservice"].into_iter().enumerate() {
            let (trust, bundle) = (certs.trust(name), certs.ca_bundle());
            let (carried, term) = (self.carried.clone(), self.term.clone());
            tokio::spawn(async move {
                trust.unknown();
                // The one is slower than the other.
                let every = Duration::from_secs(2 + 9 * part as u64);
                while term.run_until_cancelled(tokio::time::sleep(every)).await.is_some() {
                    let bundle = bundle.borrow().clone();
                    trust.seen(&bundle);
                    carried.lock().unwrap()[part] = bundle;
                }
            });
        }
    }

    /// Time passes; at every second of it the law has to hold.
    async fn pass(&self, span: Duration, law: bool) {
        let end = Instant::now() + span;
        while Instant::now() < end {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if law {
                self.check();
            }
        }
    }

    fn check(&self) {
        let (now, carried) = (wall(self.began), self.carried.lock().unwrap().clone());
        for (who, (certs, _)) in self.replicas.iter().enumerate() {
            for (part, bundle) in carried.iter().enumerate() {
                // One that has just started has nothing to serve, and is not ready.
                let Some(served) = certs.resolver().certificate() else { continue };
                if let Err(error) = verify(bundle, &served, now) {
                    let notes = notes(&self.fake).join("\n");
                    panic!("replica {who}, consumer {part}, at {now}: {error}\n{notes}");
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
async fn three_lives_of_a_ca_with_changing_leaders() {
    let mut fleet = Fleet::start(3).await;
    for round in 0..18 {
        fleet.pass(HOUR / 6, true).await;
        fleet.replace(round % 3);
        // The last one added is the one that has just started.
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
async fn whatever_happens_to_the_secret_no_review_fails() {
    let fleet = Fleet::start(3).await;
    let now = || wall(fleet.began);
    let ca = || generate(HOUR, now()).to_secret_data();
    let (fake, mut seen) = (&fleet.fake, vec![fleet.current()]);
    let wrong_key = || {
        let mut data = data(fake);
        data.insert(crate::set::CA_KEY.to_owned(), ca()[crate::set::CA_KEY].clone());
        put_data(fake, &data);
    };
    let spoils: [(&str, &dyn Fn()); 4] = [
        ("deleted", &|| fake.delete(SECRET)),
        ("emptied", &|| put_data(fake, &BTreeMap::new())),
        ("another key", &wrong_key),
        ("another CA", &|| put_data(fake, &ca())),
    ];
    for (what, spoil) in spoils {
        spoil();
        fleet.pass(Duration::from_mins(2), true).await;
        let current = fleet.current();
        assert!(!seen.contains(&current), "{what}: the rotation was carried through");
        seen.push(current);
    }
}

#[tokio::test(start_paused = true)]
async fn no_step_without_everybodys_word_and_none_after_the_term() {
    let fleet = Fleet::start(2).await;
    let silent = fleet.replicas[0].0.trust("silent");
    let (before, fake) = (fleet.current(), &fleet.fake);
    fake.delete(SECRET);
    fleet.pass(Duration::from_mins(3), true).await;
    assert_eq!(fleet.current(), before, "somebody has not said what it carries");
    assert!(data(fake).contains_key(NEXT_CA_CERT));
    silent.seen(&before);
    fleet.pass(Duration::from_mins(3), true).await;
    assert_eq!(fleet.current(), before, "it carries the old one alone");

    let both = fleet.replicas[0].0.ca_bundle().borrow().clone();
    silent.seen(&both);
    fleet.term.cancel();
    fleet.pass(Duration::from_mins(3), true).await;
    assert_eq!(fleet.current(), before, "nobody leads");
}

#[tokio::test(start_paused = true)]
async fn with_nobody_to_ask_a_ca_signs_once_its_bundle_has_been_out_for_a_while() {
    let fake = FakeApi::new();
    let running = start(&fake);
    let old = running.bundle(|b| !b.is_empty()).await;
    tokio::spawn(running.certs.rotate(fake.client(), CancellationToken::new()));
    tokio::time::sleep(2 * SETTLE).await;
    fake.delete(SECRET);
    running.bundle(|b| b.starts_with(&old) && *b != old).await;
    tokio::time::sleep(SETTLE / 2).await;
    assert_eq!(data(&fake)[CA_CERT].0, old, "who reads the bundle may not have the next one yet");
    tokio::time::sleep(SETTLE).await;
    assert_ne!(data(&fake)[CA_CERT].0, old);
}

#[tokio::test(start_paused = true)]
async fn twenty_replicas_from_nothing_end_on_one_ca() {
    let fleet = Fleet::start(20).await;
    fleet.pass(Duration::from_mins(1), true).await;
    let current = fleet.current();
    for (certs, _) in &fleet.replicas {
        assert_eq!(*certs.ca_bundle().borrow(), current);
    }
    assert!(fleet.fake.get(SECRET).is_some() && notes(&fleet.fake).len() == 1, "{:?}", notes(&fleet.fake));
}
