//! Who asks, and may they: authentication by the aggregator's request headers (behind its client certificate) or by
//! bearer token, authorization by the API server's own rules. Used by the external metrics API and by secure metrics.
//! Nothing a client merely says about itself counts: `X-Remote-*` without the verified certificate is ignored.

mod bucket;
mod cache;
mod peer;
mod request_header;
mod reviewer;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use axum::http::{HeaderMap, StatusCode, header};
use bucket::Bucket;
use cache::Cache;
use reviewer::{Reviewer, Unanswered};

pub use peer::Peer;
pub use request_header::{RequestHeader, RequestHeaderError};

/// How long a review counts before the next request asks the API server again.
const CACHE_LIFETIME: Duration = Duration::from_mins(1);
/// How long a caller that the API server allowed is still served while the API server cannot be reached.
const OUTAGE: Duration = Duration::from_mins(10);
/// Decisions kept; the oldest goes first.
const KEPT: usize = 1024;
/// Reviews of tokens that were never seen valid: so many at once, then two a second.
const UNKNOWN_TOKENS: u32 = 32;
const UNKNOWN_TOKEN_INTERVAL: Duration = Duration::from_millis(500);
/// Longer than any token an API server issues.
const LONGEST_TOKEN: usize = 16 * 1024;
/// The group whose members every API server allows everything, without asking its authorizer.
const MASTERS: &str = "system:masters";
const AUTHENTICATED: &str = "system:authenticated";
const ANONYMOUS: &str = "system:anonymous";

/// An authenticated user, as Kubernetes sees one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct User {
    /// User name.
    pub name: String,
    /// Unique identifier, where the authenticator knows one.
    pub uid: Option<String>,
    /// Groups.
    pub groups: Vec<String>,
    /// What else the authenticator said.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// What somebody wants to do, in the terms of RBAC.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// On a resource of a namespace.
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
    /// On a path that is no resource, `/metrics` for one.
    Path {
        /// `get`, ...
        verb: &'static str,
        /// The path, without query.
        path: String,
    },
}

/// Why a request is not served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Neither the aggregator's headers nor a bearer token the API server accepts: HTTP 401.
    #[error("Unauthorized: send a bearer token, or come through the API server's aggregator")]
    Unauthenticated,
    /// Known, but not allowed: HTTP 403.
    #[error("user {user:?} may not {action}: {reason}")]
    Forbidden {
        /// User name.
        user: String,
        /// What was asked for.
        action: String,
        /// What the API server said.
        reason: String,
    },
    /// The API server could not be asked: HTTP 503.
    #[error("the API server could not be asked whether this request is allowed: try again")]
    Undecided,
    /// Too many tokens that were never seen valid: HTTP 429.
    #[error("too many unknown bearer tokens: try again in {RETRY_AFTER} s")]
    TooMany,
}

impl Refusal {
    /// The status of the answer.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::Forbidden { .. } => StatusCode::FORBIDDEN,
            Self::Undecided => StatusCode::SERVICE_UNAVAILABLE,
            Self::TooMany => StatusCode::TOO_MANY_REQUESTS,
        }
    }
}

/// Seconds after which a caller that got 429 or 503 may try again: the value of `Retry-After`.
pub const RETRY_AFTER: &str = "1";

/// Authenticates and authorizes. One per process; made with the pod's own client, whose service account needs
/// `create` on `tokenreviews` and `subjectaccessreviews` (cluster role `system:auth-delegator`).
pub struct Gate {
    client: kube::Client,
    request_header: ArcSwapOption<RequestHeader>,
    tokens: Cache<String, User>,
    /// Apart from those of users: anybody can make up tokens, and they must not push a user's out.
    made_up: Cache<String, ()>,
    decisions: Cache<(User, Action), Result<(), String>>,
    reviewer: Reviewer,
    /// Reviews left for tokens that were never seen valid.
    unknown_tokens: Bucket,
}

impl Gate {
    /// Knows no request headers yet: [`Gate::watch_request_header`] brings them.
    #[must_use]
    pub fn new(client: kube::Client) -> Self {
        Self::with_cache_lifetime(client, CACHE_LIFETIME)
    }

