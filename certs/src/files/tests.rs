//! Files as the kubelet lays them out: a link that is swapped, and whatever can be wrong with them.

use std::sync::{Arc, Mutex};

use jiff::SignedDuration;
use tokio::sync::watch;

use super::*;
use crate::Serving;
use crate::ca::{Ca, PemPair};

const DAY: Duration = Duration::from_hours(24);

/// A folder that goes with the test.
struct Mount(PathBuf);

impl Mount {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("wva-certs-{name}-{}", std::process::id()));
        std::fs::remove_dir_all(&path).ok();
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// As the kubelet: a new folder, and one swap of a link that every file leads through.
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

struct Made {
    ca: String,
    cert: String,
    key: String,
    end: Timestamp,
}

impl Made {
    fn files(&self) -> [(&str, &str); 3] {
        [("tls.crt", &self.cert), ("tls.key", &self.key), ("ca.crt", &self.ca)]
    }
}

fn made(life: Duration) -> Made {
    let now = now();
    let ca = Ca::generate(life, now).unwrap();
    let PemPair { cert, key } = ca.sign_serving_pem(&["a.b.svc".to_owned()], life, now).unwrap();
    Made { ca: ca.cert().pem().to_owned(), cert, key, end: ca.cert().not_after() }
}

fn now() -> Timestamp {
    "2026-11-20T12:00:00Z".parse().unwrap()
}

struct Looked {
    files: Files,
    time: Arc<Mutex<Timestamp>>,
    serving: Arc<Serving>,
    bundle: watch::Receiver<Vec<u8>>,
}

impl Looked {
    fn new(mount: &Mount) -> Self {
        let time = Arc::new(Mutex::new(now()));
        let clock: Clock = Arc::new({
            let time = time.clone();
            move || *time.lock().unwrap()
        });
        let serving = Arc::new(Serving::default());
        let (bundle_tx, bundle) = watch::channel(Vec::new());
        let ca_not_after = watch::channel(None).0;
        let filled = CertPublisher { serving: serving.clone(), bundle: bundle_tx, ca_not_after };
        let files = Files::new(&mount.0, "tls.crt", "tls.key", clock, filled);
        Self { files, time, serving, bundle }
    }

    /// One look; what is wrong.
    fn look(&mut self) -> Vec<String> {
        self.files.look(read_steadily(&self.files.paths));
        self.files.said.clone()
    }

    fn bundle(&self) -> String {
        String::from_utf8(self.bundle.borrow().clone()).unwrap()
    }
}

#[test]
fn a_swap_is_followed_and_the_old_ca_stays_trusted_until_it_expires() {
    let (mount, one, two) = (Mount::new("swap"), made(DAY), made(30 * DAY));
    mount.swap("1", &one.files());
    let mut looked = Looked::new(&mount);
    assert_eq!(looked.look(), Vec::<String>::new());
    assert_eq!((looked.serving.not_after(), looked.bundle()), (Some(one.end), one.ca.clone()));
    let first = looked.serving.certificate();

    mount.swap("2", &two.files());
    assert_eq!(looked.look(), Vec::<String>::new());
    assert_ne!(looked.serving.certificate(), first);
    assert_eq!(looked.bundle(), format!("{}{}", two.ca, one.ca), "others may still serve what it signed");
    *looked.time.lock().unwrap() += SignedDuration::from_hours(24);
    looked.look();
    assert_eq!(looked.bundle(), two.ca);
}

