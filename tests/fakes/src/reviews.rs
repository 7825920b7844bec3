//! Token and access reviews on the fake API server, and client certificates.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{FakeApi, Reply, Request};

/// A fake API server that allows these users everything.
pub fn reviewer(allowed: &'static [&'static str]) -> FakeApi {
    FakeApi::with_rule(move |request| review(request, allowed, &[]))
}

/// Answers a token review or an access review. `token-of-X` is the token of user X, unless X is revoked.
pub fn review(request: &Request, allowed: &[&str], revoked: &[&str]) -> Option<Reply> {
    let spec = &request.body["spec"];
    let status = if is_token_review(request) {
        let user = spec["token"].as_str().unwrap().strip_prefix("token-of-");
        match user.filter(|user| !revoked.contains(user)) {
            Some(user) => {
                json!({"authenticated": true, "user": {"username": user, "groups": ["system:authenticated"]}})
            }
            None => json!({"authenticated": false, "error": "unknown token"}),
        }
    } else if request.path.ends_with("reviews") {
        let allowed = allowed.contains(&spec["user"].as_str().unwrap());
        json!({"allowed": allowed, "reason": if allowed { "" } else { "RBAC says no" }})
    } else {
        return None;
    };
    let mut review = request.body.clone();
    review["status"] = status;
    Some(Reply::Json(201, review))
}

/// Whether a request is a `TokenReview`.
pub fn is_token_review(request: &Request) -> bool {
    request.path.ends_with("/tokenreviews")
}

/// `spec` of all access reviews.
pub fn access_reviews(fake: &FakeApi) -> Vec<Value> {
    let requests = fake.requests().into_iter().filter(|r| r.path.ends_with("/subjectaccessreviews"));
    requests.map(|request| request.body["spec"].clone()).collect()
}

/// A certificate authority for client certificates, like that of the aggregator.
pub struct ClientCa {
    issuer: rcgen::CertifiedIssuer<'static, rcgen::KeyPair>,
}

impl ClientCa {
    /// A CA with a new key.
    pub fn generate() -> Self {
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, "request-header-ca");
        let key = rcgen::KeyPair::generate().unwrap();
        Self { issuer: rcgen::CertifiedIssuer::self_signed(params, key).unwrap() }
    }

    /// Certificate of the CA.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// A client certificate for `name`, with its key.
    pub fn issue(&self, name: &str) -> (rcgen::Certificate, rcgen::KeyPair) {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    /// Data of ConfigMap `extension-apiserver-authentication` for this CA.
    pub fn config_map(&self) -> BTreeMap<String, String> {
        let entries = [
            ("client-ca-file", "not used"),
            ("requestheader-client-ca-file", &self.pem()),
            ("requestheader-allowed-names", r#"["front-proxy-client"]"#),
            ("requestheader-username-headers", r#"["X-Remote-User"]"#),
            ("requestheader-uid-headers", r#"["X-Remote-Uid"]"#),
            ("requestheader-group-headers", r#"["X-Remote-Group"]"#),
            ("requestheader-extra-headers-prefix", r#"["X-Remote-Extra-"]"#),
        ];
        entries.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }
}
