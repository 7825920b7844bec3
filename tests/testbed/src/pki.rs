//! The keys and certificates of one control plane, made each time: the CA and serving certificate of
//! kube-apiserver, the front-proxy CA and client certificate it shows to aggregated API servers (without them no
//! external metrics API can be served), and the key that signs service account tokens.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

use crate::Testbed;

/// The CA of kube-apiserver's certificate.
pub(crate) const CA: &str = "ca.crt";
/// The CA by which webhooks verify kube-apiserver.
pub(crate) const WEBHOOK_CLIENT_CA: &str = "webhook-client-ca.crt";

/// Makes everything (ECDSA P-256) and writes it to `folder`.
pub(crate) fn write(folder: &Path) -> anyhow::Result<()> {
    let hosts = ["127.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
    let (server, client) = (ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth);
    issue(folder, CA, "apiserver", "kube-apiserver", &hosts, &[server])?;
    // The common name is the one that --requestheader-allowed-names lets through.
    issue(folder, "front-proxy-ca.crt", "front-proxy", "front-proxy-client", &[], &[client])?;
    let key = KeyPair::generate().context("cannot make the service account key")?;
    save(folder, "service-account.key", &key.serialize_pem())?;
    save(folder, "service-account.pub", &key.public_key_pem())
}

/// Makes a CA and the client certificate that kube-apiserver shows to webhooks.
pub(crate) fn write_webhook_client(folder: &Path) -> anyhow::Result<()> {
    let purpose = ExtendedKeyUsagePurpose::ClientAuth;
    issue(folder, WEBHOOK_CLIENT_CA, "webhook-client", "kube-apiserver", &[], &[purpose])
}

impl Testbed {
    /// Makes a CA and a certificate for these host names; the folder has `ca.crt`, `tls.crt` and `tls.key`.
    pub fn serving_certificate(&self, name: &str, hosts: &[&str]) -> anyhow::Result<PathBuf> {
        let folder = self.data().join(name);
        write_serving(&folder, hosts)?;
        Ok(folder)
    }
}

/// Makes a CA and, signed by it, a certificate for these host names that servers and clients may use, as `ca.crt`,
/// `tls.crt` and `tls.key`.
fn write_serving(folder: &Path, hosts: &[&str]) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let purposes = [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    issue(folder, CA, "tls", "consumer", hosts, &purposes)
}

/// Makes a CA and, signed by it, `<stem>.crt` with `<stem>.key`.
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
