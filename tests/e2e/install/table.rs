//! The rows an experiment prints, and what of them was not as it must be.

use std::time::Duration;

use tokio::time::Instant;

use crate::support::Outcome;

/// Longest time for one step: more than all waits of any step.
const LONGEST: Duration = Duration::from_mins(15);

/// A table that is printed while it grows.
pub(crate) struct Table {
    rows: usize,
    faults: Vec<String>,
    began: Instant,
}

impl Table {
    /// An empty one; each row is told when its step is done.
    pub(crate) fn new() -> Self {
        println!("step | as it must be | time | what was seen");
        Self { rows: 0, faults: Vec::new(), began: Instant::now() }
    }

    /// Does a step, which returns what was seen; the next steps are done whatever becomes of it.
    pub(crate) async fn step(&mut self, name: &str, work: impl Future<Output = anyhow::Result<String>>) {
        let began = Instant::now();
        let done = tokio::time::timeout(LONGEST, work).await;
        let done = done.unwrap_or_else(|_| Err(anyhow::anyhow!("it was not done in {LONGEST:?}")));
        let took = began.elapsed().as_secs_f64();
        self.rows += 1;
        match done {
            Ok(seen) => println!("{name} | yes | {took:.1} s | {seen}"),
            Err(error) => {
                println!("{name} | NO | {took:.1} s | {error:#}");
                self.faults.push(format!("{name}: {error:#}"));
            }
        }
    }

    /// Something that is wrong beside the steps.
    pub(crate) fn fault(&mut self, what: &str) {
        println!("FAULT: {what}");
        self.faults.push(what.to_owned());
    }

    /// What the table says as a whole.
    pub(crate) fn outcome(self) -> Outcome {
        let figures = format!(
            "{} steps, {} not as they must be, {} s",
            self.rows,
            self.faults.len(),
            self.began.elapsed().as_secs()
        );
        Outcome { figures, faults: self.faults }
    }
}
