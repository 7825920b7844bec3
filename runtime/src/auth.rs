//! Who asks, and may they: authentication by the aggregator's request headers (behind its client certificate) or by
//! bearer token, authorization by the API server's own rules. Used by the external metrics API and by secure metrics.
//! Nothing a client merely says about itself counts: `X-Remote-*` without the verified certificate is ignored.

mod bucket;
mod cache;
mod peer;
mod request_header;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use axum::http::{HeaderMap, StatusCode, header};
use bucket::Bucket;
use cache::Cache;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::{Api, PostParams};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

pub use peer::Peer;
pub use request_header::{RequestHeader, RequestHeaderError};

/// How long a review counts before the next request asks the API server again.
const CACHE_LIFETIME: Duration = Duration::from_mins(1);
/// How long a caller that the API server allowed is still served while the API server cannot be reached.
const OUTAGE: Duration = Duration::from_mins(10);
/// Decisions kept; the oldest goes first.
const KEPT: usize = 1024;
/// One call to the API server. An HPA gives up after half a minute, the aggregator's check after 6 seconds.
const CALL: Duration = Duration::from_secs(4);
/// The same about a caller that an earlier answer holds for: Prometheus gives up a scrape after 10 seconds.
const KNOWN_CALL: Duration = Duration::from_secs(2);
/// Reviews of tokens that were never seen valid: so many at once, then two a second.
const UNKNOWN_TOKENS: u32 = 32;
const UNKNOWN_TOKEN_INTERVAL: Duration = Duration::from_millis(500);
/// Reviews of one kind at a time. Whoever comes later waits for his turn within the time of the call.
const REVIEWS: usize = 16;
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

/// Why a review was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unanswered {
    /// The API server cannot be reached, or fails.
    Unreachable,
    /// It refused the review, or there was no turn to ask it.
    NotReviewed,
}

