//! Table of the steps of an experiment, and its faults.

use std::time::Duration;

use tokio::time::Instant;

use crate::support::Outcome;

/// Longest time for one step: more than all waits of any step.
const LONGEST: Duration = Duration::from_mins(15);

/// A table that is printed row by row.
pub(crate) struct Table {
    rows: usize,
    faults: Vec<String>,
    began: Instant,
}

impl Table {
    /// Prints the heading.
    pub(crate) fn new() -> Self {
        println!("step | passed | time | result");
        Self { rows: 0, faults: Vec::new(), began: Instant::now() }
    }

    /// Runs a step, which returns what was seen. A failure does not stop the next steps.
    pub(crate) async fn step(&mut self, name: &str, work: impl Future<Output = anyhow::Result<String>>) {
        let began = Instant::now();
        let done = tokio::time::timeout(LONGEST, work).await;
        let done = done.unwrap_or_else(|_| Err(anyhow::anyhow!("it took longer than {LONGEST:?}")));
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

    /// Adds a fault outside the steps.
    pub(crate) fn fault(&mut self, what: &str) {
        println!("FAULT: {what}");
        self.faults.push(what.to_owned());
    }

    /// Summary of the table.
    pub(crate) fn outcome(self) -> Outcome {
        let figures = format!(
            "{} steps, {} failed, {} s",
            self.rows,
            self.faults.len(),
            self.began.elapsed().as_secs()
        );
        Outcome { figures, faults: self.faults }
    }
}