    /// Like [`Gate::new`], for tests that wait until a review is due again.
    #[must_use]
    pub fn with_cache_lifetime(client: kube::Client, lifetime: Duration) -> Self {
        Self {
            reviewer: Reviewer::new(client.clone()),
            client,
            request_header: ArcSwapOption::empty(),
            tokens: Cache::new(KEPT, lifetime),
            made_up: Cache::new(KEPT, lifetime),
            decisions: Cache::new(KEPT, lifetime),
            unknown_tokens: Bucket::new(UNKNOWN_TOKENS, UNKNOWN_TOKEN_INTERVAL),
        }
    }

    /// Sets what the aggregator proves itself with. `None`: only bearer tokens count.
    pub fn set_request_header(&self, config: Option<RequestHeader>) {
        self.request_header.store(config.map(Arc::new));
    }

    /// Authenticates and then authorizes.
    ///
    /// # Errors
    /// [`Refusal`].
    pub async fn admit(&self, peer: &Peer, headers: &HeaderMap, action: Action) -> Result<User, Refusal> {
        let user = self.authenticate(peer, headers).await?;
        self.authorize(&user, action).await?;
        Ok(user)
    }

    /// Tells who asks. While the API server cannot be reached, a token that it accepted in the last 10 minutes counts.
    ///
    /// # Errors
    /// [`Refusal::Unauthenticated`], [`Refusal::Undecided`] or [`Refusal::TooMany`].
    pub async fn authenticate(&self, peer: &Peer, headers: &HeaderMap) -> Result<User, Refusal> {
        if let Some(config) = self.request_header.load_full()
            && let Some(user) = config.user(peer, headers)
        {
            return Ok(user);
        }
        let token = bearer(headers).ok_or(Refusal::Unauthenticated)?;
        if let Some(user) = self.tokens.get(token) {
            return Ok(user);
        }
        if self.made_up.get(token).is_some() {
            return Err(Refusal::Unauthenticated);
        }
        let earlier = self.tokens.get_within(token, OUTAGE);
        if earlier.is_none() && !self.unknown_tokens.take() {
            return Err(Refusal::TooMany);
        }
        match self.reviewer.review_token(token, earlier.is_some()).await {
            Ok(Some(user)) => {
                self.tokens.insert(token.to_owned(), user.clone());
                Ok(user)
            }
            Ok(None) => {
                self.tokens.remove(token);
                self.made_up.insert(token.to_owned(), ());
                Err(Refusal::Unauthenticated)
            }
            Err(Unanswered::Unreachable) => earlier.ok_or(Refusal::Undecided),
            Err(Unanswered::NotReviewed) => Err(Refusal::Undecided),
        }
    }

    /// Asks whether `user` may do `action`. While the API server cannot be reached, a permission that it gave in the last
    /// 10 minutes counts; a denial ends it.
    ///
    /// # Errors
    /// [`Refusal::Forbidden`] or [`Refusal::Undecided`].
    pub async fn authorize(&self, user: &User, action: Action) -> Result<(), Refusal> {
        if user.groups.iter().any(|group| group == MASTERS) {
            return Ok(());
        }
        let key = (user.clone(), action);
        let decision = if let Some(decision) = self.decisions.get(&key) {
            decision
        } else {
            let earlier = self.decisions.get_within(&key, OUTAGE).filter(Result::is_ok);
            match self.reviewer.review_access(user, &key.1, earlier.is_some()).await {
                Ok(decision) => {
                    self.decisions.insert(key.clone(), decision.clone());
                    decision
                }
                Err(Unanswered::Unreachable) => earlier.ok_or(Refusal::Undecided)?,
                Err(Unanswered::NotReviewed) => return Err(Refusal::Undecided),
            }
        };
        let (User { name: user, .. }, action) = key;
        decision.map_err(|reason| Refusal::Forbidden { user, action: action.to_string(), reason })
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

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && token.len() <= LONGEST_TOKEN)
        .then_some(token)
}

#[cfg(test)]
mod tests;
