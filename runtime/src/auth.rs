//! Delegated authentication and authorization, by the aggregator's request headers or by bearer token, with the API
//! server's own rules. Request headers (`X-Remote-*`) count only with the aggregator's verified client certificate.

mod cache;
mod peer;
mod request_header;
mod reviewer;
mod token_bucket;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use axum::http::{HeaderMap, StatusCode, header};
use cache::Cache;
use reviewer::{ReviewError, Reviewer};
use token_bucket::TokenBuckets;

pub use peer::Peer;
pub use request_header::{RequestHeader, RequestHeaderError};

const CACHE_LIFETIME: Duration = Duration::from_mins(1);
/// Validity of an earlier permission while the API server is unreachable.
const OUTAGE_GRACE: Duration = Duration::from_mins(10);
/// Entries in each cache.
const CACHE_SIZE: usize = 1024;
/// A burst of 32, then two a second, for each client.
const UNKNOWN_TOKEN_BURST: u32 = 32;
const UNKNOWN_TOKEN_INTERVAL: Duration = Duration::from_millis(500);
/// Clients with unknown tokens at once.
const MAX_CLIENTS: usize = 1024;
/// Bytes. Longer than any token of an API server.
const MAX_TOKEN_BYTES: usize = 16 * 1024;
/// Every API server skips its authorizer for this group.
const MASTERS: &str = "system:masters";
const AUTHENTICATED: &str = "system:authenticated";
const ANONYMOUS: &str = "system:anonymous";

/// A Kubernetes user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct User {
    /// User name.
    pub name: String,
    /// Unique identifier, where the authenticator knows one.
    pub uid: Option<String>,
    /// Groups.
    pub groups: Vec<String>,
    /// Extra fields from the authenticator.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Action of a request, as in RBAC.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Action on a resource in a namespace.
    Resource {
        /// `get`, `list`, ...
        verb: &'static str,
        /// API group.
        group: &'static str,
        /// API version.
        version: &'static str,
        /// Resource: plural, lower case.
        resource: String,
        /// Namespace.
        namespace: String,
    },
    /// Action on a non-resource path, such as `/metrics`.
    Path {
        /// `get`, ...
        verb: &'static str,
        /// Path without query.
        path: String,
    },
}

/// A request that is not allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// No valid credentials: HTTP 401.
    #[error("Unauthorized: send a bearer token, or use the API server's aggregation layer")]
    Unauthenticated,
    /// The user may not do it: HTTP 403.
    #[error("user {user:?} may not {action}: {reason}")]
    Forbidden {
        /// User name.
        user: String,
        /// Requested action.
        action: String,
        /// Reason from the API server.
        reason: String,
    },
    /// The API server did not answer: HTTP 503.
    #[error("cannot authorize the request: the API server did not answer the review; retry")]
    Unavailable,
    /// Too many unknown tokens: HTTP 429.
    #[error("too many unknown bearer tokens; retry in {RETRY_AFTER} s")]
    TooManyRequests,
}

impl AuthError {
    /// HTTP status of the response.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::Forbidden { .. } => StatusCode::FORBIDDEN,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::TooManyRequests => StatusCode::TOO_MANY_REQUESTS,
        }
    }
}

/// `Retry-After` with 429 and 503, in seconds.
pub const RETRY_AFTER: &str = "1";

/// Authenticates and authorizes requests through the API server. Needs `create` on `tokenreviews` and
/// `subjectaccessreviews` (cluster role `system:auth-delegator`).
pub struct DelegatedAuth {
    client: kube::Client,
    request_header: ArcSwapOption<RequestHeader>,
    tokens: Cache<String, User>,
    /// Rejected tokens, separate from `tokens`: invented ones must not evict valid ones.
    rejected_tokens: Cache<String, ()>,
    decisions: Cache<(User, Action), Result<(), String>>,
    reviewer: Reviewer,
    /// Buckets by client: one that invents tokens must not lock out the others.
    unknown_tokens: TokenBuckets<Option<IpAddr>>,
}

impl DelegatedAuth {
    /// Accepts only bearer tokens until [`DelegatedAuth::watch_request_header`] has read its configuration.
    #[must_use]
    pub fn new(client: kube::Client) -> Self {
        Self::with_cache_lifetime(client, CACHE_LIFETIME)
    }

