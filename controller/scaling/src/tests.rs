//! Tests of the pipeline through its one function, by tables of figures. A state is written as one line a variant;
//! see `tests/fixture.rs`.
#![expect(clippy::unwrap_used, reason = "a test ends at the first thing that is not as it says")]

mod examples;
mod fixture;
