//! Mode `files`: certificate, key and CA files of an external issuer, polled every few seconds. After a fault the last
//! valid pair stays in use.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, timeout};
use wva_runtime::Clock;

use crate::serving::{CertTimes, ServingError};
use crate::state::CertPublisher;
use crate::x509::{BadPem, Cert};

const CA_FILE: &str = "ca.crt";
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Size limit of a file; a chain has a few kilobytes.
const MAX_FILE_BYTES: usize = 1 << 20;
/// Size limit of the bundle. Each webhook of a configuration has a copy, and an object is limited to 1.5 MiB.
const MAX_BUNDLE_BYTES: usize = 128 << 10;
/// Time limit of a read. A read that hangs on a network volume continues, and no second one starts.
const READ_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum reads until two are equal: the kubelet may swap the files between two reads.
const MAX_READS: usize = 3;
const MAX_FORMER_CAS: usize = 4;

#[derive(Debug, thiserror::Error)]
enum FileFault {
    #[error("cannot read {path}: check that the volume is mounted there and that its Secret exists")]
    Unreadable {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{path} not read within {limit:?}: check the volume that is mounted there")]
    TimedOut { path: PathBuf, limit: Duration },
    #[error("{path} is longer than {limit} bytes: remove other content from it")]
    TooLong { path: PathBuf, limit: usize },
    #[error("{path} is not usable: write a certificate to it, followed by its chain")]
    NotACertificate {
        path: PathBuf,
        #[source]
        source: BadPem,
    },
    #[error("{path} has no private key in PEM")]
    NotAKey { path: PathBuf },
    #[error("{key} is not the key of the certificate in {cert}: replace both together")]
    Mismatch {
        cert: PathBuf,
        key: PathBuf,
        #[source]
        source: Box<ServingError>,
    },
    #[error("the certificate in {path} expired at {not_after}: check its issuer")]
    Expired { path: PathBuf, not_after: Timestamp },
    #[error(
        "{path} does not exist: webhooks cannot be registered without the CA; add the file, or set the caBundles yourself"
    )]
    NoCa { path: PathBuf },
}

#[derive(Clone, Debug)]
struct Paths {
    cert: PathBuf,
    key: PathBuf,
    ca: PathBuf,
}

#[derive(PartialEq, Eq)]
struct Contents {
    cert: Vec<u8>,
    key: Vec<u8>,
    /// `None` if the file does not exist.
    ca: Option<Vec<u8>>,
}

#[derive(PartialEq, Eq)]
struct PairContents {
    cert: Vec<u8>,
    key: Vec<u8>,
}

pub(crate) struct Files {
    paths: Paths,
    clock: Clock,
    publisher: CertPublisher,
    in_use: Option<PairContents>,
    cas: Vec<Cert>,
    /// CAs of earlier contents, until they expire. Replicas with an older volume serve certificates of them.
    former: Vec<Cert>,
    logged: Vec<String>,
    /// Read that exceeded its time limit and still runs.
    pending_read: Option<JoinHandle<Result<Contents, FileFault>>>,
}

impl Files {
    pub(crate) fn new(
        directory: &Path,
        cert: &str,
        key: &str,
        clock: Clock,
        publisher: CertPublisher,
    ) -> Self {
        let paths =
            Paths { cert: directory.join(cert), key: directory.join(key), ca: directory.join(CA_FILE) };
        let (in_use, cas, former, logged) = (None, Vec::new(), Vec::new(), Vec::new());
        Self { paths, clock, publisher, in_use, cas, former, logged, pending_read: None }
    }

    pub(crate) async fn run(mut self) {
        let mut poll = tokio::time::interval(POLL_INTERVAL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            poll.tick().await;
            self.poll(read_consistently).await;
        }
    }

    /// Polls once. The read has its own thread, so that a hanging volume does not block the log of an expiry.
    async fn poll(&mut self, read: impl FnOnce(&Paths) -> Result<Contents, FileFault> + Send + 'static) {
        let mut reading = self.pending_read.take().unwrap_or_else(|| {
            let paths = self.paths.clone();
            tokio::task::spawn_blocking(move || read(&paths))
        });
        match timeout(READ_TIMEOUT, &mut reading).await {
            Ok(Ok(read)) => self.process_read(read),
            Ok(Err(error)) => {
                tracing::error!(%error, "Reading the certificate files panicked; please report this bug");
            }
            Err(_) => {
                self.pending_read = Some(reading);
                self.process_read(Err(FileFault::TimedOut {
                    path: self.paths.cert.clone(),
                    limit: READ_TIMEOUT,
                }));
            }
        }
    }

    fn process_read(&mut self, read: Result<Contents, FileFault>) {
        let now = (self.clock)();
        let mut faults = Vec::new();
        match read {
            Ok(contents) => faults.extend(self.apply(contents, now)),
            Err(fault) => faults.push(fault),
        }
        if let Some(not_after) = self.publisher.serving.not_after().filter(|end| now >= *end) {
            faults.push(FileFault::Expired { path: self.paths.cert.clone(), not_after });
        }
        self.publish(now);
        self.log_faults(&faults);
    }

