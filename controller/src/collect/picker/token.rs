//! Bearer token for endpoint pickers, which belong to tenants and never get the controller's own token.

use std::time::Duration;

use k8s_openapi::api::authentication::v1::{SelfSubjectReview, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::{Api, Client};
use reqwest::header::HeaderValue;
use tokio::sync::watch;
use tokio::time::Instant;
use wva_runtime::Backoff;

use crate::observe::watches::Watches;

/// Requested lifetime.
const LIFETIME: Duration = Duration::from_hours(1);
/// Bounds of the granted lifetime.
const SHORTEST_LIFETIME: Duration = Duration::from_mins(1);
const LONGEST_LIFETIME: Duration = Duration::from_hours(24);
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const LONGEST_BACKOFF: Duration = Duration::from_mins(1);
const TIMEOUT: Duration = Duration::from_secs(5);

/// Source of the bearer token for endpoint pickers.
#[derive(Clone, PartialEq, Eq)]
pub enum PickerToken {
    /// No token.
    None,
    /// `EPP_METRIC_READER_BEARER_TOKEN`.
    Fixed(String),
    /// `EPP_METRIC_READER_SERVICE_ACCOUNT`: short-lived tokens.
    Account {
        /// Namespace of the account.
        namespace: String,
        /// Name of the account.
        name: String,
    },
}

impl PickerToken {
    /// A fixed token is for all pickers, as in llm-d WVA. Others are for labelled namespaces, because the token opens
    /// the `/metrics` of every server that asks the API server, and who may create pools in a namespace can see it.
    pub(super) fn is_for(&self, watches: &Watches, namespace: &str) -> bool {
        match self {
            Self::None => false,
            Self::Fixed(_) => true,
            // Without a watch of Namespaces the operator chose the only one.
            Self::Account { .. } => watches.namespaces.as_ref().is_none_or(|namespaces| {
                namespaces.get("", namespace).is_some_and(|facts| facts.picker_token)
            }),
        }
    }

    /// User name of the account whose tokens pickers get.
    #[must_use]
    pub fn user(&self) -> Option<String> {
        let Self::Account { namespace, name } = self else { return None };
        Some(AccountName { namespace, name }.user())
    }

    /// Sets `header` within [`TIMEOUT`] and keeps it valid. Never returns.
    pub(super) async fn keep_renewed(&self, client: &Client, header: &watch::Sender<Option<HeaderValue>>) {
        match self {
            Self::None => drop(header.send_replace(None)),
            Self::Fixed(token) => drop(header.send_replace(bearer(token))),
            Self::Account { namespace, name } => {
                renew(client, AccountName { namespace, name }, header).await;
            }
        }
        std::future::pending::<()>().await;
    }
}

/// Names a service account.
#[derive(Clone, Copy)]
struct AccountName<'a> {
    namespace: &'a str,
    name: &'a str,
}

impl AccountName<'_> {
    fn user(self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }
}

async fn renew(client: &Client, account: AccountName<'_>, header: &watch::Sender<Option<HeaderValue>>) {
    let mut expires = Instant::now();
    let mut backoff = Backoff::new(FIRST_BACKOFF, LONGEST_BACKOFF);
    let mut has_failed = false;
    loop {
        let requested = Instant::now();
        let answer = tokio::time::timeout(TIMEOUT, request(client, account)).await;
        let wait = match answer.unwrap_or_else(|_| Err(format!("no answer within {} s", TIMEOUT.as_secs()))) {
            Ok((token, lifetime)) => {
                header.send_replace(Some(token));
                expires = requested + lifetime;
                backoff.reset();
                has_failed = false;
                lifetime.mul_f64(0.8)
            }
            Err(error) => {
                if !std::mem::replace(&mut has_failed, true) {
                    let AccountName { namespace, name: service_account } = account;
                    tracing::warn!(
                        namespace,
                        service_account,
                        error,
                        "Cannot request a token for endpoint pickers; after the last token expires none is sent. Check EPP_METRIC_READER_SERVICE_ACCOUNT, and that the controller may create serviceaccounts/token of this account"
                    );
                }
                if expires <= requested {
                    header.send_replace(None);
                }
                backoff.next_delay()
            }
        };
        tokio::time::sleep(wait).await;
    }
}

/// Returns header and lifetime of a new token.
async fn request(client: &Client, account: AccountName<'_>) -> Result<(HeaderValue, Duration), String> {
    match own_user(client).await {
        None => return Err("cannot find out the controller's own account".to_owned()),
        Some(own) if own == account.user() => {
            return Err(
                "this is the controller's own account; use an account that may only get /metrics".to_owned()
            );
        }
        Some(_) => {}
    }
    let seconds = i64::try_from(LIFETIME.as_secs()).ok();
    let token_request = TokenRequest {
        spec: Some(TokenRequestSpec { expiration_seconds: seconds, ..TokenRequestSpec::default() }),
        ..TokenRequest::default()
    };
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), account.namespace);
    let answer = accounts.create_token_request(account.name, &PostParams::default(), &token_request).await;
    let answer = answer.map_err(|error| error.to_string())?;
    let granted = answer.spec.and_then(|spec| spec.expiration_seconds).and_then(|s| u64::try_from(s).ok());
    let lifetime = granted.map_or(LIFETIME, Duration::from_secs).clamp(SHORTEST_LIFETIME, LONGEST_LIFETIME);
    let token = answer.status.and_then(|status| bearer(status.token.as_deref()?));
    Ok((token.ok_or("the answer has no valid token")?, lifetime))
}

async fn own_user(client: &Client) -> Option<String> {
    let review = Api::<SelfSubjectReview>::all(client.clone());
    let answer = review.create(&PostParams::default(), &SelfSubjectReview::default()).await.ok()?;
    answer.status?.user_info?.username
}

/// `None` for a token that is not a valid header value.
pub(super) fn bearer(token: &str) -> Option<HeaderValue> {
    let mut header = HeaderValue::from_str(&format!("Bearer {token}")).ok().filter(|_| !token.is_empty())?;
    header.set_sensitive(true);
    Some(header)
}

#[cfg(test)]
mod tests;