#[test]
fn what_is_bad_is_named_and_the_last_good_pair_stays() {
    let (mount, good, other) = (Mount::new("bad"), made(DAY), made(DAY));
    let mut looked = Looked::new(&mount);
    let missing = looked.look();
    assert!(missing[0].contains("tls.crt") && missing[0].contains("cannot read"), "{missing:?}");
    assert!(!looked.serving.loaded());

    mount.swap("1", &good.files());
    assert_eq!(looked.look(), Vec::<String>::new());
    let served = looked.serving.certificate();
    let long = "x".repeat(LONGEST + 1);
    let cas = good.ca.repeat(LONGEST_BUNDLE / good.ca.len() + 1);
    let rows: [(&str, &str, &str, &str); 7] = [
        ("tls.crt", "garbage", "tls.crt", "cannot be used"),
        ("tls.crt", &other.cert, "tls.key", "does not belong to the certificate"),
        ("tls.key", "garbage", "tls.key", "no private key"),
        ("tls.key", "", "tls.key", "no private key"),
        ("tls.crt", &long, "tls.crt", "longer than"),
        ("ca.crt", "garbage", "ca.crt", "cannot be used"),
        ("ca.crt", &cas, "ca.crt", "longer than 131072 bytes"),
    ];
    for (i, (file, content, named, why)) in rows.into_iter().enumerate() {
        let contents = good.files().map(|(name, text)| (name, if name == file { content } else { text }));
        mount.swap(&format!("bad-{i}"), &contents);
        let said = looked.look();
        assert!(said.len() == 1 && said[0].contains(named) && said[0].contains(why), "{file}: {said:?}");
        assert_eq!(looked.serving.certificate(), served, "{file}");
        assert_eq!(looked.bundle(), good.ca, "{file}");
        assert!(!said[0].contains(good.key.lines().nth(1).unwrap()), "no key is told");
    }
    mount.swap("2", &other.files());
    assert_eq!(looked.look(), Vec::<String>::new());
    assert_ne!(looked.serving.certificate(), served);

    *looked.time.lock().unwrap() += SignedDuration::from_hours(25);
    let expired = looked.look();
    assert!(expired[0].contains("expired at"), "{expired:?}");
    assert!(looked.serving.loaded(), "there is nothing better to serve");
}

#[test]
fn without_a_ca_there_is_no_bundle_and_that_is_said() {
    let (mount, one) = (Mount::new("no-ca"), made(DAY));
    mount.swap("1", &[("tls.crt", &one.cert), ("tls.key", &one.key)]);
    let mut looked = Looked::new(&mount);
    let said = looked.look();
    assert!(said.len() == 1 && said[0].contains("ca.crt") && said[0].contains("Put it there"), "{said:?}");
    assert!(looked.serving.loaded() && looked.bundle().is_empty());
    // A folder instead of a file is no reason to wait or to end.
    std::fs::create_dir(mount.0.join("ca.crt")).unwrap();
    let said = looked.look();
    assert!(said[0].contains("ca.crt"), "{said:?}");
}

#[tokio::test(start_paused = true)]
async fn the_handle_is_filled_whenever_the_files_come() {
    let (mount, one) = (Mount::new("handle"), made(DAY));
    let shutdown = tokio_util::sync::CancellationToken::new();
    let clock: Clock = Arc::new(now);
    let (certs, task) = crate::Certs::from_files(&mount.0, "tls.crt", "tls.key", clock, shutdown.clone());
    let task = tokio::spawn(task);
    let client = wva_fakes::FakeApi::new().client();
    let rotation = tokio::spawn(certs.rotate(client, shutdown.clone()));
    tokio::time::sleep(3 * POLL).await;
    assert!(!certs.loaded() && certs.expiries().is_empty());
    mount.swap("1", &one.files());
    let mut bundle = certs.ca_bundle();
    let filled = tokio::time::timeout(3 * POLL, bundle.wait_for(|b| !b.is_empty())).await;
    assert_eq!(*filled.unwrap().unwrap(), one.ca.as_bytes());
    tokio::time::sleep(POLL).await;
    assert_eq!(certs.expiries(), [("ca", one.end), ("serving", one.end)]);
    assert!(!rotation.is_finished(), "a task that ends would end the process");
    shutdown.cancel();
    task.await.unwrap();
    rotation.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_hangs_keeps_no_expiry_quiet_and_is_read_once() {
    let made = made(DAY);
    let mount = Mount::new("hangs");
    mount.swap("v1", &made.files());
    let mut looked = Looked::new(&mount);
    assert_eq!(looked.look(), [""; 0]);
    *looked.time.lock().unwrap() = made.end;

    let (release, released) = std::sync::mpsc::channel::<()>();
    let (tell, mut reading) = tokio::sync::mpsc::unbounded_channel();
    let hanging = move |paths: &Paths| {
        tell.send(()).unwrap();
        released.recv().ok();
        read_steadily(paths)
    };
    // Time does not pass by itself while a thread reads.
    let advance = async {
        reading.recv().await;
        tokio::time::advance(LOOK).await;
    };
    tokio::join!(looked.files.round(hanging), advance);
    let said = |looked: &Looked, what: &str| looked.files.said.iter().any(|text| text.contains(what));
    assert!(
        said(&looked, "could not be read within 2s") && said(&looked, "expired"),
        "{:?}",
        looked.files.said
    );

    drop(release);
    looked.files.round(|_| panic!("the look under way is the only one")).await;
    assert!(!said(&looked, "could not be read") && said(&looked, "expired"), "{:?}", looked.files.said);
}
