//! Experiments on certificates, leadership and supervision: what an operator fears, done on purpose to replicas of the
//! real program on a real control plane, with figures and a contract each. `docs/operations-tests.md` has the table.

mod churn;
mod cold;
mod damage;
mod dead;
mod leadership;
mod lifetimes;
mod metrics_api;
mod repair;
mod rolling;
mod tasks;
mod trust;

use std::path::PathBuf;
use std::time::Duration;

use crate::Testbed;

pub use cold::cold_install;
pub use dead::all_dead;
pub use leadership::leadership;
pub use lifetimes::lifetimes;
pub use metrics_api::metrics_api;
pub use repair::repair;
pub use rolling::rolling_restart;
pub use tasks::killed_tasks;

/// What an experiment showed.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The measured figures, for people.
    pub figures: String,
    /// What did not hold; empty where the contract was kept.
    pub faults: Vec<String>,
}

impl Outcome {
    /// Success where nothing was at fault.
    ///
    /// # Errors
    /// With the figures and all faults.
    pub fn kept(self) -> anyhow::Result<String> {
        anyhow::ensure!(self.faults.is_empty(), "{}; {}", self.faults.join("; "), self.figures);
        Ok(self.figures)
    }
}

/// One of the experiments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Experiment {
    /// [`cold_install`].
    ColdInstall,
    /// [`lifetimes`].
    Lifetimes,
    /// [`repair`].
    Repair,
    /// [`rolling_restart`].
    RollingRestart,
    /// [`leadership`].
    Leadership,
    /// [`killed_tasks`].
    KilledTasks,
    /// [`metrics_api`].
    MetricsApi,
    /// [`all_dead`].
    AllDead,
}

/// Which programs to test, and how thoroughly.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The program: a release build in earnest.
    pub wva: PathBuf,
    /// A debug build, for faults that can only be had in one.
    pub wva_debug: PathBuf,
    /// A few turns of each.
    pub short: bool,
}

impl Experiment {
    /// All of them, in lanes that may run side by side, each on a control plane of its own. The lanes last about as
    /// long as each other.
    pub const LANES: [&'static [Self]; 3] = [
        &[Self::Lifetimes, Self::AllDead],
        &[Self::RollingRestart, Self::Leadership, Self::KilledTasks, Self::MetricsApi],
        &[Self::ColdInstall, Self::Repair],
    ];

    /// Its name, on the command line too.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ColdInstall => "cold-install",
            Self::Lifetimes => "lifetimes",
            Self::Repair => "repair",
            Self::RollingRestart => "rolling-restart",
            Self::Leadership => "leadership",
            Self::KilledTasks => "killed-tasks",
            Self::MetricsApi => "metrics-api",
            Self::AllDead => "all-dead",
        }
    }

    /// What is done, and what must hold.
    #[must_use]
    pub fn contract(self) -> &'static str {
        match self {
            Self::ColdInstall => {
                "2 replicas race for the CA: one CA, both ready within 10 s, every caBundle right"
            }
            Self::Lifetimes => {
                "CA and certificates live for 60 s, 50 reviews/s: no handshake or review fails, nothing invalid gets in"
            }
            Self::Repair => {
                "Secret or caBundle deleted, emptied, garbage, another CA: repaired within 15 s, reviews fail only \
                 where the API server itself lost the CA, and until then"
            }
            Self::RollingRestart => "2 replicas restarted one after the other, 50 reviews/s: no review fails",
            Self::Leadership => {
                "leader frozen, cut off, or its Lease deleted: no write of its own after expiry, takeover within \
                 lease + 5 s, nobody ready but dead"
            }
            Self::KilledTasks => "any task ends or panics: the process exits non-zero within 5 s",
            Self::MetricsApi => {
                "the leader is killed: the external metrics API answers the same on all, and without a leader"
            }
            Self::AllDead => {
                "no replica left: what is not ours is created and deleted, a variant loses its finalizer"
            }
        }
    }

    /// Runs it.
    ///
    /// # Errors
    /// When it could not be carried out: no figures then.
    pub async fn run(self, testbed: &Testbed, plan: &Plan) -> anyhow::Result<Outcome> {
        let (wva, short) = (plan.wva.as_path(), plan.short);
        let turns = |few: u32, many: u32| if short { few } else { many };
        match self {
            Self::ColdInstall => Box::pin(cold_install(testbed, wva, turns(3, 100))).await,
            Self::Lifetimes => {
                let lasts = Duration::from_secs(turns(75, 600).into());
                Box::pin(lifetimes(testbed, wva, None, lasts)).await
            }
            Self::Repair => Box::pin(repair(testbed, wva, turns(1, 10))).await,
            Self::RollingRestart => Box::pin(rolling_restart(testbed, wva, turns(2, 50))).await,
            Self::Leadership => Box::pin(leadership(testbed, wva, turns(1, 5), !short)).await,
            Self::KilledTasks => Box::pin(killed_tasks(testbed, &plan.wva_debug)).await,
            Self::MetricsApi => Box::pin(metrics_api(testbed, wva)).await,
            Self::AllDead => {
                let mut outcome = Box::pin(all_dead(testbed, wva, Some("dies-out"))).await?;
                if !short {
                    let with = Box::pin(all_dead(testbed, wva, None)).await?;
                    outcome.figures += "; with the external metrics API: ";
                    outcome.figures += &with.figures;
                    outcome.faults.extend(with.faults);
                }
                Ok(outcome)
            }
        }
    }
}

/// The middle and the longest of some times, in seconds.
fn spread(times: &[Duration]) -> String {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    match (sorted.get(sorted.len() / 2), sorted.last()) {
        (Some(middle), Some(longest)) => {
            format!("{:.1} s (at most {:.1} s)", middle.as_secs_f64(), longest.as_secs_f64())
        }
        _ => "never".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_is_in_one_lane() {
        let mut names: Vec<_> =
            Experiment::LANES.iter().flat_map(|lane| lane.iter()).map(|one| one.name()).collect();
        names.sort_unstable();
        let all = [
            "all-dead",
            "cold-install",
            "killed-tasks",
            "leadership",
            "lifetimes",
            "metrics-api",
            "repair",
            "rolling-restart",
        ];
        assert_eq!(names, all);
    }

    #[test]
    fn a_spread_is_the_middle_and_the_longest() {
        let times = [3, 1, 2].map(Duration::from_secs);
        assert_eq!(spread(&times), "2.0 s (at most 3.0 s)");
        assert_eq!(spread(&[]), "never");
    }
}
