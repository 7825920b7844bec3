//! `TokenReview` and `SubjectAccessReview` by the API server, with a limit on concurrent ones.

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

/// An HPA gives up after 30 seconds, the aggregator's check after 6.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(4);
/// Limit of a review that an earlier answer can replace. Prometheus gives up a scrape after 10 seconds.
pub(super) const KNOWN_REVIEW_TIMEOUT: Duration = Duration::from_secs(2);
/// Concurrent reviews of one kind. Another one waits for a slot within its time limit.
pub(super) const MAX_REVIEWS: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReviewError {
    /// Unreachable, or a server error.
    Unreachable,
    /// Refused, or no slot was free in time.
    NotReviewed,
}

pub(super) struct Reviewer {
    client: kube::Client,
    /// Separate: reviews of invented tokens must not delay known users.
    token_slots: Semaphore,
    access_slots: Semaphore,
    is_unreachable: AtomicBool,
}

impl Reviewer {
    pub(super) fn new(client: kube::Client) -> Self {
        Self {
            client,
            token_slots: Semaphore::new(MAX_REVIEWS),
            access_slots: Semaphore::new(MAX_REVIEWS),
            is_unreachable: AtomicBool::new(false),
        }
    }

    /// `None` for a token that the API server rejects. `is_known`: an earlier answer can replace it.
    pub(super) async fn review_token(
        &self,
        token: &str,
        is_known: bool,
    ) -> Result<Option<User>, ReviewError> {
        let spec = TokenReviewSpec { token: token.to_owned(), audiences: None };
        let review = TokenReview { spec, ..TokenReview::default() };
        let review = self.create("TokenReview", &self.token_slots, &review, is_known).await?;
        let status = review.status.unwrap_or_default();
        if status.authenticated != Some(true) {
            return Ok(None);
        }
        let user = status.user.unwrap_or_default();
        let Some(name) = user.username.filter(|name| !name.is_empty()) else { return Ok(None) };
        let (groups, extra) = (user.groups.unwrap_or_default(), user.extra.unwrap_or_default());
        Ok(Some(User { name, uid: user.uid, groups, extra }))
    }

    /// The inner error is the API server's reason.
    pub(super) async fn review_access(
        &self,
        user: &User,
        action: &Action,
        is_known: bool,
    ) -> Result<Result<(), String>, ReviewError> {
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
        let review = self.create("SubjectAccessReview", &self.access_slots, &review, is_known).await?;
        let status = review.status.unwrap_or_default();
        if status.allowed && status.denied != Some(true) {
            return Ok(Ok(()));
        }
        Ok(Err(status
            .reason
            .filter(|reason| !reason.is_empty())
            .unwrap_or_else(|| "no RBAC rule allows it".to_owned())))
    }

    /// The content is never logged: it contains tokens.
    async fn create<K>(
        &self,
        kind: &'static str,
        slots: &Semaphore,
        review: &K,
        is_known: bool,
    ) -> Result<K, ReviewError>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::Serialize
            + serde::de::DeserializeOwned,
    {
        let api: Api<K> = Api::all(self.client.clone());
        let limit = if is_known { KNOWN_REVIEW_TIMEOUT } else { REVIEW_TIMEOUT };
        let deadline = Instant::now() + limit;
        // The semaphore is never closed.
        let Ok(_slot) = timeout_at(deadline, slots.acquire()).await else {
            tracing::debug!(kind, "No free slot for a review in time");
            return Err(ReviewError::NotReviewed);
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
                warn_review_refused(kind, &error);
                return Err(ReviewError::NotReviewed);
            }
            Ok(Err(error)) => crate::api_call::root_cause(&error),
            Err(_) => format!("no answer within {limit:?}"),
        };
        // Once per outage: Prometheus scrapes every few seconds.
        if !self.is_unreachable.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                kind,
                error,
                "The API server could not be asked for a review; callers allowed in the last 10 minutes are still served"
            );
        }
        Err(ReviewError::Unreachable)
    }
}

fn warn_review_refused(kind: &'static str, error: &kube::Error) {
    if let kube::Error::Api(status) = error
        && status.code == 403
    {
        tracing::warn!(
            kind,
            error = %status,
            "Not allowed to create a {kind}; bind the service account of wva to cluster role system:auth-delegator"
        );
    } else {
        let error = crate::api_call::root_cause(error);
        tracing::warn!(kind, error, "The API server refused a review");
    }
}

fn is_unreachable(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => crate::api_call::is_temporary(status.code),
        kube::Error::Service(_) | kube::Error::HyperError(_) => true,
        _ => false,
    }
}
