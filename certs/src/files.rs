//! Mode `files`: certificate, key and CA that somebody else makes, read again every few seconds. The kubelet swaps a
//! link and says nothing, and a folder is small: looking is enough. Whatever is bad is said once, and the last good
//! pair stays in use.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, timeout};
use wva_runtime::Clock;

use crate::serving::{ServingError, Span};
use crate::state::CertPublisher;
use crate::x509::{BadPem, Cert};

/// The CA's file, beside the other two.
const CA_NAME: &str = "ca.crt";
/// Between two looks.
const POLL: Duration = Duration::from_secs(5);
/// A chain is a few kilobytes.
const LONGEST: usize = 1 << 20;
/// Every webhook entry carries the bundle once, and an object has at most 1.5 MiB.
const LONGEST_BUNDLE: usize = 128 << 10;
/// Longest wait for a look. One that hangs on a network volume goes on meanwhile, and is the only one.
const LOOK: Duration = Duration::from_secs(2);
/// Looks at one moment, so that what is read does not come from two sides of a swap.
const TRIES: usize = 3;
/// CAs of earlier contents that are still trusted.
const MOST_FORMER: usize = 4;

/// What is wrong with the files.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("cannot read {path}: check that the volume is mounted there and that its Secret exists")]
    Unreadable {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{path} could not be read within {limit:?}: check the volume that is mounted there")]
    Slow { path: PathBuf, limit: Duration },
    #[error("{path} is longer than {limit} bytes: leave in it only what is needed")]
    TooLong { path: PathBuf, limit: usize },
    #[error("{path} cannot be used: put a certificate there, with its chain below it")]
    NotACertificate {
        path: PathBuf,
        #[source]
        source: BadPem,
    },
    #[error("{path} holds no private key in PEM")]
    NotAKey { path: PathBuf },
    #[error("{key} does not belong to the certificate of {cert}: put both there together")]
    Mismatch {
        cert: PathBuf,
        key: PathBuf,
        #[source]
        source: Box<ServingError>,
    },
    #[error("the certificate of {path} expired at {not_after}: whoever makes it must renew it")]
    Expired { path: PathBuf, not_after: Timestamp },
    #[error(
        "there is no {path}: no webhook can be opened without the CA. Put it there, or set the caBundles yourself"
    )]
    NoCa { path: PathBuf },
}

#[derive(Clone, Debug)]
struct Paths {
    cert: PathBuf,
    key: PathBuf,
    ca: PathBuf,
}

/// What the files held at one moment.
#[derive(PartialEq, Eq)]
struct Contents {
    cert: Vec<u8>,
    key: Vec<u8>,
    /// `None` where there is no such file.
    ca: Option<Vec<u8>>,
}

/// The state of the task.
pub(crate) struct Files {
    paths: Paths,
    clock: Clock,
    filled: CertPublisher,
    /// Certificate and key in use, as their files held them.
    in_use: Option<(Vec<u8>, Vec<u8>)>,
    /// The CAs of the file, and those of earlier contents, until they expire: a replica whose volume has not been
    /// updated yet serves what they signed.
    cas: Vec<Cert>,
    former: Vec<Cert>,
    /// What was said at the last look.
    said: Vec<String>,
    /// A look that took too long, and still does.
    under_way: Option<JoinHandle<Result<Contents, Fault>>>,
}

impl Files {
    pub(crate) fn new(directory: &Path, cert: &str, key: &str, clock: Clock, filled: CertPublisher) -> Self {
        let paths =
            Paths { cert: directory.join(cert), key: directory.join(key), ca: directory.join(CA_NAME) };
        let (in_use, cas, former, said) = (None, Vec::new(), Vec::new(), Vec::new());
        Self { paths, clock, filled, in_use, cas, former, said, under_way: None }
    }

    pub(crate) async fn run(mut self) {
        let mut poll = tokio::time::interval(POLL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            poll.tick().await;
            self.round(read_steadily).await;
        }
    }

    /// One look, on a thread of its own and for a bounded time: what hangs holds up neither the renewal of what was
    /// read before nor the word that it has expired.
    async fn round(&mut self, read: impl FnOnce(&Paths) -> Result<Contents, Fault> + Send + 'static) {
        let mut look = self.under_way.take().unwrap_or_else(|| {
            let paths = self.paths.clone();
            tokio::task::spawn_blocking(move || read(&paths))
        });
        match timeout(LOOK, &mut look).await {
            Ok(Ok(read)) => self.look(read),
            Ok(Err(error)) => {
                tracing::error!(%error, "A look at the certificate files failed: please report this");
            }
            Err(_) => {
                self.under_way = Some(look);
                self.look(Err(Fault::Slow { path: self.paths.cert.clone(), limit: LOOK }));
            }
        }
    }

    fn look(&mut self, read: Result<Contents, Fault>) {
        let now = (self.clock)();
        let mut faults = Vec::new();
        match read {
            Ok(contents) => faults.extend(self.take(contents, now)),
            Err(fault) => faults.push(fault),
        }
        if let Some(not_after) = self.filled.serving.not_after().filter(|end| now >= *end) {
            faults.push(Fault::Expired { path: self.paths.cert.clone(), not_after });
        }
        self.publish(now);
        self.say(&faults);
    }

