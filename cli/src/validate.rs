//! `wva validate`: applies the admission rules to files. All objects are evaluated together.

mod evaluate;
mod files;
mod github;
mod input;
mod json;
mod maps;
mod objects;
mod position;
mod report;
mod sarif;
mod secrets;
mod text;
mod yaml;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{ArgMatches, Command};
use input::Position;
use objects::SourceProblem;
use report::Report;
use wva_crds::envelope::FileKind;

pub(crate) use json::schema;

use crate::arguments::{
    file_option, flag, kube_version_option, namespace_option, option, output_format, output_option,
    parse_label, path_value, paths, value,
};
use crate::output::{self, print_coloured, printable, use_colours, wrong_usage};

const EXAMPLES: &str = "\
PATH is a file, a directory (all *.yaml, *.yml and *.json below it), a quoted
pattern ('apps/**/va-*.yaml') or - for standard input.

Examples:
  wva validate manifests/
  helm template my-release ./chart | wva validate -
  kustomize build overlays/prod | wva validate --namespace prod -
  wva validate --strict -o github manifests/
  git worktree add /tmp/main origin/main
  wva validate --against /tmp/main/manifests manifests/

Exit code: 0 no object is denied, 1 an object is denied (with --strict also: has
warnings), 2 wrong usage or an unreadable path.";

pub(crate) fn command() -> Command {
    Command::new("validate")
        .about("Validate manifests offline with the rules of the webhook")
        .after_help(EXAMPLES)
        .arg(paths(1, "Manifests to validate; objects of other kinds are ignored"))
        .arg(
            output_option(&["text", "json", "yaml", "sarif", "github"])
                .help("Output format; sarif is SARIF 2.1.0, github is annotations of GitHub Actions"),
        )
        .arg(flag("strict", "Fail on warnings too"))
        .arg(
            file_option(
                "against",
                "Previous version of the manifests; objects found in both are validated as updates",
            )
            .value_name("DIR"),
        )
        .arg(namespace_option("Namespace of objects without one").default_value("default"))
        .arg(
            option(
                "controller-namespace",
                "NAMESPACE",
                "Namespace of wva, whose ConfigMaps are global; default: that of its Deployment among the objects",
            )
            .value_parser(parse_label),
        )
        .arg(kube_version_option())
}

pub(crate) fn validate(arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    let paths: Vec<PathBuf> = arguments.get_many("path").context("no path")?.cloned().collect();
    let namespace = value(arguments, "namespace").context("no namespace")?;
    let old = path_value(arguments, "against").map(input::read_old).transpose();
    let (sources, old) = match input::read(&paths).and_then(|sources| Ok((sources, old?))) {
        Ok(inputs) => inputs,
        Err(error) => return Ok(wrong_usage(error)),
    };
    let collected = objects::collect(&sources, namespace);
    let old_sources = old.unwrap_or_default();
    let old = objects::collect(&old_sources, namespace);
    print_problems(&old_sources, &old.problems);

    let kubernetes = arguments.get_one("kube-version").copied();
    let evaluation = evaluate::evaluate(
        &collected.objects,
        &old.objects,
        kubernetes,
        value(arguments, "controller-namespace"),
    );
    let report = Report::new(&sources, &collected, evaluation);
    let text = match output_format(arguments) {
        format @ ("json" | "yaml") => {
            output::report(FileKind::ValidationReport, json::output(&report), format)?
        }
        "sarif" => sarif::render(&report),
        "github" => github::render(&report),
        _ => text::render(&report, use_colours()),
    };
    print_coloured(&text)?;
    let failed = report.deny_count() > 0 || (arguments.get_flag("strict") && report.warn_count() > 0);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// An object of a file or a cluster, without schema defaults.
#[derive(Clone, Debug)]
pub(super) struct SourceObject {
    /// File and line, or kind and name in the cluster.
    pub(super) place: String,
    /// Namespace of the object, or the default for objects without one.
    pub(super) namespace: String,
    pub(super) object: serde_json::Value,
}

/// Reads the objects for whose API version and kind `is_wanted` is true, and problems of documents that are not objects.
///
/// # Errors
/// A path matches no file or cannot be read.
pub(super) fn read_kinds(
    paths: &[PathBuf],
    namespace: &str,
    is_wanted: fn(&str, &str) -> bool,
) -> anyhow::Result<(Vec<SourceObject>, Vec<String>)> {
    let sources = input::read(paths)?;
    let collected = objects::collect_kinds(&sources, namespace, is_wanted);
    let place = |source: usize, offset: usize| {
        let source = &sources[source];
        format!("{}:{}", source.name, source.position(offset).line)
    };
    let problems = collected.problems.iter().map(|SourceProblem { source, problem }| {
        format!("{}: {}", place(*source, problem.at.start), printable(&problem.message))
    });
    let objects = collected.objects.iter().map(|object| SourceObject {
        place: place(object.source, object.node.span.start),
        namespace: object.namespace.clone(),
        object: object.node.to_value(),
    });
    Ok((objects.collect(), problems.collect()))
}

/// Findings on a text, for tests of other commands.
#[cfg(test)]
pub(super) fn findings(text: &str) -> String {
    findings_with_global_maps(text, None)
}

/// The same, with the namespace whose ConfigMaps are global.
#[cfg(test)]
pub(super) fn findings_with_global_maps(text: &str, controller_namespace: Option<&str>) -> String {
    let sources = [input::Source::new("output".to_owned(), text.as_bytes().to_vec())];
    let collected = objects::collect(&sources, "default");
    let report = Report::new(
        &sources,
        &collected,
        evaluate::evaluate(&collected.objects, &[], None, controller_namespace),
    );
    text::render(&report, false)
}

/// Problems of `--against` are not findings.
#[expect(clippy::print_stderr, reason = "notes on --against are not findings")]
fn print_problems(sources: &[input::Source], problems: &[SourceProblem]) {
    for SourceProblem { source, problem } in problems {
        let source = &sources[*source];
        let Position { line, column } = source.position(problem.at.start);
        let message = printable(&problem.message);
        eprintln!("wva: --against: {}:{line}:{column}: ignored: {message}", source.name);
    }
}

#[cfg(test)]
mod tests;