    fn apply(&mut self, contents: Contents, now: Timestamp) -> Vec<FileFault> {
        // The CA comes first: clients must trust it before they see its certificate.
        let ca = self.install_cas(contents.ca.as_deref(), now);
        self.publish(now);
        let pair = self.install_pair(PairContents { cert: contents.cert, key: contents.key });
        [ca, pair].into_iter().filter_map(Result::err).collect()
    }

    fn install_pair(&mut self, pair: PairContents) -> Result<(), FileFault> {
        if self.in_use.as_ref() == Some(&pair) {
            return Ok(());
        }
        let Paths { cert, key, .. } = &self.paths;
        let not_a_certificate = |source| FileFault::NotACertificate { path: cert.clone(), source };
        let chain = Cert::read_all(&pair.cert).map_err(not_a_certificate)?;
        let private =
            PrivateKeyDer::from_pem_slice(&pair.key).map_err(|_| FileFault::NotAKey { path: key.clone() })?;
        let leaf = chain.first().ok_or_else(|| not_a_certificate(BadPem::NoCertificate))?;
        let Cert { not_before: issued, not_after, .. } = *leaf;
        let times = CertTimes { issued, renew_at: not_after, not_after };
        let ders = chain.iter().map(|cert| cert.der.clone()).collect();
        self.publisher.serving.install(ders, private, times).map_err(|source| FileFault::Mismatch {
            cert: cert.clone(),
            key: key.clone(),
            source: Box::new(source),
        })?;
        tracing::info!(file = %cert.display(), not_after = %times.not_after, "Serving a new certificate");
        self.in_use = Some(pair);
        Ok(())
    }

    fn install_cas(&mut self, pem: Option<&[u8]>, now: Timestamp) -> Result<(), FileFault> {
        let path = || self.paths.ca.clone();
        let Some(pem) = pem else {
            return if self.cas.is_empty() { Err(FileFault::NoCa { path: path() }) } else { Ok(()) };
        };
        if pem.len() > MAX_BUNDLE_BYTES {
            return Err(FileFault::TooLong { path: path(), limit: MAX_BUNDLE_BYTES });
        }
        let cas =
            Cert::read_all(pem).map_err(|source| FileFault::NotACertificate { path: path(), source })?;
        let replaced = std::mem::replace(&mut self.cas, cas);
        self.former.splice(0..0, replaced);
        let mut kept: Vec<Cert> = Vec::new();
        for cert in std::mem::take(&mut self.former) {
            let known = self.cas.iter().chain(&kept).any(|other| other.der == cert.der);
            if !known && now < cert.not_after && kept.len() < MAX_FORMER_CAS {
                kept.push(cert);
            }
        }
        self.former = kept;
        Ok(())
    }

    fn publish(&self, now: Timestamp) {
        let mut bundle: Vec<u8> = self.cas.iter().flat_map(|cert| cert.pem.bytes()).collect();
        for cert in self.former.iter().filter(|cert| now < cert.not_after) {
            if bundle.len() + cert.pem.len() <= MAX_BUNDLE_BYTES {
                bundle.extend(cert.pem.bytes());
            }
        }
        self.publisher.publish(bundle, self.cas.first().map(|cert| cert.not_after));
    }

    fn log_faults(&mut self, faults: &[FileFault]) {
        let mut logged = Vec::new();
        for fault in faults {
            let text = fault.to_string();
            if !self.logged.contains(&text) {
                let error = fault as &dyn std::error::Error;
                let effect =
                    if self.publisher.serving.is_loaded() { "; keeping the last valid pair" } else { "" };
                tracing::warn!(error, "Invalid certificate files{effect}");
            }
            logged.push(text);
        }
        self.logged = logged;
    }
}

fn read_consistently(paths: &Paths) -> Result<Contents, FileFault> {
    let mut contents = read_once(paths)?;
    for _ in 1..MAX_READS {
        let again = read_once(paths)?;
        if again == contents {
            break;
        }
        contents = again;
    }
    Ok(contents)
}

fn read_once(paths: &Paths) -> Result<Contents, FileFault> {
    let ca = match read(&paths.ca) {
        Ok(ca) => Some(ca),
        Err(FileFault::Unreadable { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => None,
        Err(fault) => return Err(fault),
    };
    Ok(Contents { cert: read(&paths.cert)?, key: read(&paths.key)?, ca })
}

fn read(path: &Path) -> Result<Vec<u8>, FileFault> {
    let unreadable = |source| FileFault::Unreadable { path: path.to_owned(), source };
    // Opening a pipe would block until a process writes to it.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(unreadable(std::io::Error::other("it is not a regular file")));
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    file.take(MAX_FILE_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() > MAX_FILE_BYTES {
        return Err(FileFault::TooLong { path: path.to_owned(), limit: MAX_FILE_BYTES });
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
