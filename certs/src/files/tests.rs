//! Files in the layout of the kubelet: swaps and faults.

use std::sync::{Arc, Mutex};

use jiff::SignedDuration;
use tokio::sync::watch;

use super::*;
use crate::ServingCert;
use crate::ca::{Ca, PemPair};

const DAY: Duration = Duration::from_hours(24);

/// A directory that is removed after the test.
struct Mount(PathBuf);

impl Mount {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("wva-certs-{name}-{}", std::process::id()));
        std::fs::remove_dir_all(&path).ok();
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Like the kubelet: writes a new directory and swaps the link that every file uses.
    fn swap(&self, version: &str, contents: &[(&str, &str)]) {
        let folder = self.0.join(version);
        std::fs::create_dir_all(&folder).unwrap();
        for (name, content) in contents {
            std::fs::write(folder.join(name), content).unwrap();
            let link = self.0.join(name);
            if !link.is_symlink() {
                std::os::unix::fs::symlink(format!("..data/{name}"), link).unwrap();
            }
        }
        let new = self.0.join("..data_tmp");
        std::os::unix::fs::symlink(version, &new).unwrap();
        std::fs::rename(&new, self.0.join("..data")).unwrap();
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

struct IssuedFiles {
    ca: String,
    cert: String,
    key: String,
    end: Timestamp,
}

impl IssuedFiles {
    fn files(&self) -> [(&str, &str); 3] {
        [("tls.crt", &self.cert), ("tls.key", &self.key), ("ca.crt", &self.ca)]
    }
}

fn issue(life: Duration) -> IssuedFiles {
    let now = now();
    let ca = Ca::generate(life, now).unwrap();
    let PemPair { cert, key } = ca.sign_serving_pem(&["a.b.svc".to_owned()], life, now).unwrap();
    IssuedFiles { ca: ca.cert().pem().to_owned(), cert, key, end: ca.cert().not_after() }
}

fn now() -> Timestamp {
    "2026-11-20T12:00:00Z".parse().unwrap()
}

struct PolledFiles {
    files: Files,
    time: Arc<Mutex<Timestamp>>,
    serving: Arc<ServingCert>,
    bundle: watch::Receiver<Vec<u8>>,
}

impl PolledFiles {
    fn new(mount: &Mount) -> Self {
        let time = Arc::new(Mutex::new(now()));
        let clock: Clock = Arc::new({
            let time = time.clone();
            move || *time.lock().unwrap()
        });
        let serving = Arc::new(ServingCert::default());
        let (bundle_tx, bundle) = watch::channel(Vec::new());
        let ca_not_after = watch::channel(None).0;
        let publisher = CertPublisher { serving: serving.clone(), bundle: bundle_tx, ca_not_after };
        let files = Files::new(&mount.0, "tls.crt", "tls.key", clock, publisher);
        Self { files, time, serving, bundle }
    }

    /// Polls once and returns the faults.
    fn poll(&mut self) -> Vec<String> {
        self.files.process_read(read_consistently(&self.files.paths));
        self.files.logged.clone()
    }

    fn bundle(&self) -> String {
        String::from_utf8(self.bundle.borrow().clone()).unwrap()
    }
}

#[test]
fn after_a_swap_the_old_ca_stays_trusted_until_it_expires() {
    let (mount, one, two) = (Mount::new("swap"), issue(DAY), issue(30 * DAY));
    mount.swap("1", &one.files());
    let mut polled = PolledFiles::new(&mount);
    assert_eq!(polled.poll(), Vec::<String>::new());
    assert_eq!((polled.serving.not_after(), polled.bundle()), (Some(one.end), one.ca.clone()));
    let first = polled.serving.certificate();

    mount.swap("2", &two.files());
    assert_eq!(polled.poll(), Vec::<String>::new());
    assert_ne!(polled.serving.certificate(), first);
    assert_eq!(polled.bundle(), format!("{}{}", two.ca, one.ca), "others may still serve what it signed");
    *polled.time.lock().unwrap() += SignedDuration::from_hours(24);
    polled.poll();
    assert_eq!(polled.bundle(), two.ca);
}

#[test]
fn names_the_fault_and_keeps_the_last_valid_pair() {
    let (mount, good, other) = (Mount::new("bad"), issue(DAY), issue(DAY));
    let mut polled = PolledFiles::new(&mount);
    let missing = polled.poll();
    assert!(missing[0].contains("tls.crt") && missing[0].contains("cannot read"), "{missing:?}");
    assert!(!polled.serving.is_loaded());

    mount.swap("1", &good.files());
    assert_eq!(polled.poll(), Vec::<String>::new());
    let served = polled.serving.certificate();
    let long = "x".repeat(MAX_FILE_BYTES + 1);
    let cas = good.ca.repeat(MAX_BUNDLE_BYTES / good.ca.len() + 1);
    let rows: [(&str, &str, &str, &str); 7] = [
        ("tls.crt", "garbage", "tls.crt", "is not usable"),
        ("tls.crt", &other.cert, "tls.key", "is not the key of the certificate"),
        ("tls.key", "garbage", "tls.key", "has no private key"),
        ("tls.key", "", "tls.key", "has no private key"),
        ("tls.crt", &long, "tls.crt", "longer than"),
        ("ca.crt", "garbage", "ca.crt", "is not usable"),
        ("ca.crt", &cas, "ca.crt", "longer than 131072 bytes"),
    ];
    for (i, (file, content, named, fault)) in rows.into_iter().enumerate() {
        let contents = good.files().map(|(name, text)| (name, if name == file { content } else { text }));
        mount.swap(&format!("bad-{i}"), &contents);
        let faults = polled.poll();
        assert!(
            faults.len() == 1 && faults[0].contains(named) && faults[0].contains(fault),
            "{file}: {faults:?}"
        );
        assert_eq!(polled.serving.certificate(), served, "{file}");
        assert_eq!(polled.bundle(), good.ca, "{file}");
        assert!(!faults[0].contains(good.key.lines().nth(1).unwrap()), "the fault must not contain the key");
    }
    mount.swap("2", &other.files());
    assert_eq!(polled.poll(), Vec::<String>::new());
    assert_ne!(polled.serving.certificate(), served);

    *polled.time.lock().unwrap() += SignedDuration::from_hours(25);
    let expired = polled.poll();
    assert!(expired[0].contains("expired at"), "{expired:?}");
    assert!(polled.serving.is_loaded(), "there is nothing better to serve");
}

#[test]
fn without_ca_file_logs_a_fault_and_has_no_bundle() {
    let (mount, one) = (Mount::new("no-ca"), issue(DAY));
    mount.swap("1", &[("tls.crt", &one.cert), ("tls.key", &one.key)]);
    let mut polled = PolledFiles::new(&mount);
    let faults = polled.poll();
    assert!(faults.len() == 1 && faults[0].contains("ca.crt does not exist"), "{faults:?}");
    assert!(polled.serving.is_loaded() && polled.bundle().is_empty());
    // A directory in place of the file must not block or panic.
    std::fs::create_dir(mount.0.join("ca.crt")).unwrap();
    let faults = polled.poll();
    assert!(faults[0].contains("ca.crt"), "{faults:?}");
}

#[tokio::test(start_paused = true)]
async fn loads_files_that_appear_later() {
    let (mount, one) = (Mount::new("handle"), issue(DAY));
    let shutdown = tokio_util::sync::CancellationToken::new();
    let clock: Clock = Arc::new(now);
    let (certs, task) = crate::Certs::from_files(&mount.0, "tls.crt", "tls.key", clock, shutdown.clone());
    let task = tokio::spawn(task);
    let client = wva_fakes::FakeApi::new().client();
    let rotation = tokio::spawn(certs.rotate(client, shutdown.clone()));
    tokio::time::sleep(3 * POLL_INTERVAL).await;
    assert!(!certs.is_loaded() && certs.expiries().is_empty());
    mount.swap("1", &one.files());
    let mut bundle = certs.ca_bundle();
    let published = tokio::time::timeout(3 * POLL_INTERVAL, bundle.wait_for(|b| !b.is_empty())).await;
    assert_eq!(*published.unwrap().unwrap(), one.ca.as_bytes());
    tokio::time::sleep(POLL_INTERVAL).await;
    assert_eq!(certs.expiries(), [("ca", one.end), ("serving", one.end)]);
    assert!(!rotation.is_finished(), "a task that ends would end the process");
    shutdown.cancel();
    task.await.unwrap();
    rotation.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn hanging_volume_does_not_block_the_expiry_log() {
    let issued = issue(DAY);
    let mount = Mount::new("hangs");
    mount.swap("v1", &issued.files());
    let mut polled = PolledFiles::new(&mount);
    assert_eq!(polled.poll(), [""; 0]);
    *polled.time.lock().unwrap() = issued.end;

    let (release, released) = std::sync::mpsc::channel::<()>();
    let (started, mut reading) = tokio::sync::mpsc::unbounded_channel();
    let hanging = move |paths: &Paths| {
        started.send(()).unwrap();
        released.recv().ok();
        read_consistently(paths)
    };
    // The paused clock does not advance by itself while a thread reads.
    let advance = async {
        reading.recv().await;
        tokio::time::advance(READ_TIMEOUT).await;
    };
    tokio::join!(polled.files.poll(hanging), advance);
    let has = |polled: &PolledFiles, text: &str| polled.files.logged.iter().any(|fault| fault.contains(text));
    assert!(has(&polled, "not read within 2s") && has(&polled, "expired"), "{:?}", polled.files.logged);

    drop(release);
    polled.files.poll(|_| panic!("a second read started")).await;
    assert!(!has(&polled, "not read within") && has(&polled, "expired"), "{:?}", polled.files.logged);
}
