//! The program and the generated files without a control plane.

#![expect(clippy::unwrap_used, reason = "a helper of a test may panic as the test itself does")]

mod certs;
mod cli;
mod configuration_page;
#[path = "../../webhook/rules/tests/examples/example.rs"]
mod example;
mod fuzzed;
mod generated;
mod release;
mod rule_pages;
mod simulate;
mod validate;
mod wrong_settings;
