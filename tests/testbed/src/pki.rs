//! Keys and certificates of one control plane, generated at each start: CA and serving certificate of kube-apiserver,
//! front-proxy CA and client certificate for aggregated API servers (required by the external metrics API), and the
//! key that signs service account tokens.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

use crate::Testbed;

/// CA of kube-apiserver's certificate.
pub(crate) const CA: &str = "ca.crt";
/// CA that webhooks use to verify kube-apiserver.
pub(crate) const WEBHOOK_CLIENT_CA: &str = "webhook-client-ca.crt";

/// Generates everything (ECDSA P-256) into `folder`.
pub(crate) fn write(folder: &Path) -> anyhow::Result<()> {
    let hosts = ["127.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
    let (server, client) = (ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth);
    issue(folder, CA, "apiserver", "kube-apiserver", &hosts, &[server])?;
    // The common name must match --requestheader-allowed-names.
    issue(folder, "front-proxy-ca.crt", "front-proxy", "front-proxy-client", &[], &[client])?;
    let key = KeyPair::generate().context("cannot make the service account key")?;
    save(folder, "service-account.key", &key.serialize_pem())?;
    save(folder, "service-account.pub", &key.public_key_pem())
}

/// Generates a CA and the client certificate that kube-apiserver presents to webhooks.
pub(crate) fn write_webhook_client(folder: &Path) -> anyhow::Result<()> {
    let purpose = ExtendedKeyUsagePurpose::ClientAuth;
    issue(folder, WEBHOOK_CLIENT_CA, "webhook-client", "kube-apiserver", &[], &[purpose])
}

impl Testbed {
    /// Generates a CA and a certificate for these host names: `ca.crt`, `tls.crt` and `tls.key`.
    pub fn serving_certificate(&self, name: &str, hosts: &[&str]) -> anyhow::Result<PathBuf> {
        let folder = self.data().join(name);
        write_serving(&folder, hosts)?;
        Ok(folder)
    }
}

/// Generates a CA and a certificate for servers and clients with these host names: `ca.crt`, `tls.crt` and `tls.key`.
fn write_serving(folder: &Path, hosts: &[&str]) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let purposes = [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    issue(folder, CA, "tls", "consumer", hosts, &purposes)
}

/// Generates a CA and a certificate signed by it: `<stem>.crt` and `<stem>.key`.
fn issue(
    folder: &Path,
    ca_file: &str,
    stem: &str,
    name: &str,
    hosts: &[&str],
    purposes: &[ExtendedKeyUsagePurpose],
) -> anyhow::Result<()> {
    let ca = authority(&format!("testbed-{}", ca_file.trim_end_matches(".crt")))?;
    let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
    let mut params = CertificateParams::new(hosts).with_context(|| format!("bad host names for {name}"))?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages = purposes.to_vec();
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate().with_context(|| format!("cannot make the key of {name}"))?;
    let cert = params.signed_by(&key, &ca).with_context(|| format!("cannot sign the certificate {name}"))?;
    save(folder, ca_file, &ca.pem())?;
    save(folder, &format!("{stem}.crt"), &cert.pem())?;
    save(folder, &format!("{stem}.key"), &key.serialize_pem())
}

fn authority(name: &str) -> anyhow::Result<CertifiedIssuer<'static, KeyPair>> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate().with_context(|| format!("cannot make the key of {name}"))?;
    CertifiedIssuer::self_signed(params, key).with_context(|| format!("cannot sign the CA {name}"))
}

fn save(folder: &Path, file: &str, text: &str) -> anyhow::Result<()> {
    let path = folder.join(file);
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}
