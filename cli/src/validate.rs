//! `wva validate`: the admission rules over files, without a cluster. Reads what the paths stand for, judges all
//! objects of it together, and tells each finding with its file, line and column in one of four formats.

mod files;
mod github;
mod input;
mod json;
mod judge;
mod located;
mod maps;
mod objects;
mod position;
mod report;
mod sarif;
mod secrets;
mod text;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{ArgMatches, Command};
use objects::SourceProblem;
use report::Report;

use crate::arguments::{file, file_option, flag, format_option, namespace_option, paths, word};
use crate::output::{write, wrong_usage};

const EXAMPLES: &str = "\
PATH is a file, a directory (all *.yaml, *.yml and *.json below it), a quoted
pattern ('apps/**/va-*.yaml') or - for standard input.

Examples:
  wva validate manifests/
  helm template my-release ./chart | wva validate -
  kustomize build overlays/prod | wva validate --namespace prod -
  wva validate --strict --format github manifests/
  git worktree add /tmp/main origin/main && wva validate --against /tmp/main/manifests manifests/

Exit code: 0 nothing is denied, 1 something is (or warned of, with --strict),
2 wrong usage or a path that cannot be read.";

/// The command line of `wva validate`.
pub(crate) fn command() -> Command {
    Command::new("validate")
        .about("The admission rules over files, as the webhook applies them, without a cluster")
        .after_help(EXAMPLES)
        .arg(paths(1, "What to judge; objects of other kinds are passed over"))
        .arg(format_option(&["text", "json", "sarif", "github"]).help(
            "For people, for programs, for code scanning (SARIF 2.1.0), for annotations of GitHub Actions",
        ))
        .arg(flag("strict", "Warnings fail too"))
        .arg(
            file_option(
                "against",
                "The objects as they were: what stands there too is judged as an update of it",
            )
            .value_name("DIR"),
        )
        .arg(namespace_option("Namespace of the objects that name none").default_value("default"))
}

/// Runs the command.
pub(crate) fn validate(arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    let paths: Vec<PathBuf> = arguments.get_many("path").context("no path")?.cloned().collect();
    let namespace = word(arguments, "namespace").context("no namespace")?;
    let old = file(arguments, "against").map(input::read_old).transpose();
    let (sources, old) = match input::read(&paths).and_then(|sources| Ok((sources, old?))) {
        Ok(read) => read,
        Err(error) => return Ok(wrong_usage(error)),
    };
    let collected = objects::collect(&sources, namespace);
    let old_sources = old.unwrap_or_default();
    let old = objects::collect(&old_sources, namespace);
    note_problems(&old_sources, &old.problems);

    let report = Report::new(&sources, &collected, judge::judge(&collected.objects, &old.objects));
    let told = match word(arguments, "format") {
        Some("json") => json::render(&report),
        Some("sarif") => sarif::render(&report),
        Some("github") => github::render(&report),
        _ => text::render(&report, coloured()),
    };
    write(&told).context("cannot write the findings")?;
    let failed = report.denied() > 0 || (arguments.get_flag("strict") && report.warned() > 0);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// An object as it stands in a file or in a cluster, without what a schema would fill in.
pub(super) struct FoundObject {
    /// Where it was found.
    pub(super) place: String,
    /// Its own namespace, or the one for objects that name none.
    pub(super) namespace: String,
    pub(super) object: serde_json::Value,
}

/// Reads the objects of files for another command: those of the kinds that are judged here, and where what is no
/// object stands.
///
/// # Errors
/// As for this command: where a path cannot be read or stands for nothing.
pub(super) fn objects_in(
    paths: &[PathBuf],
    namespace: &str,
) -> anyhow::Result<(Vec<FoundObject>, Vec<String>)> {
    let sources = input::read(paths)?;
    let collected = objects::collect(&sources, namespace);
    let place = |source: usize, offset: usize| {
        let source = &sources[source];
        format!("{}:{}", source.name, source.position(offset).0)
    };
    let problems = collected.problems.iter().map(|SourceProblem { source, problem }| {
        format!("{}: {}", place(*source, problem.at.start), input::printable(&problem.message))
    });
    let objects = collected.objects.iter().map(|object| FoundObject {
        place: place(object.source, object.node.span.start),
        namespace: object.namespace.clone(),
        object: object.node.to_value(),
    });
    Ok((objects.collect(), problems.collect()))
}

fn coloured() -> bool {
    let set = |key| std::env::var_os(key).is_some_and(|value| !value.is_empty());
    std::io::stdout().is_terminal()
        && !set("NO_COLOR")
        && std::env::var_os("TERM").is_none_or(|t| t != "dumb")
}

/// Old files are not what is judged, but who relies on them wants to know that some were not read.
#[expect(clippy::print_stderr, reason = "a note about the comparison is no finding")]
fn note_problems(sources: &[input::Source], problems: &[SourceProblem]) {
    for SourceProblem { source, problem } in problems {
        let source = &sources[*source];
        let (line, column) = source.position(problem.at.start);
        let message = input::printable(&problem.message);
        eprintln!("wva: {}:{line}:{column}: not compared with: {message}", source.name);
    }
}

#[cfg(test)]
mod tests;
