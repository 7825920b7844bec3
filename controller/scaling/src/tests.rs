//! Tests of the pipeline through its one function: the specification as a table of rows (`conformance`), laws over
//! generated snapshots (`laws`), and what neither can say.

mod conformance;
mod file;
mod fixture;
mod generate;
mod generated;
mod laws;
mod outcomes;
