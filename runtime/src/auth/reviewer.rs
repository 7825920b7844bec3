//! Asks the API server who a token belongs to and what a user may do: `TokenReview` and `SubjectAccessReview`, a bounded
//! number at a time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::{Api, PostParams};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::{Action, User};

/// One call to the API server. An HPA gives up after half a minute, the aggregator's check after 6 seconds.
const CALL: Duration = Duration::from_secs(4);
/// The same about a caller that an earlier answer holds for: Prometheus gives up a scrape after 10 seconds.
pub(super) const KNOWN_CALL: Duration = Duration::from_secs(2);
/// Reviews of one kind at a time. A later one waits for its turn within the time of the call.
pub(super) const REVIEWS: usize = 16;

/// Why a review was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unanswered {
    /// The API server cannot be reached, or fails.
    Unreachable,
    /// It refused the review, or there was no turn to ask it.
    NotReviewed,
}

/// Sends reviews to the API server.
pub(super) struct Reviewer {
    client: kube::Client,
    /// Apart from those of users: anybody can make up tokens, and a known user must not wait for them.
    token_turns: Semaphore,
    access_turns: Semaphore,
    /// The last review had no answer.
    is_unreachable: AtomicBool,
}

impl Reviewer {
    pub(super) fn new(client: kube::Client) -> Self {
        Self {
            client,
            token_turns: Semaphore::new(REVIEWS),
            access_turns: Semaphore::new(REVIEWS),
            is_unreachable: AtomicBool::new(false),
        }
    }

    /// The user of a token; `None` where the API server does not accept it. `known`: an earlier answer holds for it.
    pub(super) async fn review_token(&self, token: &str, known: bool) -> Result<Option<User>, Unanswered> {
        let spec = TokenReviewSpec { token: token.to_owned(), audiences: None };
        let review = TokenReview { spec, ..TokenReview::default() };
        let review = self.create("TokenReview", &self.token_turns, &review, known).await?;
        let status = review.status.unwrap_or_default();
        if status.authenticated != Some(true) {
            return Ok(None);
        }
        let user = status.user.unwrap_or_default();
        let Some(name) = user.username.filter(|name| !name.is_empty()) else { return Ok(None) };
        let (groups, extra) = (user.groups.unwrap_or_default(), user.extra.unwrap_or_default());
        Ok(Some(User { name, uid: user.uid, groups, extra }))
    }

    /// Whether `user` may do `action`, and the API server's reason where it may not.
    pub(super) async fn review_access(
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
        let review = self.create("SubjectAccessReview", &self.access_turns, &review, known).await?;
        let status = review.status.unwrap_or_default();
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
                if self.is_unreachable.swap(false, Ordering::Relaxed) {
                    tracing::info!(kind, "The API server answers reviews again");
                }
                return Ok(answer);
            }
            Ok(Err(error)) if !is_unreachable(&error) => {
                warn_of_refusal(kind, &error);
                return Err(Unanswered::NotReviewed);
            }
            Ok(Err(error)) => crate::api_call::root_cause(&error),
            Err(_) => format!("no answer within {limit:?}"),
        };
        // Once per outage: Prometheus asks every few seconds.
        if !self.is_unreachable.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                kind,
                error,
                "The API server could not be asked for a review; callers allowed in the last 10 minutes are still served"
            );
        }
        Err(Unanswered::Unreachable)
    }
}

fn warn_of_refusal(kind: &'static str, error: &kube::Error) {
    if let kube::Error::Api(status) = error
        && status.code == 403
    {
        tracing::warn!(
            kind,
            error = %status,
            "The service account of wva may not create a {kind}: bind it to the cluster role system:auth-delegator"
        );
    } else {
        let error = crate::api_call::root_cause(error);
        tracing::warn!(kind, error, "The API server refused a review");
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
