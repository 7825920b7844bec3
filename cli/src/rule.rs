//! `wva rule CODE`: the page of an admission rule. The pages are generated with `docs/reference/rules`.

mod text;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Read as _;
use std::process::ExitCode;

use anyhow::Context;
use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, ArgMatches, Command};
use flate2::read::GzDecoder;
use wva_rules::RULES;

use crate::arguments::{similar_names, values};
use crate::output::{print, print_coloured, wrong_usage};

/// All pages, separated by NUL; `make generate` writes them.
static PAGES: &[u8] = include_bytes!("rule/pages.gz");
const PREFIX: &str = "WVA-";

pub(crate) fn command() -> Command {
    Command::new("rule")
        .about("Explain an admission rule: what it checks, and how to fix it")
        .after_help(
            "Examples:\n  wva rule WVA-VA-003\n  wva rule va-003\n  wva rule        # all codes\n\n\
             Exit code: 0 printed, 2 unknown code.",
        )
        .arg(
            Arg::new("code")
                .value_name("CODE")
                .num_args(0..)
                .value_parser(CodeParser)
                .hide_possible_values(true)
                .help("Code of a rule; default: list all"),
        )
}

/// Takes any text; shells complete the codes.
#[derive(Clone)]
struct CodeParser;

impl TypedValueParser for CodeParser {
    type Value = String;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let codes: BTreeSet<&str> = RULES.iter().map(|rule| rule.code).collect();
        Some(Box::new(codes.into_iter().map(PossibleValue::new)))
    }
}

pub(crate) fn rule(arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    let pages = pages()?;
    let codes = values(arguments, "code");
    if codes.is_empty() {
        let titles: Vec<&str> = pages.iter().map(|page| title(page)).collect();
        print(&(titles.join("\n") + "\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut chosen = Vec::new();
    for code in codes {
        let code = complete(code);
        match pages.iter().find(|page| code_of(page) == code) {
            Some(page) => chosen.push(text::render(page, text::Style::of_output())),
            None => return Ok(wrong_usage(unknown(&code, &pages))),
        }
    }
    print_coloured(&chosen.join("\n\n"))?;
    Ok(ExitCode::SUCCESS)
}

fn pages() -> anyhow::Result<Vec<String>> {
    let mut text = String::new();
    GzDecoder::new(PAGES).read_to_string(&mut text).context("cannot unpack the pages")?;
    // The note for editors is not for readers.
    let page = |page: &str| {
        page.split("\n\n").filter(|part| !part.starts_with("<!--")).collect::<Vec<_>>().join("\n\n")
    };
    Ok(text.split('\0').map(page).collect())
}

/// `WVA-VA-003: the cost is not a number`.
fn title(page: &str) -> &str {
    page.lines().next().unwrap_or_default().trim_start_matches("# ")
}

fn code_of(page: &str) -> &str {
    title(page).split(':').next().unwrap_or_default()
}

/// Accepts lower case, and codes without their common prefix.
fn complete(code: &str) -> String {
    let code = code.to_uppercase();
    if code.starts_with(PREFIX) { code } else { format!("{PREFIX}{code}") }
}

fn unknown(code: &str, pages: &[String]) -> anyhow::Error {
    let similar = similar_names(code, pages.iter().map(|page| code_of(page)));
    anyhow::anyhow!("no rule {code}{similar}. `wva rule` lists all codes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_a_page() {
        let pages = pages().unwrap();
        for rule in RULES {
            let page = pages.iter().find(|page| code_of(page) == rule.code);
            assert!(page.is_some_and(|page| page.contains(rule.docs)), "{}", rule.code);
        }
        assert!(pages.iter().all(|page| !page.contains("<!--") && page.starts_with("# WVA-")));
    }

    #[test]
    fn no_page_shows_markdown() {
        for page in &pages().unwrap() {
            let text = text::render(page, text::Style { width: 80, is_coloured: true });
            // Examples and outputs are indented.
            for line in text.lines().filter(|line| !line.starts_with("  ")) {
                assert!(!line.contains('`') && !line.contains("](") && !line.contains("**"), "{line}");
                assert!(!line.starts_with(['#', '|']), "{line}");
            }
        }
    }

    #[test]
    fn completes_codes_and_suggests_similar_ones() {
        assert_eq!(
            (complete("va-003").as_str(), complete("WVA-CM-001").as_str()),
            ("WVA-VA-003", "WVA-CM-001")
        );
        let pages = pages().unwrap();
        let error = unknown("WVA-VA-0003", &pages).to_string();
        assert!(error.contains("no rule WVA-VA-0003; similar: WVA-VA-003"), "{error}");
        assert!(unknown("WVA-NONSENSE", &pages).to_string().ends_with("`wva rule` lists all codes"));
    }
}
