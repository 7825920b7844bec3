//! Tests of `decide`: the specification as tables of rows (`conformance`), properties over generated snapshots (`laws`),
//! and the file format and texts.

mod conformance;
mod file;
mod fixture;
mod generate;
mod generated;
mod laws;
mod outcomes;
