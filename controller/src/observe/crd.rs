//! Reports of the installed CRD. Helm never updates a CRD, so an old one can stay under a new controller.

use std::time::Duration;

use kube::Client;
use tokio::time::sleep;
use wva_crds::manifest;
use wva_runtime::crd::{CrdSchemaError, missing_fields};

/// Time to the next check of a CRD that has a fault, and to the second check: the document that is checked lags behind a CRD
/// that was just replaced.
const SOON: Duration = Duration::from_mins(1);
/// Time between two checks of a complete CRD, which another release may replace by its own.
const LATER: Duration = Duration::from_mins(10);

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Finding {
    Complete,
    /// Paths of the fields that the API server drops.
    Outdated(Vec<String>),
    NotInstalled,
    /// Why nothing is known.
    Unknown(String),
}

/// Checks the installed CRD, again and again. Logs a warning if it is missing or lacks fields of this release, and when that
/// is over. Never returns.
pub async fn report_crd(client: Client) {
    let mut last = None;
    loop {
        let finding = Finding::of(missing_fields(&client, &manifest::crd()).await);
        if is_news(last.as_ref(), &finding) {
            finding.log();
        }
        sleep(time_to_next(last.as_ref(), &finding)).await;
        last = Some(finding);
    }
}

/// A CRD that was complete from the start is none.
fn is_news(last: Option<&Finding>, now: &Finding) -> bool {
    last.map_or(*now != Finding::Complete, |last| last != now)
}

fn time_to_next(last: Option<&Finding>, now: &Finding) -> Duration {
    let is_settled = last == Some(&Finding::Complete) && *now == Finding::Complete;
    if is_settled { LATER } else { SOON }
}

impl Finding {
    fn of(missing: Result<Vec<String>, CrdSchemaError>) -> Self {
        match missing {
            Ok(missing) if missing.is_empty() => Self::Complete,
            Ok(missing) => Self::Outdated(missing),
            Err(CrdSchemaError::NotInstalled { .. }) => Self::NotInstalled,
            Err(error) => Self::Unknown(error.to_string()),
        }
    }

    fn log(&self) {
        match self {
            Self::Complete => tracing::info!("The VariantAutoscaling CRD has all fields of this release"),
            Self::Outdated(missing) => tracing::warn!(
                fields = missing.join(", "),
                "The VariantAutoscaling CRD is outdated and drops fields; apply the CRD of this release: wva crd | \
                 kubectl apply --server-side --force-conflicts -f -"
            ),
            Self::NotInstalled => tracing::warn!(
                "The VariantAutoscaling CRD is not installed; apply it: wva crd | kubectl apply --server-side -f -"
            ),
            Self::Unknown(error) => {
                tracing::warn!(error, "Cannot check whether the VariantAutoscaling CRD is up to date");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outdated() -> Finding {
        Finding::Outdated(vec!["spec.mode".to_owned()])
    }

    #[test]
    fn a_fault_is_logged_once_and_its_end_too() {
        assert!(!is_news(None, &Finding::Complete), "a complete CRD at the start");
        assert!(is_news(None, &outdated()), "an old CRD at the start");
        assert!(!is_news(Some(&outdated()), &outdated()), "the same CRD a minute later");
        assert!(is_news(Some(&outdated()), &Finding::Complete), "the CRD of this release was applied");
        assert!(is_news(Some(&Finding::Complete), &outdated()), "another release replaced it");
    }

    #[test]
    fn only_a_crd_that_was_complete_twice_waits_longer() {
        assert_eq!(time_to_next(None, &Finding::Complete), SOON);
        assert_eq!(time_to_next(Some(&outdated()), &Finding::Complete), SOON);
        assert_eq!(time_to_next(Some(&Finding::Complete), &outdated()), SOON);
        assert_eq!(time_to_next(Some(&Finding::Complete), &Finding::Complete), LATER);
    }
}
