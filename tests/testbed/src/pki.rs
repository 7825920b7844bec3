//! The keys and certificates of one control plane, made anew each time: the CA and serving certificate of
//! kube-apiserver, the front-proxy CA and client certificate it shows to aggregated API servers (without them no
//! external metrics API can be served), and the key that signs service account tokens.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

/// The files, all in one folder.
#[derive(Debug, Clone)]
pub(crate) struct Pki {
    pub(crate) ca: PathBuf,
    pub(crate) serving_cert: PathBuf,
    pub(crate) serving_key: PathBuf,
    pub(crate) front_proxy_ca: PathBuf,
    pub(crate) front_proxy_cert: PathBuf,
    pub(crate) front_proxy_key: PathBuf,
    pub(crate) service_account_key: PathBuf,
    pub(crate) service_account_public: PathBuf,
}

impl Pki {
    /// Makes everything (ECDSA P-256) and writes it to `folder`.
    pub(crate) fn write(folder: &Path) -> anyhow::Result<Self> {
        let pki = Self {
            ca: folder.join("ca.crt"),
            serving_cert: folder.join("apiserver.crt"),
            serving_key: folder.join("apiserver.key"),
            front_proxy_ca: folder.join("front-proxy-ca.crt"),
            front_proxy_cert: folder.join("front-proxy.crt"),
            front_proxy_key: folder.join("front-proxy.key"),
            service_account_key: folder.join("service-account.key"),
            service_account_public: folder.join("service-account.pub"),
        };
        let names = ["127.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
        let ca = authority("testbed-ca")?;
        let (cert, key) = leaf("kube-apiserver", &names, ExtendedKeyUsagePurpose::ServerAuth, &ca)?;
        save(&pki.ca, &ca.pem())?;
        save(&pki.serving_cert, &cert)?;
        save(&pki.serving_key, &key)?;
        let ca = authority("testbed-front-proxy-ca")?;
        // The common name is the one that --requestheader-allowed-names lets through.
        let (cert, key) = leaf("front-proxy-client", &[], ExtendedKeyUsagePurpose::ClientAuth, &ca)?;
        save(&pki.front_proxy_ca, &ca.pem())?;
        save(&pki.front_proxy_cert, &cert)?;
        save(&pki.front_proxy_key, &key)?;
        let key = KeyPair::generate().context("cannot make the service account key")?;
        save(&pki.service_account_key, &key.serialize_pem())?;
        save(&pki.service_account_public, &key.public_key_pem())?;
        Ok(pki)
    }
}

/// File of the CA by which webhooks verify kube-apiserver.
pub(crate) const WEBHOOK_CLIENT_CA: &str = "webhook-client-ca.crt";

/// Makes a CA and the client certificate that kube-apiserver shows to webhooks; the files of certificate and key.
pub(crate) fn write_webhook_client(folder: &Path) -> anyhow::Result<(PathBuf, PathBuf)> {
    let ca = authority("testbed-webhook-client-ca")?;
    let (cert, key) = leaf("kube-apiserver", &[], ExtendedKeyUsagePurpose::ClientAuth, &ca)?;
    let files = (folder.join("webhook-client.crt"), folder.join("webhook-client.key"));
    save(&folder.join(WEBHOOK_CLIENT_CA), &ca.pem())?;
    save(&files.0, &cert)?;
    save(&files.1, &key)?;
    Ok(files)
}

fn authority(name: &str) -> anyhow::Result<CertifiedIssuer<'static, KeyPair>> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate().with_context(|| format!("cannot make the key of {name}"))?;
    CertifiedIssuer::self_signed(params, key).with_context(|| format!("cannot sign the CA {name}"))
}

fn leaf(
    name: &str,
    hosts: &[&str],
    purpose: ExtendedKeyUsagePurpose,
    ca: &CertifiedIssuer<'static, KeyPair>,
) -> anyhow::Result<(String, String)> {
    let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
    let mut params = CertificateParams::new(hosts).with_context(|| format!("bad host names for {name}"))?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages = vec![purpose];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate().with_context(|| format!("cannot make the key of {name}"))?;
    let cert = params.signed_by(&key, ca).with_context(|| format!("cannot sign the certificate {name}"))?;
    Ok((cert.pem(), key.serialize_pem()))
}

fn save(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