    /// Puts what changed to use; what is wrong with it.
    fn take(&mut self, contents: Contents, now: Timestamp) -> Vec<Fault> {
        // The CA first: whoever verifies should know it before a certificate of it is served.
        let ca = self.take_ca(contents.ca.as_deref(), now);
        self.publish(now);
        let pair = self.take_pair((contents.cert, contents.key));
        [ca, pair].into_iter().filter_map(Result::err).collect()
    }

    fn take_pair(&mut self, pair: (Vec<u8>, Vec<u8>)) -> Result<(), Fault> {
        if self.in_use.as_ref() == Some(&pair) {
            return Ok(());
        }
        let Paths { cert, key, .. } = &self.paths;
        let not_a_certificate = |source| Fault::NotACertificate { path: cert.clone(), source };
        let chain = Cert::read_all(&pair.0).map_err(not_a_certificate)?;
        let private =
            PrivateKeyDer::from_pem_slice(&pair.1).map_err(|_| Fault::NotAKey { path: key.clone() })?;
        let leaf = chain.first().ok_or_else(|| not_a_certificate(BadPem::NoCertificate))?;
        let Cert { not_before: issued, not_after, .. } = *leaf;
        let span = Span { issued, renew_at: not_after, not_after };
        let ders = chain.iter().map(|cert| cert.der.clone()).collect();
        self.filled.serving.install(ders, private, span).map_err(|source| Fault::Mismatch {
            cert: cert.clone(),
            key: key.clone(),
            source: Box::new(source),
        })?;
        tracing::info!(file = %cert.display(), not_after = %span.not_after, "Serving a new certificate");
        self.in_use = Some(pair);
        Ok(())
    }

    fn take_ca(&mut self, pem: Option<&[u8]>, now: Timestamp) -> Result<(), Fault> {
        let path = || self.paths.ca.clone();
        let Some(pem) = pem else {
            return if self.cas.is_empty() { Err(Fault::NoCa { path: path() }) } else { Ok(()) };
        };
        if pem.len() > LONGEST_BUNDLE {
            return Err(Fault::TooLong { path: path(), limit: LONGEST_BUNDLE });
        }
        let cas = Cert::read_all(pem).map_err(|source| Fault::NotACertificate { path: path(), source })?;
        let gone = std::mem::replace(&mut self.cas, cas);
        self.former.splice(0..0, gone);
        let mut kept: Vec<Cert> = Vec::new();
        for cert in std::mem::take(&mut self.former) {
            let known = self.cas.iter().chain(&kept).any(|other| other.der == cert.der);
            if !known && now < cert.not_after && kept.len() < MOST_FORMER {
                kept.push(cert);
            }
        }
        self.former = kept;
        Ok(())
    }

    fn publish(&self, now: Timestamp) {
        let mut bundle: Vec<u8> = self.cas.iter().flat_map(|cert| cert.pem.bytes()).collect();
        for cert in self.former.iter().filter(|cert| now < cert.not_after) {
            if bundle.len() + cert.pem.len() <= LONGEST_BUNDLE {
                bundle.extend(cert.pem.bytes());
            }
        }
        self.filled.publish(bundle, self.cas.first().map(|cert| cert.not_after));
    }

    /// Says what is wrong, once as long as it stays the same.
    fn say(&mut self, faults: &[Fault]) {
        let mut said = Vec::new();
        for fault in faults {
            let text = fault.to_string();
            if !self.said.contains(&text) {
                let error = fault as &dyn std::error::Error;
                let kept =
                    if self.filled.serving.loaded() { "; the last good pair stays in use" } else { "" };
                tracing::warn!(error, "The certificate files are not right{kept}");
            }
            said.push(text);
        }
        self.said = said;
    }
}

/// Reads until two readings agree.
fn read_steadily(paths: &Paths) -> Result<Contents, Fault> {
    let mut contents = read_once(paths)?;
    for _ in 1..TRIES {
        let again = read_once(paths)?;
        if again == contents {
            break;
        }
        contents = again;
    }
    Ok(contents)
}

fn read_once(paths: &Paths) -> Result<Contents, Fault> {
    let ca = match read(&paths.ca) {
        Ok(ca) => Some(ca),
        Err(Fault::Unreadable { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => None,
        Err(fault) => return Err(fault),
    };
    Ok(Contents { cert: read(&paths.cert)?, key: read(&paths.key)?, ca })
}

fn read(path: &Path) -> Result<Vec<u8>, Fault> {
    let unreadable = |source| Fault::Unreadable { path: path.to_owned(), source };
    // To open a pipe would be to wait for who writes it.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(unreadable(std::io::Error::other("it is no regular file")));
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    file.take(LONGEST as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() > LONGEST {
        return Err(Fault::TooLong { path: path.to_owned(), limit: LONGEST });
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
