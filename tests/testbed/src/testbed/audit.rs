//! Writes in kube-apiserver's audit log, independent of what the program reports. The id of its token identifies each
//! replica of a service account.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use k8s_openapi::ByteString;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::testbed::{Data, Testbed};

const LOG: &str = "audit.log";

/// Writes of service accounts outside kube-system, whose controllers write all the time. Writes of statuses include
/// the request body.
const WRITES: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, userGroups: ['system:serviceaccounts:kube-system']}
- {level: Request, verbs: [patch], resources: [{group: llmd.ai, resources: [variantautoscalings/status]}]}
- {level: Metadata, userGroups: ['system:serviceaccounts'], verbs: [create, update, patch, delete, deletecollection]}
- {level: None}
";
/// All requests of service accounts. A watch is logged when it begins and when it ends.
const ALL: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, userGroups: ['system:serviceaccounts:kube-system']}
- {level: Metadata, userGroups: ['system:serviceaccounts']}
- {level: None}
";

/// Requests to log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Audit {
    #[default]
    Off,
    Writes,
    /// Writes, reads and watches.
    All,
}

/// A write, or with [`Audit::All`] any request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Time at which kube-apiserver received it.
    pub at: Timestamp,
    /// Id of its token: [`credential_id`].
    pub credential: String,
    /// User, such as `system:serviceaccount:<namespace>:<name>`.
    pub user: String,
    /// `create`, `update`, `patch`, `delete` or `deletecollection`; for reads `get`, `list` or `watch`.
    pub verb: String,
    /// Resource and subresource, such as `variantautoscalings/status`.
    pub resource: String,
    pub namespace: String,
    /// Name of the object; empty if the request has none.
    pub name: String,
    /// Status code of the answer; 0 without an answer.
    pub code: u16,
    /// Request body of status writes; otherwise `Null`.
    pub body: Value,
}

impl Write {
    /// Target in a status.
    pub fn target(&self) -> Option<u64> {
        self.body.pointer("/status/desiredOptimizedAlloc/numReplicas").and_then(Value::as_u64)
    }

    /// Whether it changed stored state: it was not denied, and is not a review, which is also sent as a create.
    pub fn stored(&self) -> bool {
        (200..300).contains(&self.code)
            && !self.resource.ends_with("reviews")
            && self.resource != "serviceaccounts/token"
    }
}

impl Testbed {
    /// Writes of service accounts so far, or with [`Audit::All`] all their requests. A request appears once it is
    /// answered.
    pub fn audit(&self) -> anyhow::Result<Vec<Write>> {
        let path = self.data().join(LOG);
        let log = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}: was an audit asked for?", path.display()))?;
        // The last line may be incomplete.
        let whole = log.rfind('\n').map_or("", |end| &log[..end]);
        whole.lines().map(write).collect()
    }
}

fn write(line: &str) -> anyhow::Result<Write> {
    let record: Value = serde_json::from_str(line).context("a line of the audit log is not JSON")?;
    let text = |pointer: &str| record.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let resource = [text("/objectRef/resource"), text("/objectRef/subresource")].join("/");
    let credential = "/user/extra/authentication.kubernetes.io~1credential-id/0";
    Ok(Write {
        at: text("/requestReceivedTimestamp").parse().with_context(|| format!("no time in {line}"))?,
        credential: text(credential).to_owned(),
        user: text("/user/username").to_owned(),
        verb: text("/verb").to_owned(),
        resource: resource.trim_end_matches('/').to_owned(),
        namespace: text("/objectRef/namespace").to_owned(),
        name: text("/objectRef/name").to_owned(),
        code: record.pointer("/responseStatus/code").and_then(Value::as_u64).unwrap_or(0).try_into()?,
        body: record["requestObject"].clone(),
    })
}

/// Id of a service account token in the audit log.
pub fn credential_id(token: &str) -> anyhow::Result<String> {
    let claims = token.split('.').nth(1).context("the token has no claims")?;
    let mut standard = claims.replace('-', "+").replace('_', "/");
    standard.push_str(&"=".repeat((4 - standard.len() % 4) % 4));
    let ByteString(claims) = serde_json::from_value(json!(standard)).context("the claims are no base64")?;
    let claims: Value = serde_json::from_slice(&claims).context("the claims are no JSON")?;
    Ok(format!("JTI={}", claims["jti"].as_str().context("the token has no id")?))
}

/// Audit policy file; `None` without an audit log.
pub(crate) fn write_policy(data: &Data, audit: Audit) -> anyhow::Result<Option<PathBuf>> {
    let policy = match audit {
        Audit::Off => return Ok(None),
        Audit::Writes => WRITES,
        Audit::All => ALL,
    };
    data.write("audit-policy.yaml", policy).map(Some)
}

pub(crate) fn flags(policy: &Path, data: &Data) -> [String; 3] {
    [
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", data.path.join(LOG).display()),
        // Blocking mode writes each line before the answer, so that answered requests can be read.
        "--audit-log-mode=blocking".to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_credential_id_from_token() -> anyhow::Result<()> {
        // {"jti":"a?b>c??"}, whose base64 contains both characters that differ in base64url.
        assert_eq!(credential_id("e30.eyJqdGkiOiJhP2I-Yz8_In0.sig")?, "JTI=a?b>c??");
        assert!(credential_id("opaque").is_err());
        Ok(())
    }

    #[test]
    fn parses_audit_line() -> anyhow::Result<()> {
        let line = |resource: &str, sub: &str, code: u16| {
            json!({
                "verb": "patch", "requestReceivedTimestamp": "2026-11-21T20:00:00.123456Z",
                "user": {"extra": {"authentication.kubernetes.io/credential-id": ["JTI=x"]}},
                "objectRef": {"resource": resource, "subresource": sub, "name": "llama"},
                "responseStatus": {"code": code},
            })
            .to_string()
        };
        let status = write(&line("variantautoscalings", "status", 200))?;
        assert_eq!((status.credential.as_str(), status.name.as_str()), ("JTI=x", "llama"));
        assert_eq!((status.resource.as_str(), status.stored()), ("variantautoscalings/status", true));
        assert!(!write(&line("leases", "", 409))?.stored());
        assert!(!write(&line("tokenreviews", "", 201))?.stored());
        Ok(())
    }
}
