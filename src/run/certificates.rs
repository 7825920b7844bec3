//! The certificates of one process: whose task makes or reads them, and who serves with which.

use std::path::Path;

use anyhow::Context;
use wva_certs::{Certs, CertsConfig};

use super::{Process, settled};
use crate::settings::{CertificateFiles, Certificates};
use crate::telemetry;

/// Who serves with what.
pub(super) struct Served {
    serving: Option<Certs>,
    /// Of the metrics endpoint, where it has files of its own.
    metrics: Option<Certs>,
}

impl Served {
    /// For admission and the external metrics API.
    pub(super) fn serving(&self) -> anyhow::Result<&Certs> {
        self.serving.as_ref().context("there is no certificate to serve with: WVA_CERT_MODE is off")
    }

    /// For the metrics endpoint.
    pub(super) fn metrics(&self) -> anyhow::Result<&Certs> {
        self.metrics.as_ref().map_or_else(|| self.serving(), Ok)
    }
}

impl Process {
    /// Starts what makes or reads the certificates.
    pub(super) fn certificates(&mut self) -> anyhow::Result<Served> {
        let serving = match self.settings.certificates.clone() {
            Certificates::Off => None,
            Certificates::Files(files) => Some(self.read_files("certificate files", &files)),
            Certificates::SelfMade { ca_lifetime, lifetime } => Some(self.self_made(ca_lifetime, lifetime)?),
        };
        let own = self.settings.metrics_certificate.clone().filter(|_| self.settings.metrics_secure);
        let metrics = own.map(|files| self.read_files("certificate files of metrics", &files));
        let checks = [("certificate is loaded", &serving), ("certificate of metrics is loaded", &metrics)];
        for (check, certs) in checks {
            if let Some(certs) = certs.clone() {
                self.checks.push((check, Box::new(move || certs.loaded())));
            }
        }
        let shown = [("", &serving), ("metrics-", &metrics)];
        let shown = shown.into_iter().filter_map(|(prefix, certs)| Some((prefix, certs.clone()?))).collect();
        self.metrics.registry.register(Box::new(telemetry::CertificateExpiry::new(shown)?))?;
        Ok(Served { serving, metrics })
    }

    fn self_made(
        &mut self,
        ca_lifetime: std::time::Duration,
        cert_lifetime: std::time::Duration,
    ) -> anyhow::Result<Certs> {
        let service = self.settings.service.as_deref();
        let namespace = self.settings.namespace.clone();
        let mut dns_names = service.map(|s| CertsConfig::service_names(s, &namespace)).unwrap_or_default();
        dns_names.push("localhost".to_owned());
        let secret_name = format!("{}-ca", service.unwrap_or("wva"));
        let config = CertsConfig { namespace, secret_name, dns_names, ca_lifetime, cert_lifetime };
        let shutdown = self.end.shutdown.clone();
        let (certs, task) =
            Certs::start(self.clients.client.clone(), config, wva_runtime::system_clock(), shutdown)?;
        self.spawn("certificates", settled(Box::pin(task)));
        let (rotated, acting) = (certs.clone(), self.clients.acting.clone());
        self.spawn_leading("rotation of the CA", move |ended| settled(rotated.rotate(acting.clone(), ended)));
        Ok(certs)
    }

    fn read_files(&mut self, task: &'static str, files: &CertificateFiles) -> Certs {
        let (certs, reading) = Certs::from_files(
            Path::new(&files.folder),
            &files.certificate,
            &files.key,
            wva_runtime::system_clock(),
            self.end.shutdown.clone(),
        );
        self.spawn(task, settled(reading));
        certs
    }
}
