//! Agreement on one CA: the Secret, each `caBundle`, and the certificates of the replicas, checked together.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Api;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use wva_testbed::handshake::handshake;
use wva_testbed::install::{API_SERVICE, SERVICE, WEBHOOKS};
use wva_testbed::replicas::Replicas;
use wva_testbed::within;

const CALL: Duration = Duration::from_secs(10);
/// Entry of the Secret with the CA that signs.
pub(super) const CA_ENTRY: &str = "ca.crt";

/// CA and bundles at one moment.
pub(super) struct Trust {
    /// CA of the Secret, DER; `None` where it is missing or invalid.
    pub(super) ca: Option<Vec<u8>>,
    /// PEM of each `caBundle`, by its owner and endpoint; empty where it is missing.
    pub(super) bundles: BTreeMap<(String, &'static str), Vec<u8>>,
}

impl Trust {
    pub(super) async fn read(replicas: &Replicas<'_>) -> anyhow::Result<Self> {
        let client = replicas.testbed().admin()?;
        let name = replicas.name(WEBHOOKS);
        let secrets = Api::<Secret>::namespaced(client.clone(), &replicas.system());
        let secret = within("reading the Secret", CALL, secrets.get_opt(&secret_name(replicas))).await?;
        let pem = secret.and_then(|secret| secret.data?.remove(CA_ENTRY));
        let ca = pem.and_then(|pem| CertificateDer::from_pem_slice(&pem.0).ok()).map(|der| der.to_vec());
        let mut bundles = BTreeMap::new();
        let mut add = |name: String, config: WebhookClientConfig| {
            bundles.insert((name, "admission"), config.ca_bundle.map(|bundle| bundle.0).unwrap_or_default());
        };
        let mutating = Api::<MutatingWebhookConfiguration>::all(client.clone());
        let mutating = within("reading the mutating webhooks", CALL, mutating.get(&name)).await?;
        mutating.webhooks.into_iter().flatten().for_each(|webhook| add(webhook.name, webhook.client_config));
        let validating = Api::<ValidatingWebhookConfiguration>::all(client.clone());
        let validating = within("reading the validating webhooks", CALL, validating.get(&name)).await?;
        validating
            .webhooks
            .into_iter()
            .flatten()
            .for_each(|webhook| add(webhook.name, webhook.client_config));
        if replicas.serves_metrics_api() {
            let services = Api::<APIService>::all(client);
            let service = within("reading the APIService", CALL, services.get(API_SERVICE)).await?;
            let bundle = service.spec.and_then(|spec| spec.ca_bundle).map(|bundle| bundle.0);
            bundles.insert((API_SERVICE.to_owned(), "external metrics"), bundle.unwrap_or_default());
        }
        Ok(Self { ca, bundles })
    }

    /// Checks that every `caBundle` contains the CA of the Secret, and only certificates.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let ca = self.ca.as_ref().context("the Secret holds no CA")?;
        ensure!(self.bundles.len() >= 4, "only {} webhooks", self.bundles.len());
        for ((name, _), bundle) in &self.bundles {
            let certificates = CertificateDer::pem_slice_iter(bundle).collect::<Result<Vec<_>, _>>();
            let certificates = certificates.with_context(|| format!("the caBundle of {name}"))?;
            ensure!(certificates.iter().any(|der| der.as_ref() == ca), "{name} lacks the CA of the Secret");
        }
        Ok(())
    }

    /// Runs TLS handshakes with these replicas for each bundle. Returns their number and the failures.
    pub(super) async fn run_handshakes(
        &self,
        replicas: &Replicas<'_>,
        indexes: &[usize],
    ) -> (usize, Vec<String>) {
        let name = format!("{}.{}.svc", replicas.name(SERVICE), replicas.system());
        let mut failed = Vec::new();
        // Most bundles are equal: one handshake for all of these.
        let mut different: BTreeMap<(&str, &[u8]), &str> = BTreeMap::new();
        for ((owner, what), bundle) in &self.bundles {
            different.insert((what, bundle), owner);
        }
        for (&(what, bundle), owner) in &different {
            for &index in indexes {
                let result = match replicas.port(index, what) {
                    Ok(port) => handshake(port, &name, bundle).await,
                    Err(error) => Err(error),
                };
                failed.extend(result.err().map(|error| format!("wva-{index} by {owner}: {error:#}")));
            }
        }
        (different.len() * indexes.len(), failed)
    }
}

pub(super) fn secret_name(replicas: &Replicas<'_>) -> String {
    format!("{}-ca", replicas.name(SERVICE))
}

/// Checks that Secret, bundles and certificates of these replicas agree now.
pub(super) async fn check_agreement(replicas: &Replicas<'_>, indexes: &[usize]) -> anyhow::Result<Trust> {
    let trust = Trust::read(replicas).await?;
    trust.check()?;
    let (_, failed) = trust.run_handshakes(replicas, indexes).await;
    ensure!(failed.is_empty(), "{}", failed.join("; "));
    Ok(trust)
}