/// Authenticates and authorizes. One per process; made with the pod's own client, whose service account needs
/// `create` on `tokenreviews` and `subjectaccessreviews` (cluster role `system:auth-delegator`).
pub struct Gate {
    client: kube::Client,
    request_header: ArcSwapOption<RequestHeader>,
    tokens: Cache<String, User>,
    /// Apart from those of users: anybody can make up tokens, and they must not push a user's out.
    made_up: Cache<String, ()>,
    decisions: Cache<(User, Action), Result<(), String>>,
    /// Turns. Apart for the same reason: whom no token was asked of does not wait for made-up ones.
    token_reviews: Semaphore,
    access_reviews: Semaphore,
    /// Reviews left for tokens that were never seen valid.
    unknown_tokens: Bucket,
    /// The last review had no answer.
    unreachable: AtomicBool,
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
            client,
            request_header: ArcSwapOption::empty(),
            tokens: Cache::new(KEPT, lifetime),
            made_up: Cache::new(KEPT, lifetime),
            decisions: Cache::new(KEPT, lifetime),
            token_reviews: Semaphore::new(REVIEWS),
            access_reviews: Semaphore::new(REVIEWS),
            unknown_tokens: Bucket::new(UNKNOWN_TOKENS, UNKNOWN_TOKEN_INTERVAL),
            unreachable: AtomicBool::new(false),
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
        match self.review_token(token, earlier.is_some()).await {
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
            match self.review_access(user, &key.1, earlier.is_some()).await {
                Ok(decision) => {
                    self.decisions.insert(key.clone(), decision.clone());
                    decision
                }
                Err(Unanswered::Unreachable) => earlier.ok_or(Refusal::Undecided)?,
                Err(Unanswered::NotReviewed) => return Err(Refusal::Undecided),
            }
        };
        decision.map_err(|reason| Refusal::Forbidden { user: key.0.name, action: key.1.to_string(), reason })
    }

    async fn review_token(&self, token: &str, known: bool) -> Result<Option<User>, Unanswered> {
        let spec = TokenReviewSpec { token: token.to_owned(), audiences: None };
        let review = TokenReview { spec, ..TokenReview::default() };
        let status =
            self.create("TokenReview", &self.token_reviews, &review, known).await?.status.unwrap_or_default();
        if status.authenticated != Some(true) {
            return Ok(None);
        }
        let user = status.user.unwrap_or_default();
        let Some(name) = user.username.filter(|name| !name.is_empty()) else { return Ok(None) };
        let (groups, extra) = (user.groups.unwrap_or_default(), user.extra.unwrap_or_default());
        Ok(Some(User { name, uid: user.uid, groups, extra }))
    }

    async fn review_access(
        &self,
        user: &User,
        action: &Action,
        known: bool,
    ) -> Result<Result<(), String>, Unanswered> {
        let mut spec = SubjectAccessReviewSpec {
            user: Some(user.name.clone()),
            uid: user.uid.clone(),
            groups: Some(user.groups.clone()),
            extra: Some(user.extra.clone()),
            ..SubjectAccessReviewSpec::default()
        };
        match action.clone() {
            Action::Resource { verb, group, version, resource, namespace } => {
                spec.resource_attributes = Some(ResourceAttributes {
                    verb: Some(verb.to_owned()),
                    group: Some(group.to_owned()),
                    version: Some(version.to_owned()),
                    resource: Some(resource),
                    namespace: Some(namespace),
                    ..ResourceAttributes::default()
                });
            }
            Action::Path { verb, path } => {
                let verb = Some(verb.to_owned());
                spec.non_resource_attributes = Some(NonResourceAttributes { path: Some(path), verb });
            }
        }
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let status = self
            .create("SubjectAccessReview", &self.access_reviews, &review, known)
            .await?
            .status
            .unwrap_or_default();
        if status.allowed && status.denied != Some(true) {
            return Ok(Ok(()));
        }
        Ok(Err(status
            .reason
            .filter(|reason| !reason.is_empty())
            .unwrap_or_else(|| "no rule allows it".to_owned())))
    }

    /// Posts a review. Nothing of its content is logged: it holds tokens.
    async fn create<K>(
        &self,
        kind: &'static str,
        turns: &Semaphore,
        review: &K,
        known: bool,
    ) -> Result<K, Unanswered>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::Serialize
            + serde::de::DeserializeOwned,
    {
        let api: Api<K> = Api::all(self.client.clone());
        let limit = if known { KNOWN_CALL } else { CALL };
        let deadline = Instant::now() + limit;
        // Never closed.
        let Ok(_turn) = timeout_at(deadline, turns.acquire()).await else {
            tracing::debug!(kind, "No turn for a review in time");
            return Err(Unanswered::NotReviewed);
        };
        let params = PostParams::default();
        let error = match timeout_at(deadline, api.create(&params, review)).await {
            Ok(Ok(answer)) => {
                if self.unreachable.swap(false, Ordering::Relaxed) {
                    tracing::info!(kind, "The API server answers reviews again");
                }
                return Ok(answer);
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
                tracing::warn!(
                    kind,
                    error = %status,
                    "The service account of wva may not create a {kind}: bind it to the cluster role system:auth-delegator"
                );
                return Err(Unanswered::NotReviewed);
            }
            Ok(Err(error)) if !is_unreachable(&error) => {
                let error = crate::api_call::root_cause(&error);
                tracing::warn!(kind, error, "The API server refused a review");
                return Err(Unanswered::NotReviewed);
            }
            Ok(Err(error)) => crate::api_call::root_cause(&error),
            Err(_) => format!("no answer within {limit:?}"),
        };
        // Once per outage: Prometheus asks every few seconds.
        if !self.unreachable.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                kind,
                error,
                "The API server could not be asked for a review; callers allowed in the last 10 minutes are still served"
            );
        }
        Err(Unanswered::Unreachable)
    }
}

/// The API server was not reached, or failed. Any other answer is a decision of it.
fn is_unreachable(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code >= 500,
        kube::Error::Service(_) | kube::Error::HyperError(_) => true,
        _ => false,
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
