//! Certificates of one process.

use std::path::Path;

use anyhow::Context;
use wva_certs::{Certs, CertsConfig};

use super::{Process, run_to_end};
use crate::settings::{CertificateFiles, Certificates};
use crate::telemetry;

pub(super) struct ServingCerts {
    serving: Option<Certs>,
    /// Certificates of the metrics endpoint, if it has its own files.
    metrics: Option<Certs>,
}

impl ServingCerts {
    /// Certificates of admission and the external metrics API.
    pub(super) fn serving(&self) -> anyhow::Result<&Certs> {
        self.serving.as_ref().context("no serving certificate: WVA_CERT_MODE is off")
    }

    pub(super) fn metrics(&self) -> anyhow::Result<&Certs> {
        self.metrics.as_ref().map_or_else(|| self.serving(), Ok)
    }
}

impl Process {
    pub(super) fn start_certificates(&mut self) -> anyhow::Result<ServingCerts> {
        let serving = match self.settings.certificates.clone() {
            Certificates::Off => None,
            Certificates::Files(files) => Some(self.start_file_certs("certificate files", &files)),
            Certificates::SelfSigned { ca_lifetime, lifetime } => {
                Some(self.start_self_signed(ca_lifetime, lifetime)?)
            }
        };
        let own = self
            .settings
            .endpoints
            .metrics_certificate
            .clone()
            .filter(|_| self.settings.endpoints.metrics_secure);
        let metrics = own.map(|files| self.start_file_certs("certificate files of metrics", &files));
        let checks = [("certificate is loaded", &serving), ("certificate of metrics is loaded", &metrics)];
        for (check, certs) in checks {
            if let Some(certs) = certs.clone() {
                self.checks.push((check, Box::new(move || certs.is_loaded())));
            }
        }
        let sets = [("", &serving), ("metrics-", &metrics)];
        let sets = sets.into_iter().filter_map(|(prefix, certs)| Some((prefix, certs.clone()?))).collect();
        self.metrics.registry.register(Box::new(telemetry::CertificateExpiry::new(sets)?))?;
        Ok(ServingCerts { serving, metrics })
    }

    fn start_self_signed(
        &mut self,
        ca_lifetime: std::time::Duration,
        cert_lifetime: std::time::Duration,
    ) -> anyhow::Result<Certs> {
        let service = self.settings.identity.service.as_deref();
        let namespace = self.settings.identity.namespace.clone();
        let mut dns_names = service.map(|s| CertsConfig::service_names(s, &namespace)).unwrap_or_default();
        dns_names.push("localhost".to_owned());
        let secret_name = format!("{}-ca", service.unwrap_or("wva"));
        let event_source = self.settings.event_source();
        let config =
            CertsConfig { namespace, secret_name, dns_names, ca_lifetime, cert_lifetime, event_source };
        let shutdown = self.signals.shutdown.clone();
        let (certs, task) =
            Certs::start(self.clients.client.clone(), config, wva_runtime::system_clock(), shutdown)?;
        self.spawn("certificates", run_to_end(Box::pin(task)));
        let (rotating, fenced) = (certs.clone(), self.clients.fenced.clone());
        self.spawn_leading("rotation of the CA", move |ended| {
            run_to_end(rotating.rotate(fenced.clone(), ended))
        });
        Ok(certs)
    }

    fn start_file_certs(&mut self, task: &'static str, files: &CertificateFiles) -> Certs {
        let (certs, reading) = Certs::from_files(
            Path::new(&files.folder),
            &files.certificate,
            &files.key,
            wva_runtime::system_clock(),
            self.signals.shutdown.clone(),
        );
        self.spawn(task, run_to_end(reading));
        certs
    }
}
