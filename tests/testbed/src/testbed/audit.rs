//! Who changed what, as kube-apiserver's audit log has it: the one witness of writes that no program under test can
//! fool. Replicas of one service account are told apart by the id of the token each of them has.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use k8s_openapi::ByteString;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::testbed::{Data, Testbed};

const LOG: &str = "audit.log";

/// Writes of service accounts outside kube-system, whose controllers write all the time and are not under test. Of
/// statuses also what is written.
const WRITES: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, userGroups: ['system:serviceaccounts:kube-system']}
- {level: Request, verbs: [patch], resources: [{group: llmd.ai, resources: [variantautoscalings/status]}]}
- {level: Metadata, userGroups: ['system:serviceaccounts'], verbs: [create, update, patch, delete, deletecollection]}
- {level: None}
";
/// All that they ask for. A watch is written down when it begins and when it ends.
const ALL: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, userGroups: ['system:serviceaccounts:kube-system']}
- {level: Metadata, userGroups: ['system:serviceaccounts']}
- {level: None}
";

/// What is written down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Audit {
    #[default]
    Off,
    Writes,
    /// Reads and watches too.
    All,
}

/// A request that would change something, or with [`Audit::All`] any request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// When kube-apiserver received it.
    pub at: Timestamp,
    /// Id of the token it came with: [`credential_id`].
    pub credential: String,
    /// Who sent it, such as `system:serviceaccount:<namespace>:<name>`.
    pub user: String,
    /// `create`, `update`, `patch`, `delete` or `deletecollection`; of reads `get`, `list` or `watch`.
    pub verb: String,
    /// Resource and subresource, such as `variantautoscalings/status`.
    pub resource: String,
    pub namespace: String,
    /// Name of the object; empty where the request has none.
    pub name: String,
    /// Status code of the answer; 0 where there was none.
    pub code: u16,
    /// What was sent, of statuses; `Null` of all else.
    pub body: Value,
}

impl Write {
    /// The target in a status.
    pub fn target(&self) -> Option<u64> {
        self.body.pointer("/status/desiredOptimizedAlloc/numReplicas").and_then(Value::as_u64)
    }

    /// Whether it changed what is stored: it was not refused, and is no question that is asked by creating an object.
    pub fn stored(&self) -> bool {
        (200..300).contains(&self.code)
            && !self.resource.ends_with("reviews")
            && self.resource != "serviceaccounts/token"
    }
}

impl Testbed {
    /// The writes of service accounts so far, or with [`Audit::All`] all that they asked for. A request is written down
    /// when it was answered.
    pub fn audit(&self) -> anyhow::Result<Vec<Write>> {
        let path = self.data().join(LOG);
        let log = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}: was an audit asked for?", path.display()))?;
        // The last line may be half written.
        let whole = log.rfind('\n').map_or("", |end| &log[..end]);
        whole.lines().map(write).collect()
    }
}

fn write(line: &str) -> anyhow::Result<Write> {
    let record: Value = serde_json::from_str(line).context("a line of the audit log is no JSON")?;
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

/// How kube-apiserver names a service account's token in the audit log: by the token's own id.
pub fn credential_id(token: &str) -> anyhow::Result<String> {
    let claims = token.split('.').nth(1).context("the token has no claims")?;
    let mut standard = claims.replace('-', "+").replace('_', "/");
    standard.push_str(&"=".repeat((4 - standard.len() % 4) % 4));
    let ByteString(claims) = serde_json::from_value(json!(standard)).context("the claims are no base64")?;
    let claims: Value = serde_json::from_slice(&claims).context("the claims are no JSON")?;
    Ok(format!("JTI={}", claims["jti"].as_str().context("the token has no id")?))
}

/// The policy, as a file; `None` where nothing is written down.
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
        // Each line is written before the answer goes out, so that what was answered can be read.
        "--audit-log-mode=blocking".to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_named_by_its_id() -> anyhow::Result<()> {
        // {"jti":"a?b>c??"}, whose base64 has both signs that differ for URLs.
        assert_eq!(credential_id("e30.eyJqdGkiOiJhP2I-Yz8_In0.sig")?, "JTI=a?b>c??");
        assert!(credential_id("opaque").is_err());
        Ok(())
    }

    #[test]
    fn a_line_is_read_and_judged() -> anyhow::Result<()> {
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