    /// Creates it with another lifetime of cached answers, for tests.
    #[must_use]
    pub fn with_cache_lifetime(client: kube::Client, lifetime: Duration) -> Self {
        Self {
            reviewer: Reviewer::new(client.clone()),
            client,
            request_header: ArcSwapOption::empty(),
            tokens: Cache::new(CACHE_SIZE, lifetime),
            rejected_tokens: Cache::new(CACHE_SIZE, lifetime),
            decisions: Cache::new(CACHE_SIZE, lifetime),
            unknown_tokens: TokenBuckets::new(UNKNOWN_TOKEN_BURST, UNKNOWN_TOKEN_INTERVAL, MAX_CLIENTS),
        }
    }

    /// `None`: only bearer tokens count.
    pub fn set_request_header(&self, config: Option<RequestHeader>) {
        self.request_header.store(config.map(Arc::new));
    }

    /// Authenticates and authorizes a request.
    ///
    /// # Errors
    /// [`AuthError`].
    pub async fn check_request(
        &self,
        peer: &Peer,
        headers: &HeaderMap,
        action: Action,
    ) -> Result<User, AuthError> {
        let user = self.authenticate(peer, headers).await?;
        self.authorize(&user, action).await?;
        Ok(user)
    }

    /// Authenticates a request. While the API server is unreachable, a token of the last 10 minutes counts.
    ///
    /// # Errors
    /// [`AuthError::Unauthenticated`], [`AuthError::Unavailable`] or [`AuthError::TooManyRequests`].
    pub async fn authenticate(&self, peer: &Peer, headers: &HeaderMap) -> Result<User, AuthError> {
        if let Some(config) = self.request_header.load_full()
            && let Some(user) = config.user(peer, headers)
        {
            return Ok(user);
        }
        let token = bearer(headers).ok_or(AuthError::Unauthenticated)?;
        if let Some(user) = self.tokens.get(token) {
            return Ok(user);
        }
        if self.rejected_tokens.get(token).is_some() {
            return Err(AuthError::Unauthenticated);
        }
        let earlier = self.tokens.get_within(token, OUTAGE_GRACE);
        if earlier.is_none() && !self.unknown_tokens.take(&peer.address().map(network)) {
            return Err(AuthError::TooManyRequests);
        }
        match self.reviewer.review_token(token, earlier.is_some()).await {
            Ok(Some(user)) => {
                self.tokens.insert(token.to_owned(), user.clone());
                Ok(user)
            }
            Ok(None) => {
                self.tokens.remove(token);
                self.rejected_tokens.insert(token.to_owned(), ());
                Err(AuthError::Unauthenticated)
            }
            Err(ReviewError::Unreachable) => earlier.ok_or(AuthError::Unavailable),
            Err(ReviewError::NotReviewed) => Err(AuthError::Unavailable),
        }
    }

    /// Checks a permission. While the API server is unreachable, one of the last 10 minutes counts, unless it was
    /// denied since.
    ///
    /// # Errors
    /// [`AuthError::Forbidden`] or [`AuthError::Unavailable`].
    pub async fn authorize(&self, user: &User, action: Action) -> Result<(), AuthError> {
        if user.groups.iter().any(|group| group == MASTERS) {
            return Ok(());
        }
        let key = (user.clone(), action);
        let decision = if let Some(decision) = self.decisions.get(&key) {
            decision
        } else {
            let earlier = self.decisions.get_within(&key, OUTAGE_GRACE).filter(Result::is_ok);
            match self.reviewer.review_access(user, &key.1, earlier.is_some()).await {
                Ok(decision) => {
                    self.decisions.insert(key.clone(), decision.clone());
                    decision
                }
                Err(ReviewError::Unreachable) => earlier.ok_or(AuthError::Unavailable)?,
                Err(ReviewError::NotReviewed) => return Err(AuthError::Unavailable),
            }
        };
        let (User { name: user, .. }, action) = key;
        decision.map_err(|reason| AuthError::Forbidden { user, action: action.to_string(), reason })
    }
}

impl std::fmt::Display for Action {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Resource { verb, group, resource, namespace, .. } => {
                write!(f, "{verb} {resource}.{group} in namespace {namespace:?}")
            }
            Self::Path { verb, path } => write!(f, "{verb} path {path:?}"),
        }
    }
}

/// A client with IPv6 may have any address of its /64.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && token.len() <= MAX_TOKEN_BYTES)
        .then_some(token)
}

#[cfg(test)]
mod tests;
