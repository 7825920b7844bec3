//! Damage to a CA that others must trust: its Secret or a `caBundle` is deleted, emptied, filled with garbage, or
//! replaced by another CA.

use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use serde_json::{Value, json};

use super::trust::{CA_ENTRY, secret_name};
use wva_testbed::install::{API_SERVICE, WEBHOOKS};
use wva_testbed::replicas::Replicas;
use wva_testbed::within;

const CALL: Duration = Duration::from_secs(10);
const CA_KEY_ENTRY: &str = "ca.key";

/// Damaged object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DamageTarget {
    Secret,
    Mutating,
    Validating,
    ApiService,
}

/// Kind of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DamageKind {
    Deleted,
    Emptied,
    Garbage,
    AnotherCa,
}

impl DamageKind {
    pub(super) const ALL: [Self; 4] = [Self::Deleted, Self::Emptied, Self::Garbage, Self::AnotherCa];
}

impl DamageTarget {
    /// Whether kube-apiserver itself loses the CA, so that reviews may fail until the repair.
    pub(super) fn is_the_api_servers(self) -> bool {
        matches!(self, Self::Mutating | Self::Validating)
    }

    /// Damages the object.
    pub(super) async fn damage(self, kind: DamageKind, replicas: &Replicas<'_>) -> anyhow::Result<()> {
        match self {
            Self::Secret => secret(kind, replicas).await,
            _ => bundle(self, kind, replicas).await,
        }
    }

    /// Kind and base name of the object with the bundle.
    fn bundle_object(self) -> (&'static str, &'static str) {
        match self {
            Self::Mutating => ("mutatingwebhookconfiguration", WEBHOOKS),
            Self::ApiService => ("apiservice", API_SERVICE),
            Self::Validating | Self::Secret => ("validatingwebhookconfiguration", WEBHOOKS),
        }
    }
}

async fn secret(kind: DamageKind, replicas: &Replicas<'_>) -> anyhow::Result<()> {
    let api = Api::<Secret>::namespaced(replicas.testbed().admin()?, &replicas.system());
    let name = secret_name(replicas);
    let patch = match kind {
        DamageKind::Deleted => {
            within("deleting the Secret", CALL, api.delete(&name, &DeleteParams::default())).await?;
            return Ok(());
        }
        DamageKind::Emptied => json!({"data": null}),
        DamageKind::Garbage => {
            let entries = [CA_ENTRY, CA_KEY_ENTRY].map(|entry| (entry.to_owned(), json!("bm8gUEVNCg==")));
            json!({"data": entries.into_iter().collect::<serde_json::Map<_, _>>()})
        }
        DamageKind::AnotherCa => {
            let (cert, key) = another_ca()?;
            let text = |pem: String| ByteString(pem.into_bytes());
            json!({"data": {CA_ENTRY: text(cert), CA_KEY_ENTRY: text(key), "previous-ca.crt": null}})
        }
    };
    let patch = Patch::Merge(patch);
    within("changing the Secret", CALL, api.patch(&name, &PatchParams::default(), &patch)).await?;
    Ok(())
}

async fn bundle(target: DamageTarget, kind: DamageKind, replicas: &Replicas<'_>) -> anyhow::Result<()> {
    let value = match kind {
        DamageKind::Deleted => None,
        DamageKind::Emptied => Some(json!("")),
        // An API server denies a bundle that is not PEM, so the garbage is inside PEM.
        DamageKind::Garbage => Some(json!(ByteString(
            b"-----BEGIN CERTIFICATE-----\nbm8gY2VydGlmaWNhdGU=\n-----END CERTIFICATE-----\n".to_vec()
        ))),
        DamageKind::AnotherCa => Some(json!(ByteString(another_ca()?.0.into_bytes()))),
    };
    let (kind, base) = target.bundle_object();
    let (testbed, name) = (replicas.testbed(), replicas.name(base));
    let stored = testbed.kubectl(&["get", kind, &name, "-o", "json"]).await?.success()?;
    let stored: Value = serde_json::from_str(&stored)?;
    let paths: Vec<String> = match stored["webhooks"].as_array() {
        None => vec!["/spec/caBundle".to_owned()],
        Some(webhooks) => {
            (0..webhooks.len()).map(|index| format!("/webhooks/{index}/clientConfig/caBundle")).collect()
        }
    };
    let operations = paths.into_iter().map(|path| match &value {
        None => json!({"op": "remove", "path": path}),
        Some(value) => json!({"op": "replace", "path": path, "value": value}),
    });
    let operations = operations.collect::<Value>().to_string();
    testbed.kubectl(&["patch", kind, &name, "--type=json", "-p", &operations]).await?.success().map(|_| ())
}

/// Certificate and key, PEM, of an unknown CA.
fn another_ca() -> anyhow::Result<(String, String)> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "another-ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let key = KeyPair::generate().context("cannot make a key")?;
    let issuer = CertifiedIssuer::self_signed(params, key).context("cannot sign a CA")?;
    Ok((issuer.pem(), issuer.key().serialize_pem()))
}
