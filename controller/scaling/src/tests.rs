//! Tests of the pipeline through its one function, by tables of figures. A state is written as one line a variant;
//! see `tests/fixture.rs`.

mod exact;
mod examples;
mod file;
mod fixture;
mod laws;
mod rules;
mod stages;
mod tokens;
