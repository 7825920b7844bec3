//! Certificates for endpoint pickers that serve their metrics over HTTPS. Other programs renew the files.

use std::time::Duration;

use tokio::sync::watch;
use wva_runtime::pem;
use wva_runtime::tls::{ClientIdentity, certificates};

use crate::collect::page::PageTls;

const REREAD: Duration = Duration::from_mins(1);

/// Files of `EPP_METRIC_READER_CA_CERT_PATH`, `EPP_METRIC_READER_CLIENT_CERT_PATH` and
/// `EPP_METRIC_READER_CLIENT_KEY_PATH`, and the name of `EPP_METRIC_READER_SERVER_NAME`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PickerTls {
    /// CA of the pickers. `None`: their certificates are not verified.
    pub ca: Option<String>,
    /// Client certificate and its key.
    pub client: Option<(String, String)>,
    /// Name in the certificates. `None`: that of the picker's Service.
    pub server_name: Option<String>,
}

/// Certificates, or why they cannot be used.
pub(super) type Certificates = Result<PageTls, String>;

impl PickerTls {
    /// Reads the files again from time to time, and keeps the last valid ones. Never returns.
    pub(super) async fn keep_read(&self, sender: &watch::Sender<Certificates>) {
        let mut last_fault = None;
        loop {
            let files = self.clone();
            let read = tokio::task::spawn_blocking(move || files.read()).await;
            match read.unwrap_or_else(|_| Err("cannot read the files".to_owned())) {
                Ok(read) => {
                    last_fault = None;
                    drop(sender.send_replace(Ok(read)));
                }
                Err(fault) => {
                    if last_fault.as_ref() != Some(&fault) {
                        tracing::warn!(
                            fault,
                            "Cannot use the certificates for endpoint pickers; the last valid ones stay"
                        );
                    }
                    sender.send_if_modified(|now| {
                        let is_fault = now.is_err();
                        if is_fault {
                            *now = Err(fault.clone());
                        }
                        is_fault
                    });
                    last_fault = Some(fault);
                }
            }
            if *self == Self::default() {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(REREAD).await;
        }
    }

    fn read(&self) -> Certificates {
        let file = |setting: &str, path: &str| {
            pem::read(path).map_err(|error| format!("EPP_METRIC_READER_{setting} {path}: {error}"))
        };
        let mut tls = PageTls { server_name: self.server_name.clone(), ..PageTls::default() };
        if let Some(path) = &self.ca {
            let pem = file("CA_CERT_PATH", path)?;
            tls.roots = Some(certificates(&pem).map_err(|problem| {
                format!("EPP_METRIC_READER_CA_CERT_PATH {path}: {problem}; it must hold PEM certificates")
            })?);
        }
        if let Some((cert, key)) = &self.client {
            let pem = pem::join(file("CLIENT_CERT_PATH", cert)?, file("CLIENT_KEY_PATH", key)?);
            let identity = ClientIdentity::from_pem(&pem).map_err(|problem| {
                format!("EPP_METRIC_READER_CLIENT_CERT_PATH {cert} and EPP_METRIC_READER_CLIENT_KEY_PATH {key}: {problem}; they must hold a PEM certificate and its key")
            })?;
            tls.identity = Some(identity);
        }
        Ok(tls)
    }
}

#[cfg(test)]
mod tests;
